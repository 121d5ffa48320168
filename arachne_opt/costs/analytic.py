"""Costs from first principles: operations, bytes moved and memory of a video model.

Sources of the formulas:

- operations of a transformer: two per parameter and token, attention 4 n^2 h forward (Kaplan et
  al. 2020, arXiv 2001.08361); backward twice the forward, attention backward 2.5 times, as its
  scores are computed again (Dao 2023, arXiv 2307.08691);
- all-to-all volume of sequence parallelism: 4 n h / k values per layer and device (Jacobs et al.
  2023, «DeepSpeed Ulysses», arXiv 2309.14509);
- activations of a layer: 34 bytes per token and width, or its input alone with checkpointing
  (Korthikanti et al. 2022, arXiv 2205.05198);
- model states in mixed precision: 2 + 2 + 12 bytes per parameter, the 12 sharded (Rajbhandari et
  al. 2020, «ZeRO», arXiv 1910.02054).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field

from arachne_opt.canonical import digest
from arachne_opt.cascade.problem import Option
from arachne_opt.cluster import Cluster, DeviceType, Link
from arachne_opt.cost_version import cost_version
from arachne_opt.costs.memory_rule import DEFAULT_NODE_SIZE, MemoryRule
from arachne_opt.costs.runtime_memory import RuntimeMemory
from arachne_opt.costs.tail import tail_us
from arachne_opt.device_types import default_inter_link, default_intra_link
from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec, TextUse
from arachne_opt.text_encoders import TextEncoderSpec, text_encoder_of
from arachne_opt.units import us_from_seconds
from arachne_opt.workload import MicroBatch

TEXT = "text"
TASKS = ("encode", "denoise")
ANALYTIC_FORMAT = "arachne.analytic-cost/1"

# One per stage, fitted on public durations of HunyuanVideo at 720p (exact and inferred ones), taken
# as those of H100s; tests/costs/test_analytic_fit.py repeats the fit and states the errors left.
ENCODE_EFFICIENCY = 0.162
DENOISE_EFFICIENCY = 0.293

# Work of one device at which it reaches half of its efficiency, on a device as fast as those of
# the fit; slower devices need less. Tiles of a VAE see all clips of a micro-batch at once.
_TILE_PIXELS = 256 * 256 * 17
_HALF_PIXELS = 1.5 * _TILE_PIXELS
_HALF_TOKENS = 1_000
_FIT_PEAK_FLOPS_PER_S = 989.4e12

# Parts of a clip overlap; the overlap does not shrink with more devices. Picked together with the
# half-efficiency work of the encoder from a grid, on the data of the fit.
_ENCODE_OVERLAP = 0.14
_VALUES_PER_PIXEL = 4  # full-resolution feature maps that are alive at once in a VAE block

_ACTIVATION_BYTES = 34  # per token and unit of width, one layer
_VALUE_BYTES = 2
_PASS_FACTOR = {False: 3.0, True: 4.0}  # forward and backward, and forward again
_ATTENTION_FACTOR = {False: 3.5, True: 4.5}
_EXCHANGES = {False: 2, True: 3}
_EXCHANGES_PER_LAYER = 4  # query, key, value and output
_TASK_OVERHEAD_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Links that a group may use.

    Args:
        node_size: devices of a node; wider groups use ``inter``.
    """

    intra: Link
    inter: Link
    node_size: int


