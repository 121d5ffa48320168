"""The terminal chart shows who runs when, and folds what would not fit."""

import re
from dataclasses import replace

import pytest
from hypothesis import given

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.report.gantt import render_gantt
from tests.strategies import (
    even_cluster,
    problems_with_plans,
    random_problem,
    seeded_plan,
    simple_task,
    two_stage,
)

ROW = re.compile(r"^ *(?P<label>\S.*) ▕(?P<cells>.*)▏$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def rows(chart: str) -> dict[str, str]:
    found = [ROW.match(line) for line in chart.splitlines()]
    return {match["label"]: match["cells"] for match in found if match}


@pytest.fixture
def case():
    """Cascade 0 on devices 0 and 1 for 400 ms, cascade 1 on device 2 in the first half."""
    cascades = (
        two_stage("low", {2: 100_000}, {2: 300_000}),
        two_stage("high", {1: 100_000}, {1: 100_000}),
    )
    problem = CascadeProblem(name="demo", cluster=even_cluster(), cascades=cascades)
    placed = [
        (0, 0, (0, 1), 0, 100_000),
        (0, 1, (0, 1), 100_000, 400_000),
        (1, 0, (2,), 0, 100_000),
        (1, 1, (2,), 100_000, 200_000),
    ]
    placements = tuple(
        Placement(cascade=c, task=t, devices=d, start_us=a, end_us=b) for c, t, d, a, b in placed
    )
    return problem, CascadePlan(problem_name="demo", placements=placements)


def test_a_small_chart_is_exact(case):
    assert render_gantt(*case, width=49).splitlines() == [
        "demo: 2 cascades, 4 tasks on 4 devices, makespan 0.400 s, idle 37.5 %",
        "",
        "n0 0-1 ▕0▒▒▒▒▒▒▒▒▒0█████████████████████████████▏",
        "  n0 2 ▕1▒▒▒▒▒▒▒▒▒1█████████····················▏",
        "  n0 3 ▕········································▏",
        "        0                0.200 s         0.400 s",
        "",
        "▒ encode  █ denoise  · idle  number = cascade",
        "0 low  1 high",
    ]


def test_colour_changes_nothing_but_the_colour(case):
    plain, coloured = render_gantt(*case, width=60), render_gantt(*case, width=60, colour=True)
    assert "\x1b" not in plain
    assert coloured != plain
    assert COLOUR.sub("", coloured) == plain


@given(problems_with_plans())
def test_every_device_has_a_line_and_no_line_is_too_wide(case):
    problem, plan = case
    chart = render_gantt(problem, plan, width=90)
    found = rows(chart)
    assert {len(cells) for cells in found.values()} == {len(next(iter(found.values())))}
    assert all(len(ROW.match(line)[0]) <= 90 for line in chart.splitlines() if ROW.match(line))
    shown = [d for label in found for d in devices(label)]
    assert sorted(shown) == list(range(problem.cluster.device_count))


def devices(label: str) -> list[int]:
    """Device numbers of a label such as ``n0 0-3,6``."""
    out: list[int] = []
    for part in label.split(" ")[-1].split(","):
        first, _, last = part.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


@pytest.mark.parametrize(("nodes", "lines"), [(1, 1), (8, 8), (9, 9), (64, 64), (128, 64)])
def test_charts_fold_to_at_most_64_lines(nodes, lines):
    cluster = even_cluster(nodes=nodes, devices=8)
    cascades = tuple(two_stage(f"m{i}", {1: 1000 + i}, {8: 9000}) for i in range(nodes))
    problem = CascadeProblem(name="big", cluster=cluster, cascades=cascades)
    placements = []
    for i in range(nodes):
        group = tuple(range(8 * i, 8 * i + 8))
        encode = Placement(cascade=i, task=0, devices=group[:1], start_us=0, end_us=1000 + i)
        end_us = encode.end_us + 9000
        denoise = replace(encode, task=1, devices=group, start_us=encode.end_us, end_us=end_us)
        placements += [encode, denoise]
    plan = CascadePlan(problem_name="big", placements=tuple(placements))
    # One node: the device that encodes differs from the seven that do not.
    expected = 2 * nodes if 2 * nodes <= 64 else lines
    assert len(rows(render_gantt(problem, plan, width=100))) == expected


def test_a_folded_line_shows_the_share_of_devices_that_run():
    denoise = simple_task("denoise", {4: 100, 8: 100})
    cascades = tuple(Cascade(id=f"m{i}", tasks=(denoise,)) for i in range(3))
    cluster = even_cluster(nodes=80, devices=8)
    problem = CascadeProblem(name="big", cluster=cluster, cascades=cascades)
    placed = (
        Placement(cascade=0, task=0, devices=tuple(range(8)), start_us=0, end_us=100),
        Placement(cascade=1, task=0, devices=tuple(range(8, 16)), start_us=0, end_us=100),
        Placement(cascade=2, task=0, devices=(0, 1, 2, 3), start_us=100, end_us=200),
    )
    chart = render_gantt(problem, CascadePlan(problem_name="big", placements=placed), width=99)
    cells = rows(chart)["n0-n1 (16)"]
    half = len(cells) // 2
    assert set(cells[:half]) == {"█"}  # all 16 devices
    assert set(cells[half + 1 :]) == {"▂"}  # 4 of 16, a quarter of the height
    assert set(rows(chart)["n2-n3 (16)"]) == {" "}


def test_a_narrow_terminal_is_refused_with_the_width_it_takes(case):
    with pytest.raises(InputError, match="at least 19 columns, not 18"):
        render_gantt(*case, width=18)
    assert render_gantt(*case, width=19)


def test_a_cell_shows_what_fills_most_of_it(case):
    problem, plan = case
    # 300 ms over 10 cells: the last cell is idle for two thirds.
    late = [replace(p, end_us=280_000) if p.end_us == 400_000 else p for p in plan.placements]
    late.append(Placement(cascade=1, task=1, devices=(3,), start_us=200_000, end_us=300_000))
    short = CascadePlan(problem_name="demo", placements=tuple(late))
    assert rows(render_gantt(problem, short, width=19))["n0 0-1"] == "0▒▒0█████·"


def test_a_plan_without_tasks_is_all_idle(case):
    problem, _ = case
    chart = render_gantt(problem, CascadePlan(problem_name="demo", placements=()), width=40)
    assert set("".join(rows(chart).values())) == {"·"}
    assert "makespan 0.000 ms, idle 0.0 %" in chart


def test_many_cascades_have_a_short_legend():
    problem = next(found for found in map(many_cascades, range(100)) if len(found.cascades) > 8)
    chart = render_gantt(problem, seeded_plan(problem, 1), width=100)
    assert f"and {len(problem.cascades) - 8} more" in chart.splitlines()[-1]


def many_cascades(seed):
    return random_problem(seed, max_cascades=20)
