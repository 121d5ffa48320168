"""What the benchmarks share: generated problems, their costs, and the words that head a table."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Callable
from pathlib import Path

from arachne_opt import __version__
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.verify import verify
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.base import CostModel
from arachne_opt.costs.build import build_problem
from arachne_opt.costs.table import TableCostModel
from arachne_opt.errors import ArachneError
from arachne_opt.importers.durations import read_durations
from arachne_opt.models import model_spec
from arachne_opt.solvers.base import Limits, Result
from arachne_opt.solvers.registry import cascade_solver
from arachne_opt.workload import Iteration
from arachne_opt.workload_generator import generate_workload

NODE_DEVICES = 8


def problem_options(parser: argparse.ArgumentParser) -> None:
    """Options of generated problems and of the search."""
    parser.add_argument("--device-type", default="H100-80")
    parser.add_argument("--model", default="hunyuanvideo-13b", help="of the analytic costs")
    parser.add_argument("--durations", type=Path, help="published durations in place of these")
    parser.add_argument("--gpus-per-batch", type=int, default=4, help="GPUs over micro-batches")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="one worker, and limits in units of work: figures that no other load changes",
    )


def run(main: Callable[[], None]) -> None:
    """Runs a script; an error that a user can meet is one line and an exit code."""
    try:
        main()
    except ArachneError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def limits_of(options: argparse.Namespace) -> Limits:
    """The limits of every solve."""
    return Limits(
        time_limit_s=options.time_limit,
        seed=options.seed,
        workers=options.workers,
        deterministic=options.deterministic,
    )


def conditions(options: argparse.Namespace) -> str:
    """How generated problems and the figures about them were made."""
    costs = options.durations.name if options.durations else f"analytic, {options.model}"
    return (
        f"costs: {costs}; {options.device_type} on nodes of {NODE_DEVICES}; a micro-batch for "
        f"every {options.gpus_per_batch} GPUs; {machine(options)}"
    )


def machine(options: argparse.Namespace) -> str:
    """Where and when figures were made, and with how many workers."""
    workers = "deterministic" if options.deterministic else f"{options.workers} workers"
    return (
        f"{workers}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, seed {options.seed}, "
        f"{datetime.date.today()}, arachne-opt {__version__}"
    )


def generated_problems(
    mixture: str, devices: int, iterations: int, options: argparse.Namespace
) -> tuple[CascadeProblem, ...]:
    """Iterations of a mixture on so many devices, all micro-batches full."""
    cluster = read_cluster(_shorthand(options.device_type, devices))
    costs = costs_for(cluster, options)
    return tuple(
        build_problem(it, cluster, costs, name=f"{mixture}-{devices}-{it.name}")
        for it in generated_iterations(mixture, devices, iterations, options)
    )


def generated_iterations(
    mixture: str, devices: int, iterations: int, options: argparse.Namespace
) -> tuple[Iteration, ...]:
    """Iterations of a mixture for so many devices."""
    workload = generate_workload(
        mixture,
        iterations=iterations,
        cascades=max(1, devices // options.gpus_per_batch),
        seed=options.seed,
    )
    return workload.iterations


def costs_for(cluster: Cluster, options: argparse.Namespace) -> CostModel:
    """Published durations where they are asked for, else analytic costs."""
    model = model_spec(options.model)
    if options.durations is None:
        return analytic_for_cluster(model, cluster)
    rows = read_durations(options.durations, model=model.name, device_type=options.device_type)
    return TableCostModel.from_measurements(model, rows)


def checked(problem: CascadeProblem, solver: str, limits: Limits) -> Result:
    """The result of a solver; its plan, where there is one, passes checker and simulator."""
    result = cascade_solver(solver).solve(problem, limits)
    if result.plan is not None and result.objective_us is not None:
        verify(problem, result.plan, result.objective_us)
    return result


def _shorthand(device_type: str, devices: int) -> str:
    nodes, rest = divmod(devices, NODE_DEVICES)
    whole = [f"{device_type}:{NODE_DEVICES}x{nodes}"] if nodes else []
    return ", ".join([*whole, *([f"{device_type}:{rest}"] if rest else [])])
