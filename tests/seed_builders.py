"""Policies with random weights: they must cost time, never quality."""

from itertools import pairwise

import numpy as np

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.pipeline.options import Space
from arachne_opt.solvers.seeds.cascade_features import view
from arachne_opt.solvers.seeds.cells import features, grid, promising
from arachne_opt.solvers.seeds.policy_file import (
    CASCADES,
    TEMPLATES,
    PolicyFile,
    pack_policy,
    unpack_policy,
)
from arachne_opt.solvers.seeds.structures import structures_of

WIDTH = 6


def _layers(rng, name, *sizes):
    found = {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        found[f"{name}.{i}.weight"] = rng.normal(0, 0.5, (outputs, inputs)).astype(np.float32)
        found[f"{name}.{i}.bias"] = rng.normal(0, 0.5, outputs).astype(np.float32)
    return found


def random_template_policy(problem: PipelineProblem, seed: int = 0) -> PolicyFile:
    """A policy for templates that knows nothing."""
    space = Space(problem, TableCosts(problem))
    structures = structures_of(space, grid(space))
    count = features(space, structures, promising(structures)).shape[1]
    rng = np.random.default_rng(seed)
    tensors = {"mean": np.zeros(count), "width": np.ones(count)}
    tensors |= _layers(rng, "cells", count, WIDTH, 2)
    return unpack_policy(pack_policy(TEMPLATES, {}, tensors), TEMPLATES, where="test")


def random_cascade_policy(problem, seed: int = 0) -> PolicyFile:
    """A policy for cascades that knows nothing."""
    digest = Digest(problem)
    seen = view(FastDecoder(digest), lower_bound(digest))
    sizes = {
        "mode": seen.mode_x.shape[1],
        "task": seen.task_x.shape[1],
        "problem": len(seen.problem_x),
    }
    rng = np.random.default_rng(seed)
    tensors = {f"{name}.mean": np.zeros(n) for name, n in sizes.items()}
    tensors |= {f"{name}.width": np.ones(n) for name, n in sizes.items()}
    tensors |= _layers(rng, "modes", sizes["mode"], WIDTH, WIDTH)
    tensors |= _layers(rng, "tasks", sizes["task"] + WIDTH + sizes["problem"], WIDTH, WIDTH)
    tensors |= _layers(rng, "context", 4 * WIDTH, WIDTH, WIDTH)
    tensors |= _layers(rng, "start", WIDTH, WIDTH, 1)
    tensors |= _layers(rng, "pick", sizes["mode"] + WIDTH, WIDTH, 1)
    return unpack_policy(pack_policy(CASCADES, {}, tensors), CASCADES, where="test")
