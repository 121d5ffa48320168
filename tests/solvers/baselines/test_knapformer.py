"""KnapFormer's balancer, followed by hand."""

from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.baselines.deal import times_us
from arachne_opt.solvers.baselines.knapformer import bag_runs
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.registry import cascade_solver
from tests.solvers.baselines.one_stage import one_stage

LONG = {1: 800, 2: 400, 4: 200}
SHORT = {1: 100, 2: 80, 4: 70}


def in_bags(digest, sizes):
    times = [times_us(digest, c) for c in range(len(digest.cascades))]
    return bag_runs(digest, sizes, times)


def test_a_sequence_larger_than_every_share_goes_to_the_widest_bag():
    # Shares of 1200 / 4 per device hold no 800; the short ones fill the narrow bags in turn.
    runs = in_bags(Digest(one_stage(4, SHORT, LONG, SHORT, SHORT, SHORT)), [2, 1, 1])
    assert runs is not None
    assert runs[0] == (1, (0, 1))
    assert sorted(len(group) for _, group in runs) == [1, 1, 1, 1, 2]
    assert {group for _, group in runs[1:]} == {(2,), (3,)}


def test_a_bag_that_is_filled_least_for_its_size_comes_next():
    # Work 60 each, 240 in all, 60 a device: the wide bag is half full after one, the others full.
    runs = in_bags(Digest(one_stage(4, *[{1: 60, 2: 30}] * 4)), [2, 1, 1])
    assert runs is not None
    assert [len(group) for _, group in runs].count(2) == 2


def test_bags_that_no_cascade_may_use_do_not_apply():
    assert in_bags(Digest(one_stage(4, {4: 100}, {1: 50})), [2, 1, 1]) is None


def test_the_best_bags_are_taken():
    # Bags 4: 200 + 4 * 70; 2 2: 400; 1 1 1 1: 800; 2 1 1: 400.
    problem = one_stage(4, LONG, SHORT, SHORT, SHORT, SHORT)
    assert cascade_solver("knapformer").solve(problem, Limits()).objective_us == 400
