"""The Chrome trace is well formed and says what the plan says."""

import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings

from arachne_opt.cascade.plan import Placement
from arachne_opt.report.trace import chrome_trace
from tests.strategies import problems_with_plans, random_problem, seeded_plan


def by_phase(trace):
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        found[event["ph"]].append(event)
    return found


@given(problems_with_plans())
@settings(max_examples=50)
def test_every_task_is_a_slice_on_each_of_its_devices(case):
    problem, plan = case
    slices = by_phase(chrome_trace(problem, plan))["X"]
    shown = Counter((s["args"]["cascade"], s["cat"], s["tid"], s["ts"], s["dur"]) for s in slices)
    planned = Counter(
        (p.cascade, problem.cascades[p.cascade].tasks[p.task].name, d, p.start_us, length_us(p))
        for p in plan.placements
        for d in p.devices
    )
    assert shown == planned
    for s in slices:
        assert s["pid"] == problem.cluster.devices[s["tid"]].node
        assert s["args"]["degree"] == len(s["args"]["devices"])
        assert s["args"]["penalty"] == problem.cluster.penalty_ppm(s["args"]["devices"]) / 1e6
        assert s["args"]["label"] == problem.cascades[s["args"]["cascade"]].label


def length_us(p: Placement) -> int:
    return p.end_us - p.start_us


@given(problems_with_plans())
@settings(max_examples=50)
def test_the_structure_is_that_of_the_trace_event_format(case):
    problem, plan = case
    trace = json.loads(json.dumps(chrome_trace(problem, plan, plan.placements), allow_nan=False))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    found = by_phase(trace)
    assert set(found) <= {"M", "X", "s", "f"}
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["name"], str)
    for event in found["X"]:
        assert event["dur"] >= 0 <= event["ts"]
    # Each flow begins inside a slice of its track and ends where another one begins.
    tracks = defaultdict(list)
    for event in found["X"]:
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    begins = {event["id"]: event for event in found["s"]}
    assert len(begins) == len(found["s"]) == len(found["f"])
    for end in found["f"]:
        begin = begins[end["id"]]
        assert begin["ts"] <= end["ts"]
        spans = tracks[begin["pid"], begin["tid"]]
        assert any(a <= begin["ts"] < b for a, b in spans)
        assert any(a == end["ts"] for a, _ in tracks[end["pid"], end["tid"]])


@given(problems_with_plans())
@settings(max_examples=30)
def test_slices_of_a_track_do_not_overlap(case):
    problem, plan = case
    tracks = defaultdict(list)
    for s in by_phase(chrome_trace(problem, plan))["X"]:
        tracks[s["pid"], s["tid"]].append((s["ts"], s["ts"] + s["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


@pytest.fixture
def problem():
    return random_problem(3)


def names(trace, kind):
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == kind
    }


def test_nodes_are_processes_and_devices_are_tracks(problem):
    trace = chrome_trace(problem, seeded_plan(problem, 1))
    processes, tracks = names(trace, "process_name"), names(trace, "thread_name")
    assert len(processes) == len(problem.cluster.nodes)
    assert processes[0, 0].startswith("planned n0 (")
    assert len(tracks) == problem.cluster.device_count
    last = problem.cluster.devices[-1]
    assert tracks[last.node, last.index] == f"device {last.index}"


def test_measured_times_are_processes_of_their_own(problem):
    plan = seeded_plan(problem, 1)
    measured = [
        Placement(
            cascade=p.cascade,
            task=p.task,
            devices=(d,),
            start_us=2 * p.start_us + d,
            end_us=2 * p.end_us + d,
        )
        for p in plan.placements
        for d in p.devices
    ]
    trace = chrome_trace(problem, plan, measured)
    nodes = len(problem.cluster.nodes)
    processes = names(trace, "process_name")
    assert [name.split()[0] for name in processes.values()] == (
        ["planned"] * nodes + ["measured"] * nodes
    )
    slices = [s for s in by_phase(trace)["X"] if s["pid"] >= nodes]
    assert len(slices) == len(measured)
    # A rank's slice still tells the whole group.
    wide = max(plan.placements, key=lambda p: p.degree)
    assert wide.degree > 1
    shown = [
        s for s in slices if (s["args"]["cascade"], s["tid"]) == (wide.cascade, wide.devices[0])
    ]
    assert wide.degree in {s["args"]["degree"] for s in shown}
    assert trace["otherData"]["makespan_us"] == plan.makespan_us
