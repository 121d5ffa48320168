"""Which points to measure next."""

import numpy as np

from arachne_opt.costs.learned.active import disagreement, most_unsure, spread_out
from arachne_opt.costs.learned.cascade import points_of, targets_of
from arachne_opt.costs.learned.cascade_features import task_samples
from arachne_opt.models import model_spec
from tests.costs.learned_builders import made_up

WAN = model_spec("wan2.1-1.3b")


def test_a_committee_is_less_sure_far_from_what_it_knows() -> None:
    rows = [m for m in made_up(frames=(5, 9, 13, 17, 21), noise=0.05) if m.task == "denoise"]
    known = task_samples(WAN, "denoise", points_of(rows), (1, 2, 4))
    targets = targets_of(rows, [m.duration_us / 1e6 for m in rows])
    asked = [m for m in made_up(frames=(13, 129)) if m.task == "denoise"]
    samples = task_samples(WAN, "denoise", points_of(asked), (1, 2, 4))
    unsure = disagreement(known, targets, samples)
    near, far = unsure[:3], unsure[3:]
    assert far.mean() > 1.5 * near.mean()
    assert (unsure == disagreement(known, targets, samples)).all()


def test_first_come_the_ends_then_the_middle() -> None:
    places = np.arange(9.0)[:, None]
    assert spread_out(places, [], 3) == (0, 8, 4)
    assert spread_out(places, [0, 8], 1) == (4,)
    assert len(spread_out(places, [], 20)) == 9


def test_a_round_does_not_measure_one_spot() -> None:
    places = np.arange(9.0)[:, None]
    unsure = np.array([0, 0, 0, 0, 0, 0.1, 0.5, 1.0, 0.99])
    first, second = most_unsure(places, unsure, [0, 4], 2)
    assert first == 7
    assert second not in (0, 4, 7)
    assert most_unsure(places, unsure, list(range(9)), 3) == ()