@dataclass(frozen=True)
class AnalyticCostModel:
    """Predicts the tasks of a video model from its numbers and the data sheet of the device.

    Args:
        networks: links by device type; the usual ones of the type where it is not named.
        max_degree: options go up to this many devices.
        encode_efficiency: share of the device's peak that a large VAE task reaches.
        denoise_efficiency: the same for the transformer, and for a text encoder.
        text_encoder: runs before denoise, beside the encoder of the clips; None where texts come
            embedded.
        runtime: memory is what our runtime holds; None takes the rule of ``memory``.
        recompute: denoise has options that keep activations and options that compute them again,
            for the plan to choose; ``memory.checkpointing`` does not count then.
    """

    model: ModelSpec
    _: KW_ONLY
    memory: MemoryRule = field(default_factory=MemoryRule)
    networks: Mapping[str, Network] = field(default_factory=dict)
    max_degree: int = 64
    encode_efficiency: float = ENCODE_EFFICIENCY
    denoise_efficiency: float = DENOISE_EFFICIENCY
    text_encoder: TextEncoderSpec | None = None
    runtime: RuntimeMemory | None = None
    recompute: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.encode_efficiency <= 1 and 0 < self.denoise_efficiency <= 1):
            raise InputError("an efficiency lies between 0 and 1")
        if self.max_degree < 1:
            raise InputError(f"max_degree must be at least 1, not {self.max_degree}")

    @property
    def version(self) -> str:
        """Digest of the model, the rules, the links and the efficiencies."""
        value = {"format": ANALYTIC_FORMAT, **asdict(self)}
        value["networks"] = {name: asdict(net) for name, net in self.networks.items()}
        value["runtime"] = self.runtime and self.runtime.description()
        for key in ("text_encoder", "runtime", "recompute"):
            if not value[key]:
                del value[key]  # as in versions before there was one
        # Other links are another subject, not a newer version.
        links = digest(value["networks"])[:8]
        return cost_version("analytic", (self.model.name, links), digest(value))

    @property
    def task_names(self) -> tuple[str, ...]:
        """Text, where there is an encoder for it, encode, denoise."""
        return TASKS if self.text_encoder is None else (TEXT, *TASKS)

    def why_illegal(self, task: str, degree: int) -> str | None:
        """Why a degree does not divide the heads; the encoder takes every degree."""
        return self.model.why_illegal(degree) if task == "denoise" else None

    def input_bytes(self, task: str, batch: MicroBatch) -> int:
        """Latents of the micro-batch, which the transformer takes from the encoder.

        Where texts are encoded too, the larger of latents and embeddings: one size holds for all
        that hand over to a task.
        """
        if task != "denoise":
            return 0
        latents = self.model.latent_bytes(batch.shape)
        if self.text_encoder is None:
            return latents * batch.size
        return max(latents, self._embedding_bytes()) * batch.size

    def _embedding_bytes(self) -> int:
        return self.model.text_length * self.model.text_width * _VALUE_BYTES

    def tail_us(self, cluster: Cluster) -> int:
        """Gradient synchronisation over the links, then the optimizer at memory speed."""
        return tail_us(self.memory.tail_volume(self.model.parameters), cluster)

    def resident_bytes(self, device_type: DeviceType) -> int:
        """Model states and the runtime's share, which are there whatever runs."""
        if self.runtime is not None:
            states = self.runtime.states_bytes()
        else:
            states = self.memory.model_states_bytes(self.model.parameters)
        return states + self._reserved_bytes(device_type)

    def options(self, task: str, batch: MicroBatch, device_type: DeviceType) -> tuple[Option, ...]:
        """Options at the degrees that divide the heads and are no larger than the tokens."""
        if task not in self.task_names:
            raise InputError(f"the analytic model knows {', '.join(self.task_names)}, not {task!r}")
        tokens = self.model.tokens(batch.shape)
        limit = min(self.max_degree, tokens)
        degrees = self.model.legal_degrees(limit)
        if task == "denoise":
            ways = (False, True) if self.recompute else (self.memory.checkpointing,)
            return tuple(
                self._denoise(batch, device_type, degree, again=again)
                for degree in degrees
                for again in ways
            )
        price = {TEXT: self._text, "encode": self._encode}[task]
        return tuple(price(batch, device_type, degree) for degree in degrees)

    def encode_flops(self, batch: MicroBatch) -> float:
        """Operations to encode all clips of a micro-batch."""
        return float(self.model.vae.encode_flops_per_pixel) * _pixels(batch) * batch.size

    def denoise_flops(self, batch: MicroBatch) -> float:
        """Operations of one training step on all clips, repeated forward pass included."""
        return self._step_flops(batch, again=self.memory.checkpointing)

    def _step_flops(self, batch: MicroBatch, *, again: bool) -> float:
        linear, attention = self._forward_flops(batch)
        each = linear * _PASS_FACTOR[again] + attention * _ATTENTION_FACTOR[again]
        return each * batch.size

    def _forward_flops(self, batch: MicroBatch) -> tuple[float, float]:
        """Operations of one forward pass on one clip: linear layers, and attention."""
        m, video = self.model, self.model.tokens(batch.shape)
        text = m.used_text_tokens(batch.text_tokens)
        h, block = m.hidden, 8 * m.hidden**2 + 4 * m.hidden * m.ffn
        if m.text_use is TextUse.JOINT:
            tokens = video + text
            return float(m.layers * block * tokens), 4.0 * m.layers * h * tokens**2
        # Cross-attention adds query and output per video token, key and value per text token.
        linear = m.layers * (block * video + 4 * h**2 * (video + text))
        return float(linear), 4.0 * m.layers * h * video * (video + text)

    def _encode(self, batch: MicroBatch, kind: DeviceType, degree: int) -> Option:
        work = _pixels(batch) * encode_share(batch.size, degree)
        launch = min(_pixels(batch), _TILE_PIXELS) * batch.size
        rate = kind.peak_flops_per_s * self.encode_efficiency
        rate *= _saturation(launch, _HALF_PIXELS, kind)
        seconds = self.model.vae.encode_flops_per_pixel * work / rate + _TASK_OVERHEAD_S
        vae = self.model.vae
        feature = vae.base_channels * _VALUES_PER_PIXEL * _VALUE_BYTES
        memory = self.resident_bytes(kind)
        memory += vae.encoder_parameters * _VALUE_BYTES
        memory += math.ceil(min(work, _TILE_PIXELS) * feature + work * 3 * _VALUE_BYTES)
        memory += self.input_bytes("denoise", batch)
        if self.runtime is not None:
            memory = self._reserved_bytes(kind) + self.runtime.encode_bytes(batch)
        return Option(degree=degree, duration_us=us_from_seconds(seconds), memory_bytes=memory)

    def _denoise(self, batch: MicroBatch, kind: DeviceType, degree: int, *, again: bool) -> Option:
        tokens = self._sequence(batch) * batch.size
        local = -(-tokens // degree)  # the device with the most tokens sets the pace
        uneven = local * degree / tokens
        rate = kind.peak_flops_per_s * self.denoise_efficiency
        text = self.model.used_text_tokens(batch.text_tokens)
        seen = (self.model.tokens(batch.shape) + text) * batch.size / degree
        rate *= _saturation(seen, _HALF_TOKENS, kind)
        seconds = self._step_flops(batch, again=again) * uneven / degree / rate
        seconds += self._exchange_s(local, kind, degree, again=again) + _TASK_OVERHEAD_S
        if self.runtime is not None:
            memory = self.runtime.denoise_bytes(batch, degree, recompute=again)
            memory += self._reserved_bytes(kind)
        else:
            memory = self.resident_bytes(kind) + self.input_bytes("denoise", batch)
            memory += self._activation_bytes(local, again=again)
        return Option(
            degree=degree,
            duration_us=us_from_seconds(seconds),
            memory_bytes=memory,
            recompute=self.recompute and again,
        )

    def _text(self, batch: MicroBatch, kind: DeviceType, degree: int) -> Option:
        """The texts shared over the group, two operations per parameter and token.

        Nobody measured it for us: it is taken to be as efficient as the transformer.
        """
        encoder = self.text_encoder
        assert encoder is not None  # otherwise there is no such task
        tokens = self.model.text_length * -(-batch.size // degree)
        rate = kind.peak_flops_per_s * self.denoise_efficiency
        rate *= _saturation(tokens, _HALF_TOKENS, kind)
        seconds = 2.0 * encoder.layer_parameters * tokens / rate + _TASK_OVERHEAD_S
        memory = self.resident_bytes(kind) + encoder.parameters * _VALUE_BYTES
        memory += tokens * self.model.text_width * _ACTIVATION_BYTES
        return Option(degree=degree, duration_us=us_from_seconds(seconds), memory_bytes=memory)

    def _sequence(self, batch: MicroBatch) -> int:
        """Tokens of one clip that the layers carry along."""
        text = self.model.used_text_tokens(batch.text_tokens)
        joint = text if self.model.text_use is TextUse.JOINT else 0
        return self.model.tokens(batch.shape) + joint

    def _exchange_s(
        self, local_tokens: int, kind: DeviceType, degree: int, *, again: bool
    ) -> float:
        """All-to-alls of all layers; the part that leaves the node goes over its network."""
        if degree == 1:
            return 0.0
        net = self.networks.get(kind.name) or default_network(kind)
        rounds = self.model.layers * _EXCHANGES_PER_LAYER * _EXCHANGES[again]
        sent = local_tokens * self.model.hidden * _VALUE_BYTES
        inside = min(degree, net.node_size)
        seconds = sent * (inside - 1) / degree / net.intra.bandwidth_bytes_per_s
        latency_us = net.intra.latency_us
        if degree > net.node_size:
            outside = sent * (degree - inside) / degree
            seconds = max(seconds, outside / net.inter.bandwidth_bytes_per_s)
            latency_us = max(latency_us, net.inter.latency_us)
        return rounds * (seconds + latency_us / 1e6)

    def _reserved_bytes(self, kind: DeviceType) -> int:
        return math.ceil(self.memory.reserve_share * kind.memory_bytes)

    def _activation_bytes(self, local_tokens: int, *, again: bool) -> int:
        layer = local_tokens * self.model.hidden * _ACTIVATION_BYTES
        if not again:
            return layer * self.model.layers
        return layer + local_tokens * self.model.hidden * _VALUE_BYTES * self.model.layers


def analytic_for_cluster(
    model: ModelSpec,
    cluster: Cluster,
    *,
    checkpointing: bool = True,
    shard_weights: bool = False,
    text_encoder: bool = False,
    recompute: bool = False,
    runtime: RuntimeMemory | None = None,
) -> AnalyticCostModel:
    """The analytic model with the links of a cluster and states sharded over all its devices.

    Args:
        model: the video model.
        cluster: gives links, node sizes, and the number of optimizer shards.
        checkpointing: see ``MemoryRule``.
        shard_weights: also shard weights and gradients over all devices.
        text_encoder: texts are encoded too, by the encoder that the model was published with.
        recompute: let the plan choose where activations are computed again.
        runtime: price memory as our runtime needs it.

    Raises:
        InputError: no text encoder is known for the model.
    """
    networks: dict[str, Network] = {}
    for node in cluster.nodes:
        net = Network(intra=node.intra_link, inter=cluster.inter_link, node_size=node.device_count)
        known = networks.get(node.device_type.name)
        if known is None or net.node_size > known.node_size:
            networks[node.device_type.name] = net
    count = cluster.device_count
    shards = count if shard_weights else 1
    rule = MemoryRule(
        weight_shards=shards,
        gradient_shards=shards,
        optimizer_shards=count,
        checkpointing=checkpointing,
    )
    return AnalyticCostModel(
        model,
        memory=rule,
        networks=networks,
        max_degree=count,
        text_encoder=text_encoder_of(model) if text_encoder else None,
        recompute=recompute,
        runtime=runtime,
    )


def default_network(kind: DeviceType) -> Network:
    """The usual links of a device type on nodes of eight."""
    intra = default_intra_link(kind.name)
    inter = default_inter_link({kind.name: kind})
    return Network(intra=intra or inter, inter=inter, node_size=DEFAULT_NODE_SIZE)


def encode_share(clips: int, degree: int) -> float:
    """Clips' worth of work of one device of a group, overlaps of the parts included."""
    return clips * (1 / degree + _ENCODE_OVERLAP * (1 - 1 / degree))


def _pixels(batch: MicroBatch) -> int:
    """Pixels of one clip over all frames."""
    return batch.shape.frames * batch.shape.height * batch.shape.width


def _saturation(work: float, half: float, kind: DeviceType) -> float:
    """Share of the efficiency that a device reaches with some work."""
    return work / (work + half * kind.peak_flops_per_s / _FIT_PEAK_FLOPS_PER_S)
