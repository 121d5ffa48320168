"""The batching problem: its candidates, its iterations, its keys."""

from collections import Counter
from dataclasses import replace

import pytest

from arachne_opt.cascade.batching import batching_of_ids, require_every_clip_once
from arachne_opt.cascade.check import check_plan
from arachne_opt.errors import DisagreementError, InputError
from arachne_opt.workload import Iteration
from tests.batching_builders import all_batchings, one_shape, random_batching
from tests.strategies import even_cluster, seeded_plan

PRICES = {1: {1: 10, 2: 6}, 2: {1: 18, 2: 9}, 3: {2: 14}}


@pytest.mark.parametrize("seed", range(8))
def test_every_batching_holds_every_clip_once(seed: int) -> None:
    problem = random_batching(seed)
    clips = Counter(clip.id for _, clip in problem.clips())
    for batching in all_batchings(problem):
        iteration = problem.iteration(batching)
        assert Counter(c.id for b in iteration.micro_batches for c in b.clips) == clips
        placement = problem.placement_problem(batching)
        assert [c.id for c in placement.cascades] == [b.id for b in iteration.micro_batches]
        assert [c.label for c in placement.cascades] == [b.label for b in iteration.micro_batches]


@pytest.mark.parametrize("seed", range(8))
def test_a_batching_is_read_back_from_the_ids_of_its_micro_batches(seed: int) -> None:
    problem = random_batching(seed)
    for batching in all_batchings(problem):
        ids = [b.id for b in problem.iteration(batching).micro_batches]
        assert batching_of_ids(reversed(ids)) == batching


@pytest.mark.parametrize(
    "ids", [["mb0"], ["s1c0x1"], ["s0c1x1"], ["s0c0x2", "s0c1x1"], ["s0c0x1", "s0c0x1"]]
)
def test_ids_of_no_batching_are_refused(ids: list[str]) -> None:
    with pytest.raises(InputError):
        batching_of_ids(ids)


@pytest.mark.parametrize("sizes", [(), (4,), (1, 1), (0, 3), (-1, 4), (2, 2), (3, 1)])
def test_sizes_that_do_not_fit_the_clips_are_refused(sizes: tuple[int, ...]) -> None:
    problem = one_shape(even_cluster(), 3, PRICES)
    with pytest.raises(InputError):
        problem.segments((sizes,))


def test_a_size_without_candidate_is_refused() -> None:
    problem = one_shape(even_cluster(), 4, {1: {1: 10}, 3: {1: 20}})
    assert problem.placement_problem(((3, 1),)).cascades[0].label.startswith("3x")
    with pytest.raises(InputError, match="fit no device"):
        problem.segments(((2, 2),))


def test_a_lost_doubled_or_misplaced_clip_is_noticed() -> None:
    problem = one_shape(even_cluster(), 3, PRICES)
    good = problem.iteration(((2, 1),))
    pair, single = good.micro_batches
    require_every_clip_once(problem.clips(), good)
    lost = Iteration(name="lost", micro_batches=(pair,))
    doubled = Iteration(
        name="doubled", micro_batches=(pair, replace(single, clips=(*single.clips, pair.clips[0])))
    )
    other = replace(single, shape=replace(single.shape, frames=9))
    misplaced = Iteration(name="misplaced", micro_batches=(pair, other))
    for bad in (lost, doubled, misplaced):
        with pytest.raises(DisagreementError, match="clip"):
            require_every_clip_once(problem.clips(), bad)


def test_the_key_ignores_names_and_sees_prices() -> None:
    problem = one_shape(even_cluster(), 3, PRICES)
    same = one_shape(even_cluster(), 3, PRICES)
    family = same.families[0]
    renamed = tuple(replace(clip, id=f"other-{clip.id}") for clip in family.clips)
    same = replace(same, name="else", families=(replace(family, clips=renamed),))
    assert same.fingerprint() == problem.fingerprint()
    dearer = one_shape(even_cluster(), 3, {**PRICES, 3: {2: 15}})
    assert dearer.fingerprint() != problem.fingerprint()
    narrower = one_shape(even_cluster(), 3, {1: PRICES[1], 2: PRICES[2]})
    assert narrower.fingerprint() != problem.fingerprint()


def test_a_plan_is_carried_over_to_equal_micro_batches_in_another_order() -> None:
    problem = one_shape(even_cluster(), 5, PRICES)
    made = problem.iteration(((1, 3, 1),))
    moved = Iteration(name="moved", micro_batches=made.micro_batches[::-1])
    batching = problem.batching_of(moved)
    assert batching == ((3, 1, 1),)
    source = problem.placement_problem(((1, 3, 1),))
    source = replace(source, cascades=source.cascades[::-1])
    plan = problem.carry_over(moved, seeded_plan(source, 1))
    assert check_plan(problem.placement_problem(batching), plan) == ()


def test_the_grouping_of_other_clips_is_refused() -> None:
    problem = one_shape(even_cluster(), 3, PRICES)
    fewer = Iteration(name="fewer", micro_batches=problem.iteration(((2, 1),)).micro_batches[:1])
    with pytest.raises(InputError, match="other clips"):
        problem.batching_of(fewer)
