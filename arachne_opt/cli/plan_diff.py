"""``arachne plans diff``: what changed from one plan to another."""

from __future__ import annotations

import click

from arachne_opt.cli.options import database_option, format_option
from arachne_opt.cli.output import emit_json
from arachne_opt.errors import InputError
from arachne_opt.records import PlanRecord
from arachne_opt.settings import database_url
from arachne_opt.units import format_seconds


@click.command()
@click.argument("plan_a")
@click.argument("plan_b")
@database_option
@format_option
def diff(plan_a: str, plan_b: str, db_url: str | None, form: str) -> None:
    """Say in words what changed from one plan to another.

    Cascade plans: degrees, devices and starts of tasks, cascades that came or went, nodes.
    Pipeline plans: layers that stages lose to each other, replicas, micro-batches, pipelines.

    Example: arachne plans diff 6b0c88d6 6b0c97aa
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        a, b = store.get_plan(plan_a), store.get_plan(plan_b)
    changes = [*objective_changes(a, b), *plan_changes(a, b)]
    if form == "json":
        emit_json("plan-diff", {"a": a.id, "b": b.id, "kind": a.kind, "changes": changes})
        return
    click.echo(f"from {a.id} ({a.name}) to {b.id} ({b.name}):")
    for line in changes or ["nothing: the plans are the same"]:
        click.echo(f"  {line}")


def objective_changes(a: PlanRecord, b: PlanRecord) -> list[str]:
    """How makespan, bound and prices changed."""
    lines = []
    what = "iteration" if a.kind == "pipeline" else "makespan"
    if a.objective_us != b.objective_us:
        share = 100 * (b.objective_us / a.objective_us - 1)
        times = f"{format_seconds(a.objective_us)} → {format_seconds(b.objective_us)}"
        lines.append(f"{what} {times} ({share:+.1f} %)")
    if a.bound_us != b.bound_us:
        lines.append(f"bound {format_seconds(a.bound_us)} → {format_seconds(b.bound_us)}")
    if a.cost_version != b.cost_version:
        lines.append(f"prices {a.cost_version or 'unnamed'} → {b.cost_version or 'unnamed'}")
    return lines


def plan_changes(a: PlanRecord, b: PlanRecord) -> list[str]:
    """What changed in the plans themselves.

    Raises:
        InputError: they are of different kinds.
    """
    if a.kind != b.kind:
        raise InputError(f"plan {a.id} is a {a.kind} plan, plan {b.id} a {b.kind} plan")
    if a.kind == "cascade":
        from arachne_opt.cascade.plan import plan_from_json
        from arachne_opt.cascade.problem_json import problem_from_json
        from arachne_opt.report.cascade_diff import cascade_changes

        old, new = problem_from_json(a.problem), problem_from_json(b.problem)
        plans = plan_from_json(a.plan, old), plan_from_json(b.plan, new)
        return cascade_changes(old, plans[0], new, plans[1])
    from arachne_opt.cluster_file import cluster_from_dict
    from arachne_opt.pipeline.plan_json import plan_from_json as pipeline_plan_from_json
    from arachne_opt.report.cluster_diff import cluster_changes
    from arachne_opt.report.pipeline_diff import pipeline_changes

    clusters = [cluster_from_dict(r.problem["cluster"], f"plan {r.id}") for r in (a, b)]
    lines = [f"the cluster {text}" for text in cluster_changes(*clusters)]
    return lines + pipeline_changes(*(pipeline_plan_from_json(r.plan) for r in (a, b)))
