"""How far the event simulator may be from the closed form, from an argument about the plan.

The closed form takes an iteration of a pipeline for (M - 1) rounds of its bottleneck and one round
of all S stages. With *blocking sends* a stage is a machine that runs M forwards F and M backwards B
of fixed lengths, each with its sends, in the order of 1F1B; only messages make stages wait. From
this follow two bounds of the simulated time of a pipeline, w = min(S - 1 - k, M - 1) being the
forwards that stage k does before its first pair.

**From below.** A replica of stage k cannot begin before a micro-batch has passed the stages before
it; it then works M rounds; it waits for its first backward until a micro-batch has gone to the end
and back, beside which it has only w further forwards to do, and as long for its last backward,
beside which it has w backwards; after that the gradient has the stages before it to pass. The
largest of these sums over all stages is a bound.

**From above.** The end is that of the longest chain of operations, from the first forward to the
last backward of stage 0. Where a chain turns from forwards to backwards and back, it runs through
the same stages up as down: but for steps from a forward to the next one (a of them, before the
first backward) and from a backward to the next (z of them, after the last forward), it visits
forwards and backwards of a stage equally often, n times. It gains M - 1 micro-batches: w + 1 at
each turn from backward to forward, one at each step, and loses w at each turn back, so that the
sum of all n, a and z is M - 1 + S. A chain through all stages has n >= 1 everywhere and therefore
never takes longer than the closed form, whatever the shares of forwards and backwards. One that
turns at stage k < S - 1 saves the stages after it, and needs at least w steps of either sort; these
take max F + max B together, where the closed form has a round L of the bottleneck. So a bound is
the closed form plus the largest of w (max F + max B - L) - (rounds of the stages after k), where
this is positive: the maxima are over the stages up to k.

What the simulator sees and the closed form does not lies between the bounds: short rounds of other
stages hide in the bubble of the bottleneck; replicas of the larger side of a boundary take turns,
where the closed form charges each of them the whole batch; mixed stages do not wait for the slowest
replica and for the slowest link at once; the last stage (and the first of more than three) is
charged twice for its sends, which no other stage waits for.

**Where both apply.** The bounds hold where (1) at each boundary one number of replicas divides the
other, so that all replicas of a stage carry equal shares, and (2) all pipelines have the same cuts
and the same types in each stage, so that one exchange of each stage is all there is: with unlike
cuts a stage takes part in several exchanges, one after the other, while the closed form looks at
the stages of the longest pipeline only. If both bounds are within ``BOTH_APPLY`` of the closed
form, so is the simulator; if they are equal, they all are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.facts import Facts, kind_pairs
from arachne_opt.pipeline.gradient_sync import exchange_s
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, ReplicaKind
from arachne_opt.pipeline.price import PipelinePrice
from arachne_opt.pipeline.problem import PipelineProblem

BOTH_APPLY = 0.03
# Sums of thousands of floats in another order differ by less.
RELATIVE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Between what the simulated time of an iteration must lie.

    Args:
        closed_s: the closed form.
        low_s: no simulation is shorter; 0 where nothing is known.
        high_s: none is longer; infinite where nothing is known.
        reasons: why nothing is known, in words.
    """

    closed_s: float
    low_s: float = 0.0
    high_s: float = math.inf
    reasons: tuple[str, ...] = ()

    @property
    def both_apply(self) -> bool:
        """Whether closed form and simulator must agree within ``BOTH_APPLY``."""
        return max(self.closed_s - self.low_s, self.high_s - self.closed_s) <= (
            BOTH_APPLY * self.closed_s
        )

    @property
    def exact(self) -> bool:
        """Whether they must be equal."""
        return self.high_s - self.low_s <= RELATIVE * self.closed_s

    def allows(self, simulated_s: float) -> bool:
        """Whether a simulated time is possible."""
        return self.low_s * (1 - RELATIVE) <= simulated_s <= self.high_s * (1 + RELATIVE)


def agreement(problem: PipelineProblem, plan: PipelinePlan) -> Agreement:
    """What closed form and simulator (1F1B, blocking sends, published ends) owe each other."""
    facts, price = Facts(problem), price_plan(problem, plan)
    reasons = tuple(_reasons(plan))
    if reasons or not math.isfinite(price.iteration_s):
        return Agreement(closed_s=price.iteration_s, reasons=reasons or ("a link has no curve",))
    low = high = 0.0
    for pipeline, own in zip(plan.pipelines, price.pipelines, strict=True):
        least, most = _bounds_s(facts, pipeline, own)
        low, high = max(low, least + own.update_s), max(high, most + own.update_s)
    return Agreement(
        closed_s=price.iteration_s,
        low_s=low + _exchange_s(facts, plan),
        high_s=high + price.sync_s,
    )


def _reasons(plan: PipelinePlan) -> Iterator[str]:
    """Where the bounds do not hold."""
    for p, pipeline in enumerate(plan.pipelines):
        for i in range(len(pipeline.stages) - 1):
            few, many = sorted(len(s.replicas) for s in pipeline.stages[i : i + 2])
            if many % few:
                yield f"{few} and {many} replicas meet after stage {i} of pipeline {p}"
    if len({_outline(pipeline) for pipeline in plan.pipelines}) > 1:
        yield "the pipelines differ in cuts or types"


def _outline(pipeline: Pipeline) -> tuple[tuple[int, frozenset[tuple[str, str, int]]], ...]:
    """What decides the exchange of gradients across pipelines."""
    return tuple(
        (s.end, frozenset((k.device_type, k.zone, k.ep) for k in s.kinds)) for s in pipeline.stages
    )


