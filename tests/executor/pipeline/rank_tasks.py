"""What the ranks of a test do: train under a plan and hand back what can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from arachne_opt.executor.groups import GroupPool
from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from arachne_opt.executor.pipeline.training import PipelineTraining, TrainingOptions
from arachne_opt.pipeline.plan import PipelinePlan

SEQUENCE = 12


class SeededSamples:
    """Tokens that depend on the number of the sample alone; some targets do not count."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary, self.length = vocabulary, SEQUENCE

    def __call__(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        rows = []
        for number in numbers:
            generator = torch.Generator().manual_seed(1000 + number)
            row = torch.randint(self.vocabulary, (SEQUENCE + 1,), generator=generator)
            rows.append(row)
        both = torch.stack(rows)
        targets = both[:, 1:].clone()
        for place, number in enumerate(numbers):
            targets[place, : number % 4] = -100
        return both[:, :-1], targets


def batch(spec: DecoderSpec, samples: int, step: int) -> tuple[Tensor, Tensor]:
    """A whole global batch."""
    return SeededSamples(spec.vocabulary)(range(step * samples, (step + 1) * samples))


def train(
    rank: int, spec: DecoderSpec, plan: PipelinePlan, steps: int, learning_rate: float, **options
) -> dict:
    """Trains and gives this rank's losses, norms, gradients of the first step, and weights."""
    training = PipelineTraining(
        spec, plan, SeededSamples(spec.vocabulary), TrainingOptions(**options)
    )
    return run(training, steps, learning_rate)


def run(training: PipelineTraining, steps: int, learning_rate: float) -> dict:
    found = {"losses": [], "norms": [], "gradients": [], "weights": []}
    for step in range(steps):
        if step == 0:
            result = training.backward()
            found["gradients"] = [
                (tuple(k), box, g.clone().numpy()) for k, box, g in training.update.gradients()
            ]
            training.update.step(learning_rate, result.norm, training.options.clip_norm)
            training.advance()
        else:
            result = training.step(learning_rate)
        found["losses"].append(result.loss)
        found["norms"].append(result.norm)
    found["weights"] = weights(training)
    return found


def weights(training: PipelineTraining) -> list:
    """The parameters that a rank holds, each with its place in the whole."""
    return [
        (tuple(key), box, training.parameters[key].detach().clone().numpy())
        for key, box in training.parts.items()
    ]


def train_many(rank: int, spec: DecoderSpec, plans: list[PipelinePlan], **options) -> list:
    """One backward under each of many plans, on the first ranks of the run."""
    found, pool = [], GroupPool()
    samples = SeededSamples(spec.vocabulary)
    for plan in plans:
        training = PipelineTraining(spec, plan, samples, TrainingOptions(**options), pool=pool)
        if training.takes_part:
            result = training.backward()
            gradients = [
                (tuple(k), box, g.clone().numpy()) for k, box, g in training.update.gradients()
            ]
            found.append((result.loss, gradients))
        else:
            found.append(None)
    return found
