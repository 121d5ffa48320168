"""Jobs as JSON (``arachne.replay-job/1``): what the launcher hands to every rank."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arachne_opt.cascade.plan import plan_from_json
from arachne_opt.cascade.problem_json import problem_from_json, problem_to_json
from arachne_opt.errors import InputError
from arachne_opt.executor.job import (
    DEFAULT_LEARNING_RATE,
    DEFAULT_TIMEOUT_FACTOR,
    DEFAULT_TIMEOUT_FLOOR_S,
    DEFAULT_WEIGHT_DECAY,
    ReplayIteration,
    ReplayJob,
)
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.options import CheckpointOptions, UpdateOptions
from arachne_opt.fields import Fields
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape

JOB_FORMAT = "arachne.replay-job/1"

_PLAIN = (
    "weight_rule",
    "learning_rate",
    "weight_decay",
    "seed",
    "epochs",
    "threads_per_rank",
    "device",
    "timeout_factor",
    "timeout_floor_s",
    "save_parameters",
    "opening_epoch",
    "plan_folder",
)
_NESTED = ("update", "checkpoints")
_BATCH = ("id", "frames", "height", "width", "clips")
_CLIP = (
    *("id", "frames", "height", "width", "path", "caption", "text_tokens", "fps"),
    *("latents", "train_fps", "embeddings"),
)


def job_to_json(job: ReplayJob) -> dict[str, Any]:
    """JSON values that ``job_from_json`` reads back to an equal job."""
    plain = {key: getattr(job, key) for key in _PLAIN}
    return {
        "format": JOB_FORMAT,
        "model": model_to_json(job.model),
        "iterations": [iteration_to_json(it) for it in job.iterations],
        "opening": [iteration_to_json(it) for it in job.opening],
        **plain,
        **{key: asdict(getattr(job, key)) for key in _NESTED},
    }


def job_from_json(value: object, where: str = "job") -> ReplayJob:
    """Reads a job back.

    Raises:
        InputError: another format, an unknown or missing key, a wrong type, or a plan that does
            not fit its micro-batches.
    """
    top = Fields(value, where, ("format", "model", "iterations", "opening", *_PLAIN, *_NESTED))
    top.require_format(JOB_FORMAT)
    return ReplayJob(
        model=model_from_json(top.raw("model"), f"{where}: model"),
        iterations=_iterations(top, "iterations"),
        opening=_iterations(top, "opening"),
        opening_epoch=top.integer("opening_epoch", 0),
        plan_folder=top.text("plan_folder", ""),
        update=_update(top),
        checkpoints=_checkpoints(top),
        weight_rule=top.text("weight_rule", "clip"),
        learning_rate=top.number("learning_rate", DEFAULT_LEARNING_RATE),
        weight_decay=top.number("weight_decay", DEFAULT_WEIGHT_DECAY),
        seed=top.integer("seed", 0),
        epochs=top.integer("epochs", 1, minimum=1),
        threads_per_rank=top.integer("threads_per_rank", 0),
        device=top.text("device", "auto"),
        timeout_factor=top.number("timeout_factor", DEFAULT_TIMEOUT_FACTOR),
        timeout_floor_s=top.number("timeout_floor_s", DEFAULT_TIMEOUT_FLOOR_S),
        save_parameters=top.text("save_parameters", ""),
    )


def read_json(path: Path) -> object:
    """The JSON value of a file.

    Raises:
        InputError: the file is missing, unreadable or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the file: {error}", where=str(path)) from error


def model_to_json(model: ModelChoice) -> dict[str, Any]:
    """The choice of a model as JSON values."""
    return asdict(model)


def model_from_json(value: object, where: str) -> ModelChoice:
    """Reads the choice of a model back."""
    fields = Fields(value, where, tuple(ModelChoice.__dataclass_fields__))
    overrides = fields.raw("overrides") if "overrides" in fields else {}
    if not isinstance(overrides, dict):
        raise InputError("expected a table of sizes", where=fields.place("overrides"))
    return ModelChoice(
        preset=fields.text("preset", "toy"),
        overrides=overrides,
        checkpoint=fields.text("checkpoint", ""),
        seed=fields.integer("seed", 0),
        checkpointing=_flag(fields, "checkpointing"),
        emulated=_flag(fields, "emulated"),
    )


