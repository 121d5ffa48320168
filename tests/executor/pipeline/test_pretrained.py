"""A plan begins with a checkpoint and leaves one: every rank's part is that of the whole."""

import pytest
import torch

from arachne_opt.executor.pipeline.models.checkpoints import CheckpointReader, CheckpointWriter
from arachne_opt.executor.pipeline.models.config_json import config_of_spec
from arachne_opt.executor.pipeline.models.configs import spec_of_config
from arachne_opt.executor.pipeline.models.rows import build_row, token_loss
from arachne_opt.executor.pipeline.samples import MadeUpText
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, ReplicaKind
from tests.executor.pipeline.models import GPT, MIXTRAL, whole_model
from tests.executor.pipeline.pretrained_ranks import pass_on
from tests.executor.ranks import run_ranks
from tests.pipeline_builders import stage

pytest.importorskip("safetensors", reason="the extra hf is not installed")

SPREAD = ReplicaKind("CPU", 1, 2, True)
PAIR = ReplicaKind("CPU", 2)


def four_ranks(spec):
    """Experts spread over two replicas, then one group of two; a dense model has plain replicas."""
    kind = SPREAD if spec.experts else ReplicaKind("CPU")
    stages = (stage(0, 3, kind, kind), stage(3, spec.row_count, PAIR))
    pipeline = Pipeline(microbatch=1, microbatches=2, stages=stages)
    return PipelinePlan(model=spec.name, global_batch=4, pipelines=(pipeline,), zero1=True)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [MIXTRAL, GPT], ids=lambda spec: spec.name)
def test_weights_pass_through_a_plan_to_the_bit(spec, tmp_path):
    writer = CheckpointWriter(tmp_path / "in", spec)
    whole = whole_model(spec, seed=7)
    for row in range(spec.row_count):
        writer.write_row(row, dict(whole[row].named_parameters()))
    writer.finish(config_of_spec(spec, sequence_length=8))
    folders = str(tmp_path / "in"), str(tmp_path / "out")
    losses = run_ranks(pass_on, 4, spec, four_ranks(spec), *folders)
    tokens, targets = MadeUpText(8, spec.vocabulary, seed=0)(range(4))
    with torch.no_grad():
        wanted = token_loss(whole(tokens), targets).item() / targets.numel()
    for first, second in losses:
        assert first == pytest.approx(wanted, abs=1e-6)
        assert second < first
    assert spec_of_config(tmp_path / "out").row_count == spec.row_count
    with CheckpointReader(tmp_path / "out", spec) as reader:
        for row in range(spec.row_count):
            kept = build_row(spec, row, weights=reader.row(row))
            for name, value in kept.named_parameters():
                assert torch.equal(value, whole[row].get_parameter(name)), (row, name)
