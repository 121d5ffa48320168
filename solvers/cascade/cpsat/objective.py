"""The objective of the CP-SAT models."""

from __future__ import annotations

from arachne_opt.solvers.cascade.cpsat.variables import Variables


def minimise_makespan(v: Variables) -> None:
    """Minimise makespan, where makespan >= end(i) for every task."""
    for end in v.ends:
        v.model.add(end <= v.makespan)
    v.model.minimize(v.makespan)
