"""``arachne doctor``: what works on this machine, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from arachne_opt import __version__
from arachne_opt.cli.options import database_option, format_option
from arachne_opt.cli.output import emit_json, emit_table
from arachne_opt.errors import ArachneError, MissingDependencyError, StoreError
from arachne_opt.settings import data_folder, database_url
from arachne_opt.settings_files import read_settings
from arachne_opt.units import format_bytes

NEEDED = ("ortools", "pulp", "highspy", "numpy", "torch", "sqlalchemy", "alembic", "click")
# Package -> the extra that brings it and what it is for.
EXTRAS = {
    "diffusers": ("video", "real video models"),
    "av": ("decode", "decoding of clips"),
    "psycopg": ("postgres", "a shared plan database"),
    "matplotlib": ("plot", "pictures as files"),
    "pyarrow": ("parquet", "Parquet manifests and latents"),
    "tensorboard": ("tensorboard", "logs for TensorBoard"),
    "distributed": ("cluster", "solving on many machines"),
    "yaml": ("yaml", "configurations of finetrainers and SkyPilot"),
}
# Modules whose distribution has another name.
_DISTRIBUTIONS = {"yaml": "PyYAML"}
_LITTLE_DISK = 1 << 30
# Seconds by which the clocks of this machine and of the database may differ.
_CLOCK_S = 5.0

GOOD, WARN, BAD = "ok", "note", "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Args:
        code: exit code of a failure, 0 for all else.
    """

    state: str
    what: str
    found: str
    hint: str = ""
    code: int = 0


@click.command()
@database_option
@format_option
def doctor(db_url: str | None, form: str) -> int:
    """Say what works here and what is missing.

    Exit 0 when nothing needed fails; else the code of the first failure: 6 for the database, 7 for
    a package or a solver.

    Example: arachne doctor --format json
    """
    findings = list(examine(db_url))
    if form == "json":
        emit_json("doctor", {"findings": [asdict(finding) for finding in findings]})
    else:
        head = ("", "what", "found", "what to try")
        emit_table(head, [(f.state, f.what, f.found, f.hint or None) for f in findings])
    return next((finding.code for finding in findings if finding.code), 0)


def examine(db_url: str | None) -> Iterator[Finding]:
    """Looks at everything, one finding after the other."""
    yield Finding(GOOD, "arachne-opt", f"{__version__}, Python {platform.python_version()}")
    yield _settings()
    for name in NEEDED:
        yield _needed(name)
    yield from (_extra(name, *why) for name, why in EXTRAS.items())
    for solver, problem in (("CP-SAT", _cp_sat), ("HiGHS", _highs), ("CBC", _cbc)):
        yield _solver(solver, problem)
    yield _walks()
    yield from _database(database_url(db_url))
    yield _disk()
    yield from _devices()


def _settings() -> Finding:
    files = [str(file.path) for file in read_settings()]
    return Finding(
        GOOD, "settings", ", ".join(files) or "defaults", "" if files else "arachne init"
    )


def _needed(name: str) -> Finding:
    try:
        return Finding(GOOD, name, version(name))
    except PackageNotFoundError:
        code = MissingDependencyError.exit_code
        return Finding(BAD, name, "not installed", "pip install arachne-opt", code)


def _extra(name: str, extra: str, purpose: str) -> Finding:
    if importlib.util.find_spec(name) is None:
        hint = f"pip install 'arachne-opt[{extra}]' for {purpose}"
        return Finding(WARN, name, "not installed", hint)
    return Finding(GOOD, name, version(_DISTRIBUTIONS.get(name, name)))


def _walks() -> Finding:
    """Whether cascades are searched in C."""
    from arachne_opt.solvers.cascade.walks.native import library

    if library() is None:
        hint = "a C compiler, then pip install --force-reinstall --no-deps arachne-opt"
        return Finding(WARN, "walks", "in Python: cascade plans take longer to find", hint)
    return Finding(GOOD, "walks", "compiled")


