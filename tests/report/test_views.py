"""What a page shows is what the plan says: times, devices, memory, links, comparisons."""

import json
import math
from itertools import pairwise

import pytest

from arachne_opt.cascade.simulate import simulate
from arachne_opt.pipeline.facts import Facts
from arachne_opt.report.cascade_view import cascade_view
from arachne_opt.report.document import report_document
from arachne_opt.report.pipeline_timeline import (
    COMPUTE,
    devices_of_replicas,
    planned_timeline,
    simulated,
)
from arachne_opt.report.pipeline_view import pipeline_view
from arachne_opt.report.subject import Rival, timelines_of
from tests.report.subjects import (
    S,
    pipeline_subject,
    random_subject,
    two_by_four,
    with_run,
)


def devices(rows):
    return [row for a, n in zip(rows[::2], rows[1::2], strict=True) for row in range(a, a + n)]


@pytest.mark.parametrize("seed", range(8))
def test_a_cascade_view_has_every_task_once_with_its_devices_and_times(seed):
    subject = random_subject(seed)
    view = cascade_view(subject)
    tasks = view["tasks"]
    shown = {
        (tasks["owner"][i], view["kinds"][tasks["kind"][i]]): (
            tasks["start"][i],
            tasks["end"][i],
            devices(tasks["rows"][i]),
        )
        for i in range(len(tasks["start"]))
    }
    planned = {
        (p.cascade, subject.problem.cascades[p.cascade].tasks[p.task].name): (
            p.start_us,
            p.end_us,
            sorted(p.devices),
        )
        for p in subject.plan.placements
    }
    assert shown == planned
    assert len({len(column) for column in tasks.values()}) == 1
    assert view["rows"]["device"] == list(range(subject.problem.cluster.device_count))
    json.dumps(view, allow_nan=False)


@pytest.mark.parametrize("seed", range(8))
def test_peaks_of_memory_are_those_of_the_simulator(seed):
    subject = random_subject(seed)
    view = cascade_view(subject)
    peaks = list(view["resident"])
    for series in view["memory"]:
        for device in series["devices"]:
            peaks[device] = max(peaks[device], *series["bytes"])
    assert peaks == list(simulate(subject.problem, subject.plan).peak_bytes)


def test_the_headline_has_makespan_bound_gap_idle_and_the_best_rule():
    rivals = (
        Rival(name="a", title="one degree", time_us=30 * S),
        Rival(name="b", title="better rule", time_us=15 * S),
        Rival(name="c", title="no rule", time_us=None, note="finds none"),
    )
    subject = two_by_four()
    view = cascade_view(type(subject)(**{k: getattr(subject, k) for k in FIELDS}, rivals=rivals))
    cards = {card["label"]: card for card in view["headline"]["cards"]}
    makespan = subject.plan.makespan_us
    assert cards["Makespan"]["value"] == f"{makespan / S:.3f} s"
    assert cards["Gap"]["value"] == "11.1 %"
    idle = simulate(subject.problem, subject.plan).idle_share
    assert cards["Idle"]["value"] == f"{100 * idle:.1f} %"
    assert cards["Speed-up"]["value"] == f"{15 * S / makespan:.2f}×"
    note = f"over better rule, the best of 2 rules; {30 * S / makespan:.2f}× over one degree"
    assert cards["Speed-up"]["note"] == note
    bars = view["headline"]["bars"]
    assert [bar["title"] for bar in bars] == [
        "proven bound",
        "this plan",
        "better rule",
        "one degree",
        "no rule",
    ]
    assert bars[-1]["us"] is None
    assert bars[-1]["note"] == "finds none"


FIELDS = ("record", "problem", "plan", "measured")


def test_the_story_names_what_holds_the_end_and_what_crosses_nodes():
    view = cascade_view(two_by_four())
    story = " ".join(view["story"])
    assert "encode 2 (2 s) → denoise 2 (7 s) → denoise 3" in story
    assert "1 group of 8 span nodes" in story
    assert "3 of 8 tasks are critical" in story
    (link,) = [row for row in view["cluster"]["links"] if row["kind"] == "groups"]
    assert (link["a"], link["b"], link["count"]) == (0, 1, 1)


def test_idle_time_is_told_by_its_place_and_adds_up():
    view = cascade_view(two_by_four())
    text = next(line for line in view["story"] if line.startswith("Idle"))
    parts = [float(word) for word in text.replace(",", " ").split() if word[0].isdigit()]
    idle = next(c for c in view["headline"]["cards"] if c["label"] == "Idle")["value"]
    assert sum(parts) == pytest.approx(float(idle.split()[0]), abs=0.2)


