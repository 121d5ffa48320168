"""The course of the learning rate."""

from __future__ import annotations

import math

from arachne_opt.executor.options import UpdateOptions


def learning_rate(full: float, step: int, total_steps: int, options: UpdateOptions) -> float:
    """Learning rate of a step.

    It grows in equal parts over the warm-up; then it stays, or falls along half a cosine to 0.

    Args:
        full: the height after the warm-up.
        step: number of the step, from 0.
        total_steps: steps of the whole training, those before a resume included.
        options: names the schedule.
    """
    warm = options.warmup_steps
    if step < warm:
        return full * (step + 1) / warm
    if options.schedule == "constant":
        return full
    progress = (step - warm) / max(1, total_steps - warm)
    return full * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
