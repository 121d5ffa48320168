"""Text encoders of transformers: T5, UMT5, Llama, CLIP; from a checkpoint or of random weights.

Texts are encoded one by one, so that no embedding depends on what else is in a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.executor.model_config import ModelChoice

# Encoders this narrow are ours, for tests.
_REAL_WIDTH = 512

_PAD, _END, _SPECIAL = 0, 1, 3
_BYTES = 256


class _Sizes(NamedTuple):
    """Layers, heads and inner width of a published encoder."""

    layers: int
    heads: int
    inner: int


_PUBLISHED = {
    "T5EncoderModel": _Sizes(24, 64, 10_240),
    "UMT5EncoderModel": _Sizes(24, 64, 10_240),
    "LlamaModel": _Sizes(32, 32, 14_336),
    "CLIPTextModel": _Sizes(12, 12, 3_072),
}

# Token numbers (1, L) of a text, at most so many, and which of them count.
Tokens = Callable[[str, int], tuple[Tensor, Tensor]]


class TextModel(nn.Module):
    """One encoder with its tokens.

    Args:
        choice: of the video model; names the checkpoint, or the seed of random weights.
        kind: class of transformers.
        width: of the embeddings.
        suffix: of the checkpoint's folders, such as ``_2``.
        masked: padding is not attended to.
    """

    def __init__(
        self,
        choice: ModelChoice,
        kind: str,
        width: int,
        suffix: str = "",
        *,
        masked: bool = True,
    ) -> None:
        super().__init__()
        self._masked = masked
        folder = Path(choice.checkpoint)
        if choice.checkpoint:
            self.model = _kept(kind, folder / f"text_encoder{suffix}")
            self._tokens = _kept_tokens(folder / f"tokenizer{suffix}")
        else:
            self.model = _random(kind, width, choice.seed)
            self._tokens = _byte_tokens
        self.requires_grad_(False).eval()

    @torch.no_grad()
    def forward(self, text: str, length: int) -> tuple[Any, Tensor]:
        """What the encoder gives for a text, and which of its ``length`` tokens count."""
        ids, mask = self._tokens(text, length)
        device = next(self.model.parameters()).device
        given = self.model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device) if self._masked else None,
            output_hidden_states=True,
        )
        return given, mask


def _transformers() -> Any:  # noqa: ANN401 - an optional package
    try:
        import transformers
    except ImportError as error:
        what = f"texts are encoded with transformers ({error})"
        raise MissingDependencyError(what, hint="pip install 'arachne-opt[video]'") from error
    return transformers


def _kept(kind: str, folder: Path) -> nn.Module:
    """An encoder from a checkpoint."""
    library = _transformers()
    if not folder.is_dir():
        raise InputError("the checkpoint has no text encoder", where=str(folder))
    try:
        model: nn.Module = getattr(library, kind).from_pretrained(
            str(folder), local_files_only=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot load the text encoder: {error}", where=str(folder)) from error
    return model


def _kept_tokens(folder: Path) -> Tokens:
    library = _transformers()
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot load the tokenizer: {error}", where=str(folder)) from error

    def tokens(text: str, length: int) -> tuple[Tensor, Tensor]:
        found = tokenizer(
            text, padding="max_length", truncation=True, max_length=length, return_tensors="pt"
        )
        return found["input_ids"], found["attention_mask"]

    return tokens


def _byte_tokens(text: str, length: int) -> tuple[Tensor, Tensor]:
    """The bytes of a text and an end: what random weights take, as they have no vocabulary."""
    numbers = [*(byte + _SPECIAL for byte in text.encode()[: length - 1]), _END]
    ids = torch.full((1, length), _PAD)
    ids[0, : len(numbers)] = torch.tensor(numbers)
    mask = torch.zeros(1, length, dtype=torch.long)
    mask[0, : len(numbers)] = 1
    return ids, mask


def _random(kind: str, width: int, seed: int) -> nn.Module:
    """An encoder of the published size, or of two layers where the width is one of a test."""
    library = _transformers()
    sizes = _PUBLISHED[kind] if width >= _REAL_WIDTH else _Sizes(2, 4, 2 * width)
    words = _BYTES + _SPECIAL
    if kind in ("T5EncoderModel", "UMT5EncoderModel"):
        name = kind.removesuffix("EncoderModel")
        config = getattr(library, f"{name}Config")(
            vocab_size=words,
            d_model=width,
            d_kv=width // sizes.heads,
            d_ff=sizes.inner,
            num_layers=sizes.layers,
            num_heads=sizes.heads,
            feed_forward_proj="gated-gelu",
        )
    else:
        config = getattr(library, f"{kind.removesuffix('Model')}Config")(
            vocab_size=words,
            hidden_size=width,
            intermediate_size=sizes.inner,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            pad_token_id=_PAD,
            bos_token_id=None,
            eos_token_id=_END,
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = getattr(library, kind)(config)
    return model
