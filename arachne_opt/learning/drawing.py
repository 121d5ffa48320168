"""Random problems of a world; equal arguments give equal problems on every machine."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from arachne_opt.cascade.problem import Cascade, CascadeProblem, Option, Task
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem as build_cascades
from arachne_opt.costs.pipeline.analytic import AnalyticRates, analytic_profiles
from arachne_opt.costs.pipeline.build import build_problem as build_pipelines
from arachne_opt.errors import InfeasibleError
from arachne_opt.learning.worlds import World
from arachne_opt.models import model_spec
from arachne_opt.pipeline.architecture import Architecture, ExpertLayers
from arachne_opt.pipeline.memory import MEMORY_RULES
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.workload_generator import generate_workload

_MOST_DEVICES = 96
_LEAST_BYTES = 24  # of device memory per parameter: with less, hardly any plan exists
_MOST_PARAMETERS = 40e9
_MIXTURES = ("mixed", "360p", "720p", "1080p")
_UNEVEN = 0.5  # of the problems have durations that no formula gives


def drawn_pipelines(world: World, number: int) -> PipelineProblem:
    """A model of random shape on a random cluster of two to four device types."""
    rng = random.Random(f"{world.name} pipelines {number}")
    while True:
        cluster, model = _pool(world, rng), _architecture(rng, number)
        memory = sum(n.device_type.memory_bytes * n.device_count for n in cluster.nodes)
        if cluster.device_count <= _MOST_DEVICES and memory >= _LEAST_BYTES * _parameters(model):
            break
    profiles = analytic_profiles(
        model,
        cluster,
        microbatches=rng.choice(((1, 2, 4, 8), (1, 2, 3, 4, 6, 8), (1, 2, 4))),
        rates=AnalyticRates(compute=round(rng.uniform(0.25, 0.55), 3)),
    )
    return build_pipelines(
        profiles,
        cluster,
        rng.choice((64, 128, 256, 512, 1024, 2048)),
        memory=rng.choice(tuple(MEMORY_RULES.values())),
        options=PipelineOptions(allow_excess=True),
        name=f"{world.name} {number}",
    )


def drawn_cascades(world: World, number: int) -> CascadeProblem:
    """An iteration of a random mixture of clips on a random cluster of one device type."""
    rng = random.Random(f"{world.name} cascades {number}")
    while True:
        nodes = rng.choice(world.video_nodes)
        cluster = read_cluster(f"{rng.choice(world.video_types)}:8x{nodes}")
        model = model_spec(rng.choice(world.video_models))
        workload = generate_workload(
            rng.choice(_MIXTURES),
            iterations=1,
            cascades=max(2, round(cluster.device_count / rng.uniform(2, 5))),
            seed=rng.randrange(1 << 30),
        )
        costs = analytic_for_cluster(model, cluster)
        try:
            problem = build_cascades(workload.iterations[0], cluster, costs)
        except InfeasibleError:  # a clip that no group of this cluster holds
            continue
        problem = replace(problem, name=f"{world.name} {number}", resident_bytes=())
        return _uneven(problem, rng) if rng.random() < _UNEVEN else problem


def _pool(world: World, rng: random.Random) -> Cluster:
    kinds = rng.sample(world.types, rng.choice((2, 2, 3, 3, 4)))
    return parse_pool(",".join(f"{kind}={_nodes(world, rng)}" for kind in sorted(kinds)))


def _nodes(world: World, rng: random.Random) -> str:
    """Devices of every node: of one size mostly, of any sizes otherwise."""
    count, size = rng.choice(world.node_counts), rng.choice(world.node_sizes)
    if rng.random() < 1 / 4:
        return "+".join(str(rng.choice(world.node_sizes)) for _ in range(max(2, count)))
    # A single number would be read as the devices of all nodes.
    return "+".join([str(size)] * count) if count > 1 else f"{size}+{size}"


def _architecture(rng: random.Random, number: int) -> Architecture:
    while True:
        heads = rng.choice((12, 16, 20, 24, 32, 40, 48, 56, 64))
        hidden = 64 * heads * (2 if heads >= 32 else rng.choice((1, 2)))
        gated = rng.random() < 0.5
        sparse = rng.random() < 0.15
        model = Architecture(
            name=f"random-{number}",
            family="random",
            layers=rng.randrange(12, 49, 2),
            hidden=hidden,
            heads=heads,
            kv_heads=heads if rng.random() < 0.6 else heads // 4,
            ffn=hidden * 4 if not gated else hidden * 11 // 4 // 64 * 64,
            vocabulary=rng.choice((32_000, 50_272, 128_256)),
            sequence_length=rng.choice((1024, 2048, 4096)),
            gated=gated,
            tied=rng.random() < 0.5,
            experts=ExpertLayers(count=rng.choice((8, 16)), top_k=2, width=hidden)
            if sparse
            else None,
        )
        if _parameters(model) <= _MOST_PARAMETERS:
            return model


def _parameters(model: Architecture) -> int:
    blocks = sum(sum(model.block_parameters(layer)) for layer in range(model.layers))
    return blocks + model.embedding_parameters() + model.head_parameters()


def _uneven(problem: CascadeProblem, rng: random.Random) -> CascadeProblem:
    """The problem with durations off by up to some tenths, alike for tasks that were alike."""
    spread = rng.uniform(0.02, 0.15)
    factors: dict[tuple[str, Option], float] = {}

    def moved(task: Task) -> Task:
        options = []
        for option in task.options:
            key = (task.name, option)
            factor = factors.setdefault(key, math.exp(rng.gauss(0, spread)))
            duration_us = max(1, round(option.duration_us * factor))
            options.append(replace(option, duration_us=duration_us))
        return replace(task, options=tuple(options))

    rows = [replace(c, tasks=tuple(map(moved, c.tasks))) for c in problem.cascades]
    cascades: tuple[Cascade, ...] = tuple(rows)
    return replace(problem, cascades=cascades)