def test_a_run_is_shown_by_rank_beside_its_plan():
    subject = with_run(two_by_four(), 1.5)
    view = cascade_view(subject)
    spans = view["measured"]["spans"]
    assert len(spans["task"]) == sum(len(p.devices) for p in subject.plan.placements)
    for task, row, start, end in zip(*(spans[k] for k in SPAN), strict=True):
        assert row in devices(view["tasks"]["rows"][task])
        assert start == round(1.5 * view["tasks"]["start"][task])
        assert end == round(1.5 * view["tasks"]["end"][task])
    cards = {card["label"]: card for card in view["headline"]["cards"]}
    assert cards["Measured"]["note"] == "1.500 × planned"
    assert [line.name for line in timelines_of(subject)] == ["planned", "measured"]


SPAN = ("task", "row", "start", "end")


def test_two_plans_are_compared_in_figures():
    a, b = two_by_four(), random_subject(3)
    found = report_document(a, b, ["something changed"])
    assert len(found["views"]) == 2
    rows = {row[0]: row for row in found["comparison"]["rows"]}
    better = a.plan.makespan_us < b.plan.makespan_us
    assert rows["makespan"][4] == ("better" if better else "worse")
    assert rows["groups over nodes"][1] == "1"
    assert found["comparison"]["changes"] == ["something changed"]
    assert report_document(a)["comparison"] is None


# ---------------------------------------------------------------------------------- pipelines


def test_a_pipeline_timeline_has_every_operation_on_every_device_of_its_replica():
    subject = pipeline_subject()
    seats = devices_of_replicas(subject.problem, subject.plan)
    used = [d for group in seats.values() for d in group]
    assert len(set(used)) == len(used) == sum(subject.plan.devices_used().values())
    done = simulated(subject.problem, subject.plan)
    line = planned_timeline(subject.problem, subject.plan, done)
    work = [s for s in line.compute_spans() if s.category != "update"]
    assert len(work) == sum(len(seats[t.pipeline, t.stage, t.replica]) for t in done.tasks)
    assert abs(line.end_us - 1e6 * done.iteration_s) <= 1
    by_track = {}
    for span in line.spans:
        by_track.setdefault(span.track, []).append((span.start_us, span.end_us))
    for index, spans in by_track.items():
        spans.sort()
        # Ends are rounded to microseconds one by one.
        assert all(a[1] <= b[0] + 1 for a, b in pairwise(spans)), line.tracks[index]
    streams = {line.tracks[s.track].stream for s in line.spans}
    assert {COMPUTE, "send"} <= streams


def test_arrows_of_a_pipeline_go_from_ends_to_starts():
    subject = pipeline_subject()
    line = planned_timeline(subject.problem, subject.plan)
    assert line.arrows
    for arrow in line.arrows:
        assert line.spans[arrow.source].end_us <= line.spans[arrow.target].start_us + 1


def test_a_pipeline_view_keeps_all_work_and_the_memory_of_micro_batches_in_flight():
    subject = pipeline_subject()
    view = pipeline_view(subject)
    tasks = view["tasks"]
    done = simulated(subject.problem, subject.plan)
    shown = sum(
        (end - start) * sum(rows[1::2])
        for start, end, rows in zip(tasks["start"], tasks["end"], tasks["rows"], strict=True)
    )
    line = planned_timeline(subject.problem, subject.plan, done)
    assert shown == sum(s.end_us - s.start_us for s in line.compute_spans())
    facts = Facts(subject.problem)
    seats = devices_of_replicas(subject.problem, subject.plan)
    row_of = {d: row for row, d in enumerate(view["rows"]["device"])}
    for (p, i, r), group in seats.items():
        stage = subject.plan.pipelines[p].stages[i]
        most = facts.memory_bytes(
            stage,
            stage.replicas[r].kind,
            subject.plan.pipelines[p].batch // len(stage.replicas),
            len(subject.plan.pipelines[p].stages) - i,
            zero1=False,
        )
        series = next(s for s in view["memory"] if row_of[group[0]] in s["devices"])
        assert max(series["bytes"]) == math.ceil(most)
    json.dumps(view, allow_nan=False)


def test_stages_say_their_load_and_what_a_row_more_would_mean():
    view = pipeline_view(pipeline_subject())
    texts = [" ".join(entry["lines"]) for entry in view["why"]]
    assert len(texts) == 3
    assert sum("this is the bottleneck" in text for text in texts) == 1
    assert all("in flight it needs" in text for text in texts)
    assert "Row 2 given to stage 0" in texts[1]
    assert "Row 3 given to stage 2" in texts[1]
    for entry in view["why"]:
        assert sum(1 for row in entry["options"] if row[5]) == 1
