"""Templates: their short form, and the pipelines that they become."""

import pytest

from arachne_opt.errors import InputError
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.template import ReplicaBlock, Template, parse_template, template_of
from tests.pipeline_builders import random_plan, small_problem


@pytest.mark.parametrize(
    "text",
    [
        "V100-16×1 tp1 | A100-40×1 tp1",
        "V100-16×3 tp2 | A100-40×2 tp1",
        "V100-16×2 tp1 + A100-40×1 tp1",
        "A100-40×4 tp2 ep4L @us-central1-b | A100-40×4 tp1 ep2",
    ],
)
def test_the_short_form_is_read_back(text):
    assert str(parse_template(text)) == text


def test_a_plain_x_and_a_missing_count_are_read_too():
    assert str(parse_template("V100-16x3 tp2|A100-40 tp1")) == "V100-16×3 tp2 | A100-40×1 tp1"


@pytest.mark.parametrize("text", ["", "V100-16", "V100-16×0 tp1", "A100-40×3 tp1 ep2", "tp2 | "])
def test_nonsense_is_refused(text):
    with pytest.raises(InputError):
        parse_template(text)


@pytest.mark.parametrize("seed", range(30))
def test_a_pipeline_comes_back_from_its_template_cuts_and_microbatch(seed):
    for pipeline in random_plan(small_problem(), seed).pipelines:
        template = template_of(pipeline)
        cuts = (0, *(s.end for s in pipeline.stages))
        assert template.pipeline(cuts, pipeline.microbatch) == pipeline
        assert parse_template(str(template)) == template


def test_devices_count_tensor_parallel_groups():
    kind = ReplicaKind("A100-40", 2)
    block = ReplicaBlock(kind=kind, count=3)
    template = Template(stages=((block,), (block, ReplicaBlock(kind=ReplicaKind("T4")))))
    assert template.devices() == {"A100-40": 12, "T4": 1}
