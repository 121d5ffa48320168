"""Commands that start the ranks of a pipeline plan on its nodes, in its order; knows no torch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.executor.launch import ProgressCallback, forks, launch
from arachne_opt.executor.pipeline.job import PipelineJob, job_to_json
from arachne_opt.executor.pipeline.report import PipelineReport, report_from_json

LAUNCHERS = ("torchrun", "srun")
DEFAULT_PORT = 29500

_WORKER = ("-m", "arachne_opt.executor.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRanks:
    """The ranks of one node.

    Args:
        name: of the node in the cluster, or the host that stands for it.
    """

    name: str
    device_type: str
    ranks: range

    def __str__(self) -> str:
        """For people."""
        first, last = self.ranks[0], self.ranks[-1]
        ranks = f"rank {first}" if first == last else f"ranks {first}-{last}"
        return f"{self.name}: {ranks} on {len(self.ranks)} x {self.device_type}"


def hosts_of(job: PipelineJob, names: Sequence[str] = ()) -> tuple[HostRanks, ...]:
    """The nodes of a plan in the order of their ranks.

    Args:
        job: with a node for every replica.
        names: hosts that stand for the nodes, in that order; by default the nodes' own names.

    Raises:
        InputError: another number of names than nodes.
    """
    nodes = tuple(job.layout.nodes())
    if names and len(names) != len(nodes):
        what = f"{len(names)} hosts for the {len(nodes)} nodes of the plan"
        raise InputError(what, where="--hosts", hint=", ".join(_own_names(job)))
    named = tuple(names) or tuple(_own_names(job))
    return tuple(
        HostRanks(name=name, device_type=kind, ranks=ranks)
        for name, (kind, _, ranks) in zip(named, nodes, strict=True)
    )


def compose(
    job: PipelineJob,
    job_path: Path,
    report_path: Path,
    *,
    hosts: tuple[HostRanks, ...],
    launcher: str = "torchrun",
    rendezvous: str = "",
    max_restarts: int = 0,
) -> list[str]:
    """Lines of a shell script; those with torchrun are each for one node.

    Args:
        job: what is run.
        job_path: job file that every rank can read.
        report_path: where rank 0 writes the report.
        hosts: see ``hosts_of``.
        launcher: ``torchrun`` or ``srun``.
        rendezvous: ``host:port`` where the ranks meet; the first node unless given.
        max_restarts: so often all ranks of a single node are started again.

    Raises:
        InputError: restarts over several nodes, whose ranks keep the plan's order only once.
    """
    if launcher not in LAUNCHERS:
        raise InputError(f"unknown launcher {launcher!r}", hint=" or ".join(LAUNCHERS))
    meeting, _, port = (rendezvous or hosts[0].name).partition(":")
    place = meeting, port or str(DEFAULT_PORT)
    files = (str(job_path), str(report_path))
    if max_restarts and (len(hosts) > 1 or launcher == "srun"):
        what = "torchrun restarts the ranks of one machine only"
        raise InputError(what, hint="--resume in the job script, which starts all ranks again")
    if launcher == "srun":
        return list(_srun(hosts, place, files))
    return list(_torchrun(hosts, place, files, max_restarts))


def run_local(
    job: PipelineJob,
    *,
    on_progress: ProgressCallback | None = None,
    folder: Path | None = None,
    max_restarts: int = 0,
) -> PipelineReport:
    """The report of a job run by processes on this machine.

    Raises:
        InputError: the devices, the data or the model are not those of the plan.
        RunError: a rank failed; names the rank and its last words.
    """
    value = launch(
        job_to_json(job),
        job.world_size,
        on_progress=on_progress,
        folder=folder,
        max_restarts=max_restarts,
        forked=job.emulated or forks(job.device, max_restarts),
    )
    return report_from_json(value)


def _own_names(job: PipelineJob) -> Iterator[str]:
    nodes = job.problem.nodes_of_type
    for kind, number, _ in job.layout.nodes():
        assert number is not None  # the plan was placed
        yield nodes[kind][number].name


def _torchrun(
    hosts: tuple[HostRanks, ...],
    place: tuple[str, str],
    files: tuple[str, str],
    max_restarts: int,
) -> Iterator[str]:
    common = [sys.executable, "-m", "torch.distributed.run"]
    if len(hosts) == 1:
        command = [*common, f"--max-restarts={max_restarts}"]
        command.append(f"--nproc-per-node={len(hosts[0].ranks)}")
        command += ["--standalone", "--local-addr=127.0.0.1"]
        yield f"# {hosts[0]}"
        # Restarted ranks would else read what the ranks before them left in the store.
        prefix = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 " if max_restarts else ""
        yield prefix + shlex.join([*command, *_WORKER, *files])
        return
    for number, host in enumerate(hosts):
        # A static meeting numbers ranks by --node-rank, which keeps the order of the plan.
        command = [*common, "--max-restarts=0", f"--nnodes={len(hosts)}", f"--node-rank={number}"]
        command.append(f"--nproc-per-node={len(host.ranks)}")
        command += [f"--master-addr={place[0]}", f"--master-port={place[1]}"]
        yield f"# on {host}"
        yield shlex.join([*command, *_WORKER, *files])


def _srun(
    hosts: tuple[HostRanks, ...], place: tuple[str, str], files: tuple[str, str]
) -> Iterator[str]:
    order = Path(files[0]).with_suffix(".hosts")
    for host in hosts:
        yield f"# {host}"
    # A line per rank: the only order of tasks that srun takes for nodes of unlike sizes.
    names = " ".join(shlex.quote(host.name) for host in hosts for _ in host.ranks)
    yield f"printf '%s\\n' {names} > {shlex.quote(str(order))}"
    count = sum(len(host.ranks) for host in hosts)
    variables = f"MASTER_ADDR={place[0]} MASTER_PORT={place[1]} SLURM_HOSTFILE={order}"
    command = ["srun", f"--ntasks={count}", "--distribution=arbitrary", "--export=ALL"]
    yield f"{variables} {shlex.join([*command, sys.executable, *_WORKER, *files])}"