def batch_to_json(batch: MicroBatch) -> dict[str, Any]:
    """A micro-batch as JSON values."""
    clips = [
        {
            "id": clip.id,
            **asdict(clip.shape),
            "path": clip.path,
            "caption": clip.caption,
            "text_tokens": clip.text_tokens,
            "fps": clip.fps,
            "latents": clip.latents,
            "train_fps": clip.train_fps,
            **({"embeddings": clip.embeddings} if clip.embeddings else {}),
        }
        for clip in batch.clips
    ]
    return {"id": batch.id, **asdict(batch.shape), "clips": clips}


def batch_from_json(value: object, where: str) -> MicroBatch:
    """Reads a micro-batch back."""
    fields = Fields(value, where, _BATCH)
    clips = tuple(
        _clip(Fields(raw, f"{where}: clip {index}", _CLIP))
        for index, raw in enumerate(fields.items("clips"))
    )
    return MicroBatch(id=fields.text("id"), shape=_shape(fields), clips=clips)


def iteration_to_json(iteration: ReplayIteration) -> dict[str, Any]:
    """An iteration with its plan as JSON values."""
    batches = iteration.batches.micro_batches
    return {
        "name": iteration.name,
        "micro_batches": [batch_to_json(batch) for batch in batches],
        "problem": problem_to_json(iteration.problem),
        "plan": iteration.plan.to_json(iteration.problem),
        "plan_id": iteration.plan_id,
    }


def iteration_from_json(value: object, where: str) -> ReplayIteration:
    """Reads an iteration back."""
    fields = Fields(value, where, ("name", "micro_batches", "problem", "plan", "plan_id"))
    batches = tuple(
        batch_from_json(raw, f"{where}: micro-batch {index}")
        for index, raw in enumerate(fields.items("micro_batches"))
    )
    problem = problem_from_json(fields.raw("problem"))
    return ReplayIteration(
        batches=Iteration(name=fields.text("name"), micro_batches=batches),
        problem=problem,
        plan=plan_from_json(fields.raw("plan"), problem),
        plan_id=fields.text("plan_id", ""),
    )


def _iterations(top: Fields, key: str) -> tuple[ReplayIteration, ...]:
    return tuple(
        iteration_from_json(raw, f"{top.place(key)} {index}")
        for index, raw in enumerate(top.items(key))
    )


def _table(top: Fields, key: str, kind: type[UpdateOptions | CheckpointOptions]) -> Fields:
    """An optional table with the fields of a data class."""
    value = top.raw(key) if key in top else {}
    return Fields(value, top.place(key), tuple(kind.__dataclass_fields__))


def _update(top: Fields) -> UpdateOptions:
    fields = _table(top, "update", UpdateOptions)
    return UpdateOptions(
        sharding=fields.text("sharding", "zero1"),
        precision=fields.text("precision", "fp32"),
        schedule=fields.text("schedule", "constant"),
        warmup_steps=fields.integer("warmup_steps", 0),
        clip_norm=fields.number("clip_norm", 0.0),
        ema_decay=fields.number("ema_decay", 0.0),
    )


def _checkpoints(top: Fields) -> CheckpointOptions:
    fields = _table(top, "checkpoints", CheckpointOptions)
    return CheckpointOptions(
        folder=fields.text("folder", ""),
        every=fields.integer("every", 0),
        keep=fields.integer("keep", 2),
        resume=bool(fields.raw("resume")) if "resume" in fields else False,
    )


def _clip(fields: Fields) -> Clip:
    return Clip(
        id=fields.text("id"),
        shape=_shape(fields),
        path=fields.text("path", ""),
        caption=fields.text("caption", ""),
        text_tokens=fields.integer("text_tokens", 0),
        fps=fields.number("fps", 0.0),
        latents=fields.text("latents", ""),
        train_fps=fields.number("train_fps", 0.0),
        embeddings=fields.text("embeddings", ""),
    )


def _shape(fields: Fields) -> Shape:
    frames, height, width = (
        fields.integer(key, minimum=1) for key in ("frames", "height", "width")
    )
    return Shape(frames=frames, height=height, width=width)


def _flag(fields: Fields, key: str) -> bool:
    return key in fields and bool(fields.raw(key))
