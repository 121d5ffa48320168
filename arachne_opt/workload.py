"""Clips, micro-batches and iterations: what one training job has to work through."""

from __future__ import annotations

from dataclasses import dataclass

from arachne_opt.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Shape:
    """Size of a clip as it is trained: frames, height and width in pixels. An image has 1 frame."""

    frames: int
    height: int
    width: int

    def __post_init__(self) -> None:
        if min(self.frames, self.height, self.width) < 1:
            raise InputError(f"frames, height and width must be at least 1, not {self}")

    def __str__(self) -> str:
        """Frames x height x width."""
        return f"{self.frames}x{self.height}x{self.width}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One video sample of a data set, as its manifest describes it.

    Args:
        path: file of frames; empty for synthetic ones.
        latents: safetensors file of what the VAE made of the clip; it need not be encoded again.
        fps: frames per second of the file, 0 where unknown.
        train_fps: frames per second at which the clip is trained, 0 for those of the file;
            ``shape.frames`` counts at this rate.
        embeddings: safetensors file of the clip's text, which need not be encoded again; where
            latents are, it lies beside them.
    """

    id: str
    shape: Shape
    path: str = ""
    caption: str = ""
    text_tokens: int = 0
    fps: float = 0.0
    latents: str = ""
    train_fps: float = 0.0
    embeddings: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            raise InputError("a clip needs an id")
        if min(self.text_tokens, self.fps, self.train_fps) < 0:
            raise InputError("text_tokens and fps must not be negative", where=f"clip {self.id}")
        if self.train_fps > self.fps:
            what = f"a clip of {self.fps:g} frames per second cannot be trained at"
            raise InputError(f"{what} {self.train_fps:g}", where=f"clip {self.id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Clips that run together, all resized to one shape."""

    id: str
    shape: Shape
    clips: tuple[Clip, ...]

    def __post_init__(self) -> None:
        if not self.clips:
            raise InputError("a micro-batch needs a clip", where=f"micro-batch {self.id}")

    @property
    def size(self) -> int:
        """Number of clips."""
        return len(self.clips)

    @property
    def cached(self) -> bool:
        """Whether the latents of every clip are there, so that nothing is left to encode."""
        return all(clip.latents for clip in self.clips)

    @property
    def embedded(self) -> bool:
        """Whether the texts of all clips are embedded, so that none is left to encode."""
        return all(clip.embeddings or clip.latents for clip in self.clips)

    @property
    def text_tokens(self) -> int:
        """Text tokens per clip: shorter texts are padded to the longest."""
        return max(clip.text_tokens for clip in self.clips)

    @property
    def label(self) -> str:
        """Clips x frames x height x width, for people."""
        return f"{self.size}x{self.shape}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """The micro-batches between two optimizer steps."""

    name: str
    micro_batches: tuple[MicroBatch, ...]

    def __post_init__(self) -> None:
        if not self.micro_batches:
            raise InputError("an iteration needs a micro-batch", where=f"iteration {self.name}")
        ids = [batch.id for batch in self.micro_batches]
        if len(set(ids)) != len(ids):
            raise InputError("micro-batch ids must differ", where=f"iteration {self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The iterations of a job, in order."""

    name: str
    iterations: tuple[Iteration, ...]

    def __post_init__(self) -> None:
        if not self.iterations:
            raise InputError("a workload needs at least one iteration", where=self.name)

    @property
    def clip_count(self) -> int:
        """Number of clips over all iterations."""
        return sum(b.size for it in self.iterations for b in it.micro_batches)
