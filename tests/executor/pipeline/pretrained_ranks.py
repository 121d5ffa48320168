"""What a rank does in the tests of pretrained weights."""

from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from arachne_opt.executor.pipeline.pretrained import load_pretrained, save_pretrained
from arachne_opt.executor.pipeline.samples import MadeUpText
from arachne_opt.executor.pipeline.training import PipelineTraining, TrainingOptions
from arachne_opt.pipeline.plan import PipelinePlan


def pass_on(
    rank: int, spec: DecoderSpec, plan: PipelinePlan, source: str, target: str
) -> tuple[float, float]:
    """Losses with the weights of a checkpoint and after a step; the first are saved again."""
    samples = MadeUpText(8, spec.vocabulary, seed=0)
    training = PipelineTraining(spec, plan, samples, TrainingOptions(seed=1))
    load_pretrained(training, source)
    save_pretrained(training, target)
    return training.step(0.01).loss, training.step(0.01).loss
