"""Plans with records around them, for tests of reports: seeded, without a solver or a database."""

from dataclasses import replace

from hypothesis import HealthCheck, settings

from arachne_opt.canonical import digest
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_to_json
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, ReplicaKind
from arachne_opt.pipeline.plan_json import plan_to_json
from arachne_opt.pipeline.problem_json import problem_to_json as pipeline_problem_to_json
from arachne_opt.records import PlanRecord
from arachne_opt.report.cascade_timeline import measured_timeline
from arachne_opt.report.subject import CascadeSubject, Measured, PipelineSubject
from arachne_opt.units import us_from_seconds
from tests.pipeline_builders import plan_of, small_problem, stage
from tests.strategies import even_cluster, random_problem, seeded_plan, two_stage

S = 10**6

# A machine under load may be slow; that is no fault of what is tested.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def record_of(kind, problem, problem_json, plan_json, objective_us, bound_us):
    return PlanRecord(
        kind=kind,
        name=problem.name,
        fingerprint=problem.fingerprint(),
        cluster_fingerprint=digest(problem.cluster.canonical()),
        cluster_name=problem.cluster.name,
        cost_version="test",
        problem=problem_json,
        plan=plan_json,
        status="feasible",
        objective_us=objective_us,
        bound_us=bound_us,
        solver="portfolio",
        seed=3,
        wall_s=1.5,
        time_limit_s=10.0,
        verdict="legal",
        versions={"ortools": "9.15"},
        id="6b0c88d675237945",
        created_at="2026-11-29T12:00:00+00:00",
    )


def cascade_subject(problem: CascadeProblem, plan: CascadePlan, **more) -> CascadeSubject:
    """A subject whose bound is nine tenths of the makespan."""
    makespan_us = plan.makespan_us
    record = record_of(
        "cascade",
        problem,
        problem_to_json(problem),
        plan.to_json(problem),
        makespan_us,
        makespan_us * 9 // 10,
    )
    return CascadeSubject(record=record, problem=problem, plan=plan, **more)


def random_subject(seed: int, **more) -> CascadeSubject:
    """A random problem with a random legal plan."""
    problem = random_problem(seed)
    return cascade_subject(problem, seeded_plan(problem, seed), **more)


def two_by_four() -> CascadeSubject:
    """Four cascades on two nodes of four devices, placed by hand; the last one spans both nodes.

    encode 0 and 1 run beside each other, denoise 0 waits for its hand-off, denoise 3 ends last.
    """
    cascades = tuple(
        two_stage(f"mb{i}", {1: 2 * S, 2: S}, {1: 12 * S, 2: 7 * S, 4: 4 * S, 8: 3 * S})
        for i in range(4)
    )
    problem = CascadeProblem(name="two by four", cluster=even_cluster(2, 4), cascades=cascades)
    cross_us = 3 * S * problem.cluster.penalty_ppm(range(8)) // S
    rows = [
        (0, 0, (0, 1), 0, S),
        (1, 0, (2, 3), 0, S),
        (2, 0, (4,), 0, 2 * S),
        (3, 0, (5, 6), 0, S),
        (0, 1, (0, 1, 2, 3), S, 5 * S),
        (1, 1, (5, 6), S, 8 * S),
        (2, 1, (4, 7), 2 * S, 9 * S),
        (3, 1, tuple(range(8)), 9 * S, 9 * S + cross_us),
    ]
    placements = tuple(
        Placement(cascade=c, task=t, devices=d, start_us=a, end_us=b) for c, t, d, a, b in rows
    )
    return cascade_subject(problem, CascadePlan(problem_name=problem.name, placements=placements))


def with_run(subject: CascadeSubject, share: float = 1.1) -> CascadeSubject:
    """The subject with a run in which every rank took ``share`` times as long."""
    measured = tuple(
        replace(p, devices=(d,), start_us=round(share * p.start_us), end_us=round(share * p.end_us))
        for p in subject.plan.placements
        for d in p.devices
    )
    found = Measured(
        run_id="7c1d99e786348a56",
        timeline=measured_timeline(subject.problem, subject.plan, measured),
        planned_us=subject.plan.makespan_us,
        measured_us=round(share * subject.plan.makespan_us),
    )
    return replace(subject, measured=found)


def big_subject(nodes: int = 128, cascades: int = 1000) -> CascadeSubject:
    """1,024 devices and 2,000 tasks of degrees up to 16, dealt in turn to aligned groups."""
    degrees = (1, 2, 4, 8, 16)
    rows = tuple(
        two_stage(
            f"1x{17 + 4 * (i % 29)}x720x1280 {i}",
            {k: (2 + i % 3) * S // k + S // 4 for k in degrees},
            {k: (20 + i % 17) * S // k + S // 2 for k in degrees},
        )
        for i in range(cascades)
    )
    problem = CascadeProblem(name="big", cluster=even_cluster(nodes, 8), cascades=rows)
    free_us = [0] * problem.cluster.device_count
    placements, at = [], 0
    for c, cascade in enumerate(rows):
        option = cascade.tasks[1].options[c % len(degrees)]
        width = option.degree
        at = -(-at // width) * width % len(free_us)
        group = tuple(range(at, at + width))
        at += width
        for t, task in enumerate(cascade.tasks):
            took = next(o for o in task.options if o.degree == width).duration_us
            ppm = problem.cluster.penalty_ppm(group)
            start_us = max(free_us[d] for d in group)
            end_us = start_us + -(-took * ppm // S)
            placements.append(
                Placement(cascade=c, task=t, devices=group, start_us=start_us, end_us=end_us)
            )
            for d in group:
                free_us[d] = end_us
    return cascade_subject(
        problem, CascadePlan(problem_name=problem.name, placements=tuple(placements))
    )


def pipeline_subject() -> PipelineSubject:
    """Three stages of two types and widths, the middle one on two replicas."""
    problem = small_problem("A100-40=4,V100-16=4", batch=8, seed=4)
    wide = ReplicaKind("A100-40", 2)
    parts = (
        stage(0, 2, "V100-16"),
        stage(2, 4, wide, wide),
        stage(4, 6, "V100-16"),
    )
    plan = place(problem, plan_of(problem, Pipeline(microbatch=2, stages=parts)))
    took_us = us_from_seconds(price_plan(problem, plan).iteration_s)
    record = record_of(
        "pipeline",
        problem,
        pipeline_problem_to_json(problem),
        plan_to_json(plan),
        took_us,
        took_us * 8 // 10,
    )
    return PipelineSubject(record=record, problem=problem, plan=plan)
