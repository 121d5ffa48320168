"""Clusters of two device types, on problems whose optimum is found by hand."""

from collections import Counter

import pytest

from arachne_opt.cascade.problem import Cascade, CascadeProblem, Option, Task
from arachne_opt.cascade.verify import verify
from arachne_opt.cluster import Cluster, DeviceType, Node
from arachne_opt.solvers.base import Limits, Result, Status
from arachne_opt.solvers.registry import cascade_solver
from tests.strategies import FAST, INTER, INTRA, SLOW

SOLVERS = ("portfolio", "cpsat")
# The slow devices take 2.2 times as long.
FIFTHS = 5
SLOWER = 11


def cluster(*kinds: DeviceType, devices: int) -> Cluster:
    """A node of each type with so many devices."""
    nodes = tuple(
        Node(
            name=f"n{i}",
            device_type=kind,
            nic_of_device=(0,) * devices,
            numa_of_nic=(0,),
            intra_link=INTRA,
        )
        for i, kind in enumerate(kinds)
    )
    return Cluster(name="two types", nodes=nodes, inter_link=INTER)


def task(name: str, fast_us: dict[int, int], *, after: tuple[int, ...] = ()) -> Task:
    """A task with its times on fast devices, by degree, and those on slow ones."""
    options = [
        Option(degree=k, duration_us=us * factor // FIFTHS, device_type=kind.name)
        for k, us in fast_us.items()
        for kind, factor in ((FAST, FIFTHS), (SLOW, SLOWER))
    ]
    return Task(name=name, options=tuple(options), predecessors=after)


def solved(solver: str, cascades: tuple[Cascade, ...], where: Cluster) -> Result:
    problem = CascadeProblem(name="by hand", cluster=where, cascades=cascades)
    result = cascade_solver(solver).solve(problem, Limits(time_limit_s=60))
    assert result.plan is not None
    assert result.objective_us is not None
    verify(problem, result.plan, result.objective_us)
    return result


FOUR = tuple(Cascade(id=str(i), tasks=(task("denoise", {1: 1000}),)) for i in range(4))

LONG = Cascade(id="long", tasks=(task("encode", {1: 100}), task("denoise", {2: 1000}, after=(0,))))
SHORT = Cascade(
    id="short", tasks=(task("encode", {1: 100}), task("denoise", {1: 600, 2: 400}, after=(0,)))
)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_slow_device_gets_one_of_four(solver: str) -> None:
    """3 x 1000 on the fast device, 2200 on the slow one; two on the slow one would take 4400."""
    result = solved(solver, FOUR, cluster(FAST, SLOW, devices=1))
    assert (result.status, result.objective_us) == (Status.OPTIMAL, 3000)
    assert result.plan is not None
    assert Counter(p.devices for p in result.plan.placements) == {(0,): 3, (1,): 1}


def test_both_types_beat_each_alone_and_a_plan_that_ignores_them() -> None:
    both = solved("portfolio", FOUR, cluster(FAST, SLOW, devices=1)).objective_us
    assert solved("portfolio", FOUR, cluster(FAST, devices=1)).objective_us == 4000
    assert solved("portfolio", FOUR, cluster(SLOW, devices=1)).objective_us == 8800
    # Two devices that are believed to be fast get two tasks each.
    ignored = solved("portfolio", FOUR, _two_fast())
    assert ignored.objective_us == 2000
    assert ignored.plan is not None
    on_slow = sum(p.devices == (1,) for p in ignored.plan.placements)
    assert both == 3000 < on_slow * 2200 == 4400


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_long_cascade_takes_the_fast_node_and_the_short_one_the_slow(solver: str) -> None:
    """100 + 1000 on fast devices, and 220 + 880 on slow ones beside it: none can end earlier."""
    result = solved(solver, (LONG, SHORT), cluster(FAST, SLOW, devices=2))
    assert (result.status, result.objective_us) == (Status.OPTIMAL, 1100)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_fast_node_alone_takes_both_in_turn(solver: str) -> None:
    """Both encode at once, then 1000 and 400 on both devices, in either order."""
    result = solved(solver, (LONG, SHORT), cluster(FAST, devices=2))
    assert (result.status, result.objective_us) == (Status.OPTIMAL, 1500)


def _two_fast() -> Cluster:
    return cluster(FAST, FAST, devices=1)
