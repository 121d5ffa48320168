"""The Chrome trace is well formed and says what the plan says."""

import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings

from arachne_opt.cascade.plan import Placement
from arachne_opt.report.timeline import COMPUTE, Arrow, Span, Timeline, Track
from arachne_opt.report.trace import chrome_trace, trace_of
from tests.report.subjects import PATIENT
from tests.strategies import problems_with_plans, random_problem, seeded_plan

STREAMS = (COMPUTE, "send")


def by_phase(trace):
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def tasks_of(trace):
    """The slices that are no hand-offs."""
    return [s for s in by_phase(trace)["X"] if s["cat"] != "hand-off"]


@given(problems_with_plans())
@settings(PATIENT, max_examples=50)
def test_every_task_is_a_slice_on_each_of_its_devices(case):
    problem, plan = case
    slices = tasks_of(chrome_trace(problem, plan))
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
@settings(PATIENT, max_examples=50)
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
@settings(PATIENT, max_examples=30)
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
    compute = {key: name for key, name in tracks.items() if "hand-off" not in name}
    assert len(compute) == problem.cluster.device_count
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
    slices = [s for s in tasks_of(trace) if s["pid"] >= nodes]
    assert len(slices) == len(measured)
    # A rank's slice still tells the whole group.
    wide = max(plan.placements, key=lambda p: p.degree)
    assert wide.degree > 1
    shown = [
        s for s in slices if (s["args"]["cascade"], s["tid"]) == (wide.cascade, wide.devices[0])
    ]
    assert wide.degree in {s["args"]["degree"] for s in shown}
    assert trace["otherData"]["makespan_us"] == plan.makespan_us


def test_a_node_measured_stands_beside_the_same_node_planned(problem):
    plan = seeded_plan(problem, 1)
    trace = chrome_trace(problem, plan, plan.placements)
    order = {
        event["args"]["sort_index"]: event["pid"]
        for event in trace["traceEvents"]
        if event["name"] == "process_sort_index"
    }
    titles = names(trace, "process_name")
    shown = [titles[order[at], 0] for at in sorted(order)]
    assert len(shown) == 2 * len(problem.cluster.nodes)
    for planned, measured in zip(shown[::2], shown[1::2], strict=True):
        assert measured == planned.replace("planned", "measured")


def test_handoffs_are_on_streams_of_their_own_and_take_the_time_that_they_cost():
    problem = next(
        p for p in map(random_problem, range(40)) if any(t.input_bytes for _, _, t in p.tasks())
    )
    plan = next(
        plan
        for plan in (seeded_plan(problem, seed) for seed in range(20))
        if any(s["cat"] == "hand-off" for s in by_phase(chrome_trace(problem, plan))["X"])
    )
    trace = chrome_trace(problem, plan)
    tracks = names(trace, "thread_name")
    placed = {(p.cascade, p.task): p for p in plan.placements}
    costs = {
        (
            c,
            problem.cluster.handoff_us(
                task.input_bytes, placed[c, p].devices, placed[c, t].devices
            ),
        )
        for c, t, task in problem.tasks()
        for p in task.predecessors
    }
    moves = [s for s in by_phase(trace)["X"] if s["cat"] == "hand-off"]
    for move in moves:
        assert "hand-off" in tracks[move["pid"], move["tid"]]
        assert (move["args"]["cascade"], move["dur"]) in costs


def test_timelines_of_any_runtime_become_processes_and_streams():
    tracks = tuple(Track(process="host", device=d, stream=s) for d in (0, 1) for s in STREAMS)
    forward = Span(track=0, name="forward 3", category="forward", start_us=5, end_us=9)
    send = Span(track=1, name="send 3", category="send", start_us=9, end_us=10, args={"to": 1})
    arrows = (Arrow(name="activations", source=0, target=1),)
    lines = [
        Timeline(name=name, tracks=tracks, spans=(forward, send), arrows=arrows)
        for name in ("planned", "measured")
    ]
    trace = trace_of(lines, {"plan": "abc"})
    assert trace["otherData"] == {"plan": "abc"}
    assert names(trace, "process_name") == {(0, 0): "planned host", (1, 0): "measured host"}
    titles = names(trace, "thread_name")
    assert sorted(titles[0, tid] for pid, tid in titles if pid == 0) == [
        "device 0",
        "device 0 send",
        "device 1",
        "device 1 send",
    ]
    found = by_phase(trace)
    assert [(s["pid"], s["ts"], s["dur"]) for s in found["X"]] == [
        (0, 5, 4),
        (0, 9, 1),
        (1, 5, 4),
        (1, 9, 1),
    ]
    assert len({event["id"] for event in found["s"]}) == 2
