"""Races of walks: all begin, the better half goes on, and the last one cools down."""

import random
from array import array

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import to_plan
from arachne_opt.solvers.cascade.walks import native
from arachne_opt.solvers.cascade.walks.choice import free_choice
from arachne_opt.solvers.cascade.walks.cooling import Heat
from arachne_opt.solvers.cascade.walks.place import Place
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US
from arachne_opt.solvers.cascade.walks.racing import raced
from arachne_opt.solvers.cascade.walks.walker import Walks
from tests.strategies import random_problem

HEAT = Heat(0.003, 0.0003)


def runner(number):
    return free_choice(array("i", [number]), array("q", [0]))


class Runners:
    """Walkers whose makespans are known beforehand: 100 and their number, less what they gain."""

    stride = 1  # until one has begun
    placed_per_unit = 1

    def __init__(self, gains):
        self.gains, self.begun, self.heats, self.left = gains, [], [], {}
        self.strides = []

    def begin(self, choice, most_us, tasks=None):
        self.begun.append(choice.picks[0])
        self.stride = 80
        return self.left.setdefault(choice.picks[0], 100 + choice.picks[0])

    def walk(self, steps, heat):
        number = self.begun[-1]
        self.heats.append(heat)
        self.strides.append(steps)
        self.left[number] -= self.gains.get(number, 0)

    @property
    def now(self):
        number = self.begun[-1]
        return Place(runner(number), array("i", [0]), self.left[number], 0)

    @property
    def best(self):
        return Place(runner(0), array("i", [0]), min(self.left.values()), 0)


def shares(steps):
    """Progress that is over after so many walks."""
    done = 0

    def progress(placed):
        nonlocal done
        done += placed > 0
        return done / steps

    return progress


def test_the_better_half_goes_on_in_each_round():
    walker = Runners({3: 5, 1: 2})
    list(raced(walker, [runner(k) for k in range(4)], HEAT, shares(400)))
    # 0 to 3 with 100 to 103: 3 overtakes all, 1 all but that one.
    assert walker.begun == [0, 1, 2, 3, 3, 1, 3]


def test_a_number_of_starts_that_is_no_power_of_two():
    walker = Runners({4: 9})
    list(raced(walker, [runner(k) for k in range(5)], HEAT, shares(1000)))
    assert walker.begun == [0, 1, 2, 3, 4, 4, 0, 1, 4, 0, 4]


def test_later_rounds_are_cooler_and_the_end_is_cold():
    walker = Runners({})
    list(raced(walker, [runner(k) for k in range(8)], HEAT, shares(4000)))
    assert walker.heats == sorted(walker.heats, reverse=True)
    assert walker.heats[0] == HEAT.hot
    assert walker.heats[-1] == pytest.approx(HEAT.cold, rel=0.02)


def test_strides_are_those_of_the_problem():
    walker = Runners({})
    list(raced(walker, [runner(k) for k in range(2)], HEAT, shares(50)))
    assert set(walker.strides) == {10, 80}


def test_one_start_cools_down_from_the_beginning():
    walker = Runners({})
    list(raced(walker, [runner(0)], HEAT, shares(100)))
    assert walker.begun == [0]
    assert walker.heats[0] == HEAT.hot


def test_a_race_ends_in_the_middle_where_the_time_is_over():
    walker = Runners({})
    over = iter([0.0, 0.0, 0.0, 0.0, 0.01, 1.0])
    assert len(list(raced(walker, [runner(k) for k in range(4)], HEAT, lambda _: next(over)))) == 1
    assert walker.begun == [0]


def test_starts_that_take_long_to_be_made_are_few():
    walker, made = Runners({}), []

    def slowly():
        for k in range(32):
            made.append(k)
            yield runner(k)

    list(
        raced(
            walker,
            slowly(),
            HEAT,
            lambda _placed: min(1.0, 0.08 * len(made) + 0.01 * len(walker.heats)),
        )
    )
    assert made == [0, 1, 2]
    assert walker.begun[:3] == made


def test_a_race_ends_where_the_last_start_was_made_after_the_time():
    """What is over is over: 3 times the length at first, 1 from then on."""
    walker, over = Runners({}), iter([0.1, 3.0, 1.0])
    list(raced(walker, [runner(0), runner(1)], HEAT, lambda _placed: next(over)))
    assert walker.begun == [0]


def test_the_first_start_is_begun_even_where_no_time_is_left():
    walker = Runners({})
    list(raced(walker, [runner(7)], HEAT, lambda _placed: 1.0))
    assert walker.begun == [7]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_races_end_in_legal_schedules_no_longer_than_any_start(seed, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(native, "library", lambda: None)
    problem = random_problem(seed)
    if problem.pinned or problem.forbidden_devices:
        pytest.skip("walks are not asked where devices are pinned or forbidden")
    digest, rng = Digest(problem), random.Random(seed)
    walks = Walks(digest)
    starts = []
    for _ in range(6):
        modes = [rng.choice(task.modes) for task in digest.tasks]
        starts.append(walks.table.choice(modes, [rng.randrange(9) for _ in modes]))
    walker = walks.walker(seed)
    first_us = [walks.walker(0).begin(start, ANY_US) for start in starts]
    best_us = [place.makespan_us for place in raced(walker, starts, HEAT, shares(60))]
    assert best_us == sorted(best_us, reverse=True)
    assert best_us[-1] <= min(first_us)
    schedule = walks.schedule(walker.best)
    assert check_plan(digest.problem, to_plan(digest, schedule)) == ()
