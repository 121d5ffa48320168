"""Tasks that take longer than planned are seen, and the costs follow them."""

import pytest

from arachne_opt.costs.corrected import CorrectedCostModel, Correction
from arachne_opt.errors import InputError
from arachne_opt.executor.drift import DriftMonitor
from arachne_opt.executor.report import IterationReport, RankSpan, TaskReport
from arachne_opt.executor.stragglers import find_straggler
from tests.executor.jobs import ODD, SMALL


def task(name, ratio, *, shape=ODD, ranks=(0,), kind="denoise", own=None):
    """A task planned for 0.1 s; ``own`` is the share of its time outside of exchanges, by rank."""
    took = round(100_000 * ratio)
    shares = own or {}
    spans = tuple(
        RankSpan(
            rank=rank,
            start_us=0,
            end_us=took,
            exchange_us=round(took * (1 - shares.get(rank, 1.0))),
        )
        for rank in ranks
    )
    return TaskReport(
        micro_batch=name,
        task=kind,
        shape=shape,
        clips=2,
        text_tokens=1,
        device_type="CPU",
        penalty_ppm=1_000_000,
        planned_start_us=0,
        planned_end_us=100_000,
        ranks=spans,
    )


def step(number, *tasks):
    return IterationReport(
        name="it",
        step=number,
        loss=1.0,
        planned_us=100_000,
        measured_us=max(t.end_us for t in tasks),
        sync_us=1,
        optimizer_us=1,
        overhead_us=1,
        tasks=tasks,
    )


def test_drift_is_seen_once_the_window_is_full_and_not_in_the_first_step():
    monitor = DriftMonitor(0.25, window=2, skip=1)
    seen = []
    for number in range(3):
        monitor.add(step(number, task("a", 1.5), task("b", 1.1)))
        seen.append(monitor.drifted)
    assert seen == [False, False, True]
    assert monitor.error == pytest.approx(0.3)
    monitor.restart()
    assert not monitor.drifted


def test_errors_in_both_directions_add_up():
    monitor = DriftMonitor(0.25, window=1, skip=0)
    monitor.add(step(0, task("a", 1.4), task("b", 0.6)))
    assert monitor.error == pytest.approx(0.4)
    assert monitor.drifted


def test_deviations_are_medians_per_shape_and_per_kind():
    monitor = DriftMonitor(0.1, window=3, skip=0)
    for number, ratio in enumerate((2.0, 2.2, 9.0)):
        monitor.add(step(number, task("a", ratio), task("b", 1.0, shape=SMALL, ranks=(0, 1))))
    found = {(d.degree, d.shape): d.ratio for d in monitor.deviations()}
    assert found == {(1, ODD): 2.2, (1, None): 2.2, (2, SMALL): 1.0, (2, None): 1.0}


class TestCorrectedCosts:
    """Over the analytic costs of a small model."""

    @pytest.fixture
    def base(self):
        from arachne_opt.cluster_file import read_cluster
        from arachne_opt.costs.analytic import analytic_for_cluster
        from arachne_opt.models import model_spec

        self.kind = read_cluster("CPU:2").devices[0].device_type
        return analytic_for_cluster(model_spec("toy"), read_cluster("CPU:2"))

    def durations(self, costs, batch):
        return {o.degree: o.duration_us for o in costs.options("denoise", batch, self.kind)}

    def test_measured_shapes_get_their_own_factor_and_others_that_of_their_kind(self, base):
        from tests.executor.jobs import batch

        def row(label, ppm):
            return Correction(
                task="denoise", device_type="CPU", degree=1, factor_ppm=ppm, label=label
            )

        costs = CorrectedCostModel(
            base=base, corrections=(row("2x9x48x80", 3_000_000), row("", 2_000_000))
        )
        known, other = batch("a", ODD, 2), batch("b", SMALL, 2)
        before, after = self.durations(base, known), self.durations(costs, known)
        assert after[1] == 3 * before[1]
        # Nothing was measured at degree 2: the nearest degree speaks for it.
        assert after[2] == 2 * before[2]
        assert self.durations(costs, other)[1] == 2 * self.durations(base, other)[1]
        encode = costs.options("encode", known, self.kind)
        assert encode == base.options("encode", known, self.kind)
        assert costs.input_bytes("denoise", known) == base.input_bytes("denoise", known)
        assert costs.why_illegal("denoise", 3) == base.why_illegal("denoise", 3)

    def test_the_version_follows_base_and_factors(self, base):
        def costs(ppm):
            row = Correction(task="encode", device_type="CPU", degree=1, factor_ppm=ppm)
            return CorrectedCostModel(base=base, corrections=(row,))

        assert costs(5).version == costs(5).version != costs(6).version
        assert costs(5).description()["base"] == base.version
        with pytest.raises(InputError, match="positive factor"):
            costs(0)


def test_a_task_that_stands_out_names_the_rank_that_did_not_wait():
    late = task("a", 3.0, ranks=(0, 3), own={0: 0.2, 3: 0.9})
    found = find_straggler(step(4, late, task("b", 1.0), task("c", 1.1)))
    assert (found.rank, found.micro_batch, found.task) == (3, "a", "denoise")
    assert str(found) == (
        "straggler in step 4: rank 3, denoise of a took 0.300 s, planned 0.100 s (3.0 times)"
    )


@pytest.mark.parametrize("ratios", [(3.0, 3.1, 2.9), (1.0, 1.1, 1.3), (1.0,)])
def test_tasks_that_are_late_alike_or_a_little_are_no_stragglers(ratios):
    tasks = [task(f"b{i}", ratio) for i, ratio in enumerate(ratios)]
    assert find_straggler(step(1, *tasks)) is None
