"""Costs from measurements."""

import itertools
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arachne_opt.cluster_file import parse_shorthand
from arachne_opt.costs.build import build_problem
from arachne_opt.costs.table import (
    CostRow,
    TableCostModel,
    cost_table_from_json,
    cost_table_to_json,
    non_decreasing,
    read_cost_table,
)
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.errors import InputError
from arachne_opt.importers.durations import read_durations
from arachne_opt.importers.workloads import read_workload_log
from arachne_opt.models import model_spec
from arachne_opt.records import Measurement
from arachne_opt.workload import Clip, MicroBatch, Shape

TINY = model_spec("tiny-wan")
CPU = DEVICE_TYPES["CPU"]


def measured(frames: int, duration_us: int, **changes) -> Measurement:
    """One clip of 16 x 16 pixels: a token per latent frame."""
    base = Measurement(
        model="tiny-wan",
        task="denoise",
        device_type="CPU",
        degree=1,
        batch=1,
        frames=frames,
        height=16,
        width=16,
        text_tokens=0,
        duration_us=duration_us,
        memory_bytes=10 * duration_us,
        source="profile",
    )
    return replace(base, **changes)


def model(*rows: Measurement, **arguments) -> TableCostModel:
    return TableCostModel.from_measurements(TINY, rows, **arguments)


def batch(frames: int, *, clips: int = 1, size: int = 16) -> MicroBatch:
    shape = Shape(frames=frames, height=size, width=size)
    members = tuple(Clip(id=f"c{i}", shape=shape) for i in range(clips))
    return MicroBatch(id="mb", shape=shape, clips=members)


def cost(table: TableCostModel, work: MicroBatch, degree: int = 1) -> tuple[int, int]:
    options = table.options("denoise", work, CPU)
    found = next(o for o in options if o.degree == degree)
    return found.duration_us, found.memory_bytes


def test_a_measured_shape_keeps_what_was_measured() -> None:
    table = model(measured(1, 100), measured(5, 90), measured(9, 400))
    assert [cost(table, batch(f))[0] for f in (1, 5, 9)] == [100, 90, 400]
    assert cost(table, batch(9)) == (400, 4000)


def test_upright_and_lying_clips_cost_the_same() -> None:
    table = model(measured(5, 100, height=32, width=64), measured(9, 50, height=32, width=64))
    shape = Shape(frames=5, height=64, width=32)
    work = MicroBatch(id="mb", shape=shape, clips=(Clip(id="c", shape=shape),))
    assert cost(table, work) == (100, 1000)


def test_of_repeated_measurements_the_median_counts() -> None:
    assert cost(model(*(measured(5, d) for d in (100, 900, 120))), batch(5)) == (120, 1200)
    assert cost(model(measured(5, 100), measured(5, 101)), batch(5))[0] == 101


def test_between_measured_shapes_costs_are_linear_in_tokens() -> None:
    table = model(measured(1, 100), measured(17, 500))
    assert [cost(table, batch(f))[0] for f in (5, 9, 13)] == [200, 300, 400]


def test_costs_never_fall_with_tokens_between_measured_shapes() -> None:
    table = model(measured(1, 300), measured(9, 100), measured(17, 400))
    assert cost(table, batch(5))[0] == 200
    assert cost(table, batch(13))[0] == 300


def test_another_shape_of_as_many_tokens_costs_as_much() -> None:
    table = model(measured(13, 400), measured(29, 800))
    assert cost(table, batch(1, size=32))[0] == 400


def test_outside_the_range_costs_grow_in_proportion_as_far_as_stated() -> None:
    table = model(measured(13, 400), measured(29, 800))
    assert cost(table, batch(37))[0] == 1000
    with pytest.raises(InputError) as caught:
        table.options("denoise", batch(41), CPU)
    shown = str(caught.value)
    assert "micro-batch mb: denoise of 1x41x16x16 on CPU lies beyond 1.25 times" in shown
    assert "nearest are 1x13x16x16, 1x29x16x16" in shown
    assert "analytic cost model" in shown
    wider = model(measured(13, 400), measured(29, 800), reach=2)
    assert cost(wider, batch(61))[0] == 1600
    with pytest.raises(InputError):
        wider.options("denoise", batch(65), CPU)


def test_below_the_range_costs_shrink_in_proportion_as_far_as_stated() -> None:
    table = model(measured(17, 500), measured(29, 800))
    assert cost(table, batch(13))[0] == 400
    with pytest.raises(InputError, match="lies beyond"):
        table.options("denoise", batch(9), CPU)


def test_between_measured_clip_counts_costs_are_linear_in_clips() -> None:
    table = model(measured(5, 100), measured(5, 400, batch=4))
    assert [cost(table, batch(5, clips=n))[0] for n in (2, 3)] == [200, 300]


def test_clip_counts_beyond_the_measured_ones_follow_in_proportion() -> None:
    table = model(measured(5, 400, batch=4))
    assert cost(table, batch(5, clips=5))[0] == 500
    with pytest.raises(InputError, match="denoise of 6x5x16x16"):
        table.options("denoise", batch(5, clips=6), CPU)


def test_degrees_that_were_not_measured_near_enough_are_left_out_and_logged(caplog) -> None:
    table = model(measured(5, 100), measured(5, 60, degree=2), measured(17, 300))
    with caplog.at_level(logging.INFO):
        options = table.options("denoise", batch(17), CPU)
    assert [o.degree for o in options] == [1]
    assert "not measured near enough at [2]" in caplog.text