def _exchange_s(facts: Facts, plan: PipelinePlan) -> float:
    """Slowest exchange of a stage with its like in all pipelines."""
    stages = zip(*(p.stages for p in plan.pipelines), strict=True)
    return max(exchange_s(facts, own, range(own[0].first, own[0].end)) for own in stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One direction of a boundary.

    Args:
        least_s: from the end of an operation until a linked replica has a part of the result.
        sends_s: that any sender is blocked at least.
        whole_s: that the closed form charges the sender's stage.
    """

    least_s: float = 0.0
    sends_s: float = 0.0
    whole_s: float = 0.0


_NO_WAY = _Way()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """A stage with what it sends.

    Args:
        times_s: forward and backward of each of its kinds.
        ahead: to the next stage.
        back: to the previous one.
        ahead_twice: the forward send is charged once more.
        back_twice: the backward send is.
    """

    times_s: tuple[tuple[float, float], ...]
    ahead: _Way
    back: _Way
    ahead_twice: bool
    back_twice: bool

    @property
    def least_s(self) -> tuple[float, float]:
        """Quickest forward and backward."""
        return min(f for f, _ in self.times_s), min(b for _, b in self.times_s)

    @property
    def padded_s(self) -> tuple[float, float]:
        """Slowest forward and backward with all that is charged."""
        return (
            max(f for f, _ in self.times_s) + self.ahead.whole_s * (1 + self.ahead_twice),
            max(b for _, b in self.times_s) + self.back.whole_s * (1 + self.back_twice),
        )


def _machines(facts: Facts, pipeline: Pipeline) -> list[_Machine]:
    stages, last = pipeline.stages, len(pipeline.stages) - 1
    found = []
    for i, stage in enumerate(stages):
        samples, rows = pipeline.batch // len(stage.replicas), range(stage.first, stage.end)
        times = tuple(
            (
                facts.forward_s(k, samples, rows),
                facts.backward_s(k, samples, rows, recompute=stage.recompute),
            )
            for k in stage.kinds
        )
        found.append(
            _Machine(
                times_s=times,
                ahead=_way(facts, pipeline, i, i + 1, stage.end - 1) if i < last else _NO_WAY,
                back=_way(facts, pipeline, i, i - 1, stage.first) if i > 0 else _NO_WAY,
                ahead_twice=i == 0 and last > 2,
                back_twice=i == last and last > 0,
            )
        )
    return found


def _way(facts: Facts, pipeline: Pipeline, source: int, target: int, row: int) -> _Way:
    a, b = pipeline.stages[source], pipeline.stages[target]
    few, many = sorted((len(a.replicas), len(b.replicas)))
    pairs: set[tuple[ReplicaKind, ReplicaKind]] = set(kind_pairs(a, b))
    times = [facts.message_s(x, y, row, pipeline.batch / few) for x, y in pairs]
    parts = many // few  # messages that a replica of the smaller side has
    wide = len(a.replicas) > few
    return _Way(
        least_s=min(times) / parts,
        sends_s=min(times) / (parts if wide else 1),
        whole_s=max(times),
    )


def _bounds_s(facts: Facts, pipeline: Pipeline, price: PipelinePrice) -> tuple[float, float]:
    """Least and most time until a pipeline's last operation has ended."""
    closed = price.total_s - price.update_s
    if len(pipeline.stages) == 1:
        return closed, closed
    machines = _machines(facts, pipeline)
    low = max(
        _least_s(machines, k, times, price.microbatches)
        for k, machine in enumerate(machines)
        for times in machine.times_s
    )
    return min(low, closed), max(_most_s(machines, price.microbatches), closed)


def _least_s(
    machines: Sequence[_Machine], k: int, times_s: tuple[float, float], microbatches: int
) -> float:
    """The bound from below by one kind of replica of stage k."""
    own, beside = machines[k], min(len(machines) - 1 - k, microbatches - 1)
    before = sum(sum(m.least_s) + m.ahead.least_s for m in machines[:k])
    before += sum(m.back.least_s for m in machines[1 : k + 1])
    after = sum(sum(m.least_s) + m.back.least_s for m in machines[k + 1 :])
    after += sum(m.ahead.least_s for m in machines[k:])
    forward = times_s[0] + own.ahead.sends_s * (1 + own.ahead_twice)
    backward = times_s[1] + own.back.sends_s * (1 + own.back_twice)
    there_and_back = times_s[0] + after
    first = max(0.0, there_and_back - (beside + 1) * forward)
    last = max(0.0, there_and_back - forward - beside * backward)
    # With few micro-batches the last forward is over before the first backward begins.
    apart = microbatches > len(machines) - k
    waits = first + last if apart else max(first, last)
    rounds = microbatches * (forward + backward)
    return before + rounds + waits - own.back.sends_s * (1 + own.back_twice)


def _most_s(machines: Sequence[_Machine], microbatches: int) -> float:
    """The bound from above, with all that the closed form charges."""
    padded = [m.padded_s for m in machines]
    loads = [sum(both) for both in padded]
    worst = most_forward = most_backward = 0.0
    for k, (forward, backward) in enumerate(padded):
        most_forward, most_backward = max(most_forward, forward), max(most_backward, backward)
        steps = min(len(padded) - 1 - k, microbatches - 1)
        longer = steps * (most_forward + most_backward - max(loads))
        worst = max(worst, longer - sum(loads[k + 1 :]))
    return (microbatches - 1) * max(loads) + sum(loads) + worst
