"""Reads rows from Hugging Face checkpoints (safetensors) and writes them back.

A checkpoint is a folder with ``config.json`` and ``model.safetensors``, or several files that
``model.safetensors.index.json`` lists. Rows are read one by one, so that a rank reads what it
holds; written, each row is a file of its own, so that each holder can write its rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from arachne_opt.errors import InputError, MissingDependencyError, RunError
from arachne_opt.executor.job_json import read_json
from arachne_opt.executor.pipeline.models.configs import CONFIG_FILE
from arachne_opt.executor.pipeline.models.names import Form, Stored, prefix_of, stored_tensors
from arachne_opt.executor.pipeline.models.spec import DecoderSpec

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


class CheckpointReader:
    """Reads the rows of a checkpoint; files are opened when they are first needed.

    Args:
        folder: with ``config.json`` and the weights.
        spec: the model that ``config.json`` describes.

    Raises:
        InputError: there are no weights, or the index cannot be read.
        MissingDependencyError: safetensors is not installed.
    """

    def __init__(self, folder: str | Path, spec: DecoderSpec) -> None:
        self._library = _safetensors()
        self._folder, self._spec = Path(folder), spec
        self._files: dict[str, Any] = {}
        self._file_of = self._index()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files.values():
            file.__exit__(None, None, None)
        self._files.clear()

    def row(self, row: int) -> dict[str, Tensor]:
        """The weights of a row by our names, in the type in which they are stored.

        Raises:
            InputError: a tensor is missing or has another shape than the model.
        """
        found: dict[str, Tensor] = {}
        stacks: dict[str, list[Tensor]] = {}
        for stored in stored_tensors(self._spec, row):
            value = self._tensor(stored.name)
            if stored.expert is not None:
                stacks.setdefault(stored.ours[0], []).append(value)
            else:
                found |= zip(stored.ours, self._taken_apart(stored, value), strict=True)
        return found | {name: torch.stack(parts) for name, parts in stacks.items()}

    def _index(self) -> dict[str, str]:
        """File of each tensor."""
        index, single = self._folder / INDEX_FILE, self._folder / SINGLE_FILE
        if index.is_file():
            value = read_json(index)
            names = value.get("weight_map") if isinstance(value, dict) else None
            if not isinstance(names, dict):
                raise InputError("the index has no 'weight_map'", where=str(index))
            return {str(name): str(file) for name, file in names.items()}
        if not single.is_file():
            what = f"the folder has neither {SINGLE_FILE} nor {INDEX_FILE}"
            raise InputError(what, where=str(self._folder), hint="a checkpoint in safetensors")
        return dict.fromkeys(self._open(SINGLE_FILE).keys(), SINGLE_FILE)

    def _tensor(self, name: str) -> Tensor:
        bare = name.removeprefix(prefix_of(self._spec))
        known = next((n for n in (name, bare) if n in self._file_of), None)
        if known is None:
            raise InputError(f"the checkpoint lacks the tensor {name}", where=str(self._folder))
        tensor: Tensor = self._open(self._file_of[known]).get_tensor(known)
        return tensor

    def _open(self, name: str) -> Any:  # noqa: ANN401 - the library has no type for it
        if name not in self._files:
            path = self._folder / name
            try:
                file = self._library.safe_open(path, framework="pt")
                self._files[name] = file.__enter__()
            except (OSError, self._library.SafetensorError) as error:
                raise InputError(f"cannot read the weights: {error}", where=str(path)) from error
        return self._files[name]

    def _taken_apart(self, stored: Stored, value: Tensor) -> tuple[Tensor, ...]:
        match stored.form:
            case Form.PLAIN:
                return (value,)
            case Form.TRANSPOSED:
                return (value.transpose(0, -1).contiguous(),)
            case Form.COLUMNS:
                return tuple(part.transpose(0, -1).contiguous() for part in value.chunk(3, dim=-1))
            case Form.HEADS:
                heads = value.reshape(self._spec.heads, 3, -1, *value.shape[1:])
                return tuple(heads[:, part].flatten(0, 1) for part in range(3))


class CheckpointWriter:
    """Writes rows; each row by whoever holds it, ``finish`` by one process after all rows.

    Args:
        folder: is made where it is missing.
        spec: the model.

    Raises:
        MissingDependencyError: safetensors is not installed.
        RunError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path, spec: DecoderSpec) -> None:
        _safetensors()
        self._folder, self._spec = Path(folder), spec
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the folder: {error}", where=str(folder)) from error

    def write_row(self, row: int, weights: Mapping[str, Tensor]) -> None:
        """Writes a row of whole parameters; a tied head is left to the embedding's row.

        Raises:
            RunError: the file cannot be written.
        """
        from safetensors.torch import save_file

        tensors = {
            stored.name: self._put_together(stored, weights).detach().cpu().contiguous()
            for stored in self._own(row)
        }
        path = self._folder / self._file(row)
        try:
            save_file(tensors, path, metadata={"format": "pt"})
        except OSError as error:
            raise RunError(f"cannot write the weights: {error}", where=str(path)) from error

    def finish(self, config: Mapping[str, Any], *, value_bytes: int = 4) -> None:
        """Writes the index of all rows and the configuration.

        Raises:
            RunError: a row is missing, or the disk takes nothing.
        """
        from arachne_opt.executor.pipeline.models.parameters import row_parameters

        names: dict[str, str] = {}
        size = 0
        for row in range(self._spec.row_count):
            if not (self._folder / self._file(row)).is_file():
                raise RunError(f"row {row} was not written", where=str(self._folder))
            names |= {stored.name: self._file(row) for stored in self._own(row)}
            shapes = [p.shape for p in row_parameters(self._spec, row)]
            size += sum(torch.Size(shape).numel() for shape in shapes) * value_bytes
        index = {"metadata": {"total_size": size}, "weight_map": names}
        try:
            _write(self._folder / INDEX_FILE, index)
            _write(self._folder / CONFIG_FILE, config)
        except OSError as error:
            raise RunError(f"cannot write: {error}", where=str(self._folder)) from error

    def _own(self, row: int) -> list[Stored]:
        """The tensors that go into the file of a row: tied ones once."""
        stored = stored_tensors(self._spec, row)
        if row != self._spec.head_row or not self._spec.tied:
            return list(stored)
        first = {s.name for s in stored_tensors(self._spec, 0)}
        return [s for s in stored if s.name not in first]

    def _file(self, row: int) -> str:
        return f"model-{row + 1:05d}-of-{self._spec.row_count:05d}.safetensors"

    def _put_together(self, stored: Stored, weights: Mapping[str, Tensor]) -> Tensor:
        parts = [weights[name] for name in stored.ours]
        if stored.expert is not None:
            return parts[0][stored.expert]
        match stored.form:
            case Form.PLAIN:
                return parts[0]
            case Form.TRANSPOSED:
                return parts[0].transpose(0, -1)
            case Form.COLUMNS:
                return torch.cat([part.transpose(0, -1) for part in parts], dim=-1)
            case Form.HEADS:
                count = self._spec.heads
                heads = [part.reshape(count, -1, *part.shape[1:]) for part in parts]
                return torch.stack(heads, dim=1).flatten(0, 2)


def _safetensors() -> ModuleType:
    try:
        import safetensors
    except ImportError as error:
        what = "reading and writing Hugging Face checkpoints needs the package safetensors"
        raise MissingDependencyError(what, hint="pip install 'arachne-opt[hf]'") from error
    return safetensors


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