def test_unknown_tasks_and_devices_say_what_there_is() -> None:
    table = model(measured(5, 100))
    with pytest.raises(InputError, match="no task 'encode'; it has denoise"):
        table.options("encode", batch(5), CPU)
    with pytest.raises(InputError, match="no denoise on 'T4'; it has CPU"):
        table.options("denoise", batch(5), DEVICE_TYPES["T4"])


def test_tables_of_no_rows_or_other_models_or_illegal_degrees_are_refused() -> None:
    with pytest.raises(InputError, match="has no rows"):
        model()
    with pytest.raises(InputError, match="of model 'toy'"):
        model(measured(5, 100, model="toy"))
    with pytest.raises(InputError, match="degree 3 does not divide the 4 heads"):
        model(measured(5, 100, degree=3))
    with pytest.raises(InputError, match="between 1 and 10"):
        model(measured(5, 100), reach=0.5)
    with pytest.raises(InputError, match="must be positive"):
        CostRow(
            task="x",
            device_type="CPU",
            degree=1,
            batch=0,
            shape=Shape(frames=1, height=1, width=1),
            duration_us=1,
            memory_bytes=0,
        )


def test_tasks_come_in_the_order_of_a_cascade() -> None:
    both = model(measured(5, 100), measured(5, 50, task="encode"))
    assert both.task_names == ("encode", "denoise")
    assert both.input_bytes("denoise", batch(5, clips=3)) == 3 * 2 * 2 * 2 * 4 * 2
    assert both.input_bytes("encode", batch(5)) == 0
    alone = model(measured(5, 100))
    assert alone.task_names == ("denoise",)
    assert alone.input_bytes("denoise", batch(5)) == 0


def test_only_the_heads_make_a_degree_illegal() -> None:
    table = model(measured(5, 100))
    assert table.why_illegal("denoise", 2) is None
    assert "does not divide" in (table.why_illegal("denoise", 3) or "")
    assert table.why_illegal("encode", 3) is None


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    table = model(measured(5, 100), measured(9, 300, degree=2), reach=1.5)
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(cost_table_to_json(table)), encoding="utf-8")
    again = read_cost_table(file)
    assert again == table
    assert again.version == table.version


def test_the_version_ignores_the_order_of_rows_and_nothing_else() -> None:
    a, b = measured(5, 100), measured(9, 300)
    assert model(a, b).version == model(b, a).version
    assert model(a).version != model(a, b).version
    assert model(a, b).version != model(a, b, reach=2).version
    assert model(a).version != model(measured(5, 101, memory_bytes=1000)).version


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"format": "x"}, "format is 'x'"),
        ({"model": "tiny-wam"}, "did you mean 'tiny-wan'?"),
        ({"rows": []}, "has no rows"),
        ({"rows": 3}, "rows: expected a list"),
        ({"reach": "far"}, "reach: expected a number"),
        ({"row": []}, "did you mean 'rows'?"),
    ],
)
def test_a_damaged_table_says_where(change: dict, expected: str) -> None:
    value = cost_table_to_json(model(measured(5, 100))) | change
    with pytest.raises(InputError) as caught:
        cost_table_from_json(value, "costs.json")
    assert expected in str(caught.value)


def test_a_damaged_row_is_numbered() -> None:
    value = cost_table_to_json(model(measured(5, 100), measured(9, 200)))
    value["rows"][1]["duration_us"] = 0
    with pytest.raises(InputError, match=r"costs.json: row 2: duration_us: must be at least 1"):
        cost_table_from_json(value, "costs.json")


def test_an_unreadable_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the cost table"):
        read_cost_table(tmp_path / "absent.json")


@given(st.lists(st.floats(0, 100), max_size=30))
def test_pooling_gives_a_non_decreasing_sequence_of_equal_sum(values: list[float]) -> None:
    pooled = non_decreasing(values)
    assert len(pooled) == len(values)
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(pooled))
    assert sum(pooled) == pytest.approx(sum(values))
    if values == sorted(values):
        assert pooled == pytest.approx(values)


@settings(deadline=None)
@given(
    st.dictionaries(st.integers(0, 20), st.integers(1, 1000), min_size=2, max_size=8),
    st.integers(1, 4),
)
def test_unmeasured_shapes_never_get_cheaper_with_more_tokens(cells, clips) -> None:
    rows = [measured(4 * t + 1, cost_us, batch=clips) for t, cost_us in cells.items()]
    table = model(*rows)
    between = [t for t in range(min(cells), max(cells)) if t not in cells]
    costs = [cost(table, batch(4 * t + 1, clips=clips)) for t in between]
    assert costs == sorted(costs)


def test_public_durations_price_the_public_workload_exactly(shared_data: Path) -> None:
    spec = model_spec("hunyuanvideo-13b")
    rows = read_durations(shared_data / "cascades" / "durations_hunyuan_720p.json")
    table = TableCostModel.from_measurements(spec, rows)
    log = read_workload_log(shared_data / "workloads" / "workload_hunyuan_720p_129.json")
    cluster = parse_shorthand("H100-80:8x4")
    for iteration in log.iterations:
        problem = build_problem(iteration, cluster, table)
        for cascade, work in zip(problem.cascades, iteration.micro_batches, strict=True):
            known = {
                (m.task, m.degree): m.duration_us
                for m in rows
                if (m.batch, m.frames) == (work.size, work.shape.frames)
            }
            for task in cascade.tasks:
                for option in task.options:
                    if (task.name, option.degree) in known:
                        assert option.duration_us == known[task.name, option.degree]
