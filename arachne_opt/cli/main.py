"""Entry point: runs a command and turns every error into a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from arachne_opt import __version__
from arachne_opt.cli.lazy import LazyGroup
from arachne_opt.errors import INTERRUPTED, ArachneError
from arachne_opt.settings_files import read_settings, refuse_unknown_tables

UNEXPECTED = 1

TABLE = {
    "cluster": ("arachne_opt.cli.cluster:cluster", "Read and check descriptions of clusters."),
    "workload": ("arachne_opt.cli.workload:workload", "Read clips and group them."),
    "models": ("arachne_opt.cli.models:models", "List models and read their configurations."),
    "profile": ("arachne_opt.cli.profile:profile", "Measure tasks on the devices at hand."),
    "cost": ("arachne_opt.cli.cost:cost", "Learn costs from measurements; report errors."),
    "solve": ("arachne_opt.cli.solve:solve", "Plan iterations, with a proven gap."),
    "replan": ("arachne_opt.cli.replan:replan", "Plan again for a cluster that has changed."),
    "plans": ("arachne_opt.cli.plans:plans", "List, show, compare and keep plans."),
    "clusters": ("arachne_opt.cli.clusters:clusters", "Compare clusters that plans are for."),
    "runs": ("arachne_opt.cli.runs:runs", "List and show replays."),
    "simulate": ("arachne_opt.cli.simulate:simulate", "Replay a plan as events; draw it."),
    "report": ("arachne_opt.cli.report:report", "Draw a plan or a run as one page."),
    "bench": ("arachne_opt.cli.bench:bench", "Compare with peers on public instances."),
    "learn": ("arachne_opt.cli.learn:learn", "Train the policies that searches begin with."),
    "train": ("arachne_opt.cli.train:train", "Replay plans with torch and train a model."),
    "demo": ("arachne_opt.cli.demo:demo", "Run the whole road on this machine."),
    "db": ("arachne_opt.cli.database:database", "Look after the plan database."),
    "init": ("arachne_opt.cli.init:init", "Write a commented arachne.toml for this machine."),
    "doctor": ("arachne_opt.cli.doctor:doctor", "Say what works here and what is missing."),
    "config": ("arachne_opt.cli.config:config", "Show settings and where they come from."),
    "completion": ("arachne_opt.cli.completion:completion", "Complete commands in a shell."),
}


@click.group(
    cls=LazyGroup,
    table=TABLE,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "ARACHNE"},
    epilog="Exit codes: 0 done, 2 usage, 3 infeasible, 4 outside the asked gap, 5 no plan in time, "
    "6 database, 7 missing package, 8 run failed, 130 interrupted.",
)
@click.version_option(__version__, prog_name="arachne")
def cli() -> None:
    """Plan a training iteration as an integer program, prove it, keep it, replay it."""


def run(args: Sequence[str]) -> int:
    """Runs a command line and returns its exit code; messages go to stderr."""
    try:
        settings = read_settings()
        refuse_unknown_tables(settings, TABLE)
        code = cli.main(args=list(args), prog_name="arachne", standalone_mode=False, obj=settings)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ArachneError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _unexpected(error)
    return code if isinstance(code, int) else 0


def main() -> None:
    """The console script ``arachne``."""
    sys.exit(run(sys.argv[1:]))


def _unexpected(error: Exception) -> int:
    if os.environ.get("ARACHNE_DEBUG"):
        raise error
    what = f"{type(error).__name__}: {error}"
    click.echo(f"unexpected error: {what}; set ARACHNE_DEBUG=1 for the traceback", err=True)
    return UNEXPECTED
