"""Policy files: safetensors whose metadata say what they are, with a digest of the weights.

The format (https://github.com/huggingface/safetensors): the length of a JSON header as eight bytes,
little-endian; the header, which gives each tensor's type, shape and bytes, and texts under
``__metadata__``; the bytes of the tensors.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arachne_opt.errors import InputError
from arachne_opt.solvers.seeds.network import Array

CASCADES, TEMPLATES = "cascades", "templates"
# Versions of the features that policies read. Raised when features change their meaning: policies
# for other ones are then refused.
FEATURES = {CASCADES: 1, TEMPLATES: 1}
POLICY_FORMAT = "arachne.policy/1"
LARGEST_BYTES = 1_000_000
_LENGTH = struct.Struct("<Q")
_KEYS = ("format", "policy", "features", "version", "report", "digest")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyFile:
    """The weights of a policy and what is known about them.

    Args:
        policy: ``cascades`` or ``templates``.
        features: version of the features that it was trained on.
        version: tells policies of one kind apart; made of the digest of the weights.
        report: command, seeds and scores, in JSON.
    """

    policy: str
    features: int
    version: str
    report: Mapping[str, Any]
    tensors: Mapping[str, Array]


def pack_policy(policy: str, report: Mapping[str, Any], tensors: Mapping[str, Array]) -> bytes:
    """The bytes of a policy file; equal weights and reports give equal bytes.

    Raises:
        InputError: it would be larger than a shipped policy may be.
    """
    header: dict[str, Any] = {}
    body = b""
    for name in sorted(tensors):
        data = np.ascontiguousarray(tensors[name], dtype="<f4").tobytes()
        shape = list(tensors[name].shape)
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        body += data
    features = FEATURES[policy]
    seal = _seal(policy, features, body)
    header["__metadata__"] = {
        "format": POLICY_FORMAT,
        "policy": policy,
        "features": str(features),
        "version": f"{policy}-{seal[:12]}",
        "report": json.dumps(report, sort_keys=True),
        "digest": seal,
    }
    head = json.dumps(header, sort_keys=True).encode()
    head += b" " * (-len(head) % 8)
    found = _LENGTH.pack(len(head)) + head + body
    if len(found) > LARGEST_BYTES:
        what = f"a policy of {len(found)} bytes is larger than {LARGEST_BYTES}"
        raise InputError(what, hint="a smaller network")
    return found


def read_policy(path: Path, policy: str) -> PolicyFile:
    """The policy of a file.

    Raises:
        InputError: it cannot be read, is damaged, or is for other features than this release has.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror}", where=str(path)) from error
    return unpack_policy(data, policy, where=str(path))


def unpack_policy(data: bytes, policy: str, *, where: str) -> PolicyFile:
    """The policy in the bytes of a file.

    Raises:
        InputError: the bytes are damaged, or for another policy or other features; names ``where``.
    """
    try:
        header, body = _split(data)
        meta = {key: header["__metadata__"][key] for key in _KEYS}
        found, trained_for = str(meta["policy"]), int(meta["features"])
        if meta["format"] != POLICY_FORMAT:
            raise InputError(f"is of format {meta['format']!r}, not {POLICY_FORMAT!r}", where=where)
        tensors = {n: _tensor(body, e) for n, e in header.items() if n != "__metadata__"}
        report = json.loads(meta["report"])
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        what = f"the policy file is damaged: {type(error).__name__} {error}"
        raise InputError(what, where=where, hint="`arachne learn` to make it anew") from error
    if found != policy:
        raise InputError(f"is a policy for {found}, not for {policy}", where=where)
    if _seal(found, trained_for, body) != meta["digest"]:
        what = "the policy file is damaged: its weights do not match their digest"
        raise InputError(what, where=where, hint="`arachne learn` to make it anew")
    features = FEATURES[policy]
    if trained_for != features:
        age = "an older" if trained_for < features else "a newer"
        what = f"the policy file is for {age} version of its features: {trained_for}"
        hint = "`arachne learn` to make it anew"
        raise InputError(f"{what}, this release has {features}", where=where, hint=hint)
    return PolicyFile(
        policy=found,
        features=trained_for,
        version=str(meta["version"]),
        report=report,
        tensors=tensors,
    )


def _seal(policy: str, features: int, body: bytes) -> str:
    return hashlib.sha256(f"{policy} {features} ".encode() + body).hexdigest()


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    if end > len(data):
        raise ValueError(f"{len(data)} bytes end inside the header")
    header = json.loads(data[_LENGTH.size : end])
    if not isinstance(header, dict):
        raise TypeError("the header is no object")
    return header, data[end:]


def _tensor(body: bytes, entry: Mapping[str, Any]) -> Array:
    if entry["dtype"] != "F32":
        raise ValueError(f"a tensor of type {entry['dtype']}")
    first, end = entry["data_offsets"]
    if not 0 <= first <= end <= len(body):
        raise ValueError(f"{len(body)} bytes of weights end inside a tensor")
    values = np.frombuffer(body[first:end], dtype="<f4").reshape(entry["shape"])
    if not np.isfinite(values).all():
        raise ValueError("a weight is no number")
    return values
