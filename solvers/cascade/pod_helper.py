"""Trades of pods in processes of their own, beside those of the main process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_solver import Pod, PodSolver
from arachne_opt.solvers.cascade.pods import Pods, Trade
from arachne_opt.solvers.helper import Helper, start_helpers


def pod_helpers(digest: Digest, target_us: int, seed: int, count: int) -> list[Helper]:
    """So many helpers, as far as they can be started; they are asked for trades.

    An answer has for each pod that the trades want one that is fast enough, or None.
    """
    return start_helpers(count, trader, digest.problem, target_us, seed)


def trader(
    number: int, problem: CascadeProblem, target_us: int, seed: int
) -> Callable[[Sequence[Trade]], list[Pod | None]]:
    """What answers in a helper."""
    digest, seed = Digest(problem), seed + 1 + number
    pods = Pods(digest, PodSolver(digest, target_us, seed), seed)
    # Never asks to stop: the parent ends the process.
    return lambda trades: pods.search(trades, lambda _placed: False)