def _solver(name: str, solve: Callable[[], float]) -> Finding:
    """Solves max x + y with x + 2 y <= 4 and 3 x + y <= 6 in whole numbers: 2."""
    began = time.perf_counter()
    try:
        answer = solve()
    except Exception as error:  # whatever a solver's library does, the others are looked at too
        what = f"{type(error).__name__}: {error}"
        code = MissingDependencyError.exit_code
        return Finding(BAD, name, what, "pip install --force-reinstall ortools pulp highspy", code)
    spent_ms = 1e3 * (time.perf_counter() - began)
    if round(answer) != 2:
        code = MissingDependencyError.exit_code
        return Finding(BAD, name, f"answers {answer} where 2 is right", "another version", code)
    return Finding(GOOD, name, f"solves a small problem in {spent_ms:.0f} ms")


def _cp_sat() -> float:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    x, y = model.new_int_var(0, 9, "x"), model.new_int_var(0, 9, "y")
    model.add(x + 2 * y <= 4)
    model.add(3 * x + y <= 6)
    model.maximize(x + y)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False
    solver.solve(model)
    return solver.objective_value


def _highs() -> float:
    import pulp

    return _pulp(pulp.HiGHS(msg=False))


def _cbc() -> float:
    import pulp

    return _pulp(pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False))


def _pulp(solver: object) -> float:
    import pulp

    problem = pulp.LpProblem("doctor", pulp.LpMaximize)
    x, y = (problem.add_variable(n, 0, 9, cat=pulp.LpInteger) for n in "xy")
    problem += x + y
    problem += x + 2 * y <= 4
    problem += 3 * x + y <= 6
    problem.solve(solver)
    return float(pulp.value(problem.objective))


def _database(url: str) -> Iterator[Finding]:
    from arachne_opt.db.location import locate
    from arachne_opt.db.store import PlanStore

    began = time.perf_counter()
    try:
        with PlanStore.open(url) as store:
            plans, theirs = store.stats().rows["plans"], store.clock()
    except ArachneError as error:
        yield Finding(BAD, "database", error.what, error.hint or "", StoreError.exit_code)
        return
    spent_ms = 1e3 * (time.perf_counter() - began)
    told = f"{locate(url).label}: {plans} plans, opened in {spent_ms:.0f} ms"
    yield Finding(GOOD, "database", told)
    apart_s = abs((datetime.now(UTC) - theirs).total_seconds())
    if apart_s > _CLOCK_S:
        hint = "a time service on both machines: leases are counted by the database's clock"
        yield Finding(WARN, "clock", f"{apart_s:.0f} s apart from the database's", hint)
    else:
        yield Finding(GOOD, "clock", "agrees with the database's")


def _disk() -> Finding:
    folder = data_folder()
    there = next(f for f in (folder, *folder.parents) if f.exists())
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        hint = "ARACHNE_DB for another place"
        return Finding(BAD, "data folder", f"{folder} cannot be written", hint, 6)
    state, hint = (WARN, "room for plans and checkpoints") if free < _LITTLE_DISK else (GOOD, "")
    return Finding(state, "data folder", f"{folder}, {format_bytes(free)} free", hint)


def _devices() -> Iterator[Finding]:
    import torch
    import torch.distributed as dist

    if not torch.cuda.is_available():
        hint = "a driver and a CUDA build of torch; planning needs no GPU"
        yield Finding(WARN, "GPUs", f"none: torch {torch.__version__} sees no CUDA device", hint)
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        yield Finding(GOOD, f"GPU {index}", f"{card.name}, {format_bytes(card.total_memory)}")
    if torch.cuda.is_available() and dist.is_nccl_available():
        # torch does not type it.
        release = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        nccl = ".".join(map(str, release))
        yield Finding(GOOD, "NCCL", nccl)
    if not dist.is_available() or not dist.is_gloo_available():
        hint = "a build of torch with distributed"
        yield Finding(BAD, "gloo", "not in this torch", hint, MissingDependencyError.exit_code)
    else:
        yield Finding(GOOD, "gloo", "in torch")
    started = Path(sys.executable).is_file()
    hint = "" if started else "a Python that can start a second one: search uses one core"
    yield Finding(GOOD if started else WARN, "interpreter", sys.executable or "embedded", hint)
