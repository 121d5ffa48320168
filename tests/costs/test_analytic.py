"""Analytic costs."""

import pytest

from arachne_opt.cluster import Link
from arachne_opt.cluster_file import parse_shorthand
from arachne_opt.costs.analytic import (
    AnalyticCostModel,
    MemoryRule,
    Network,
    analytic_for_cluster,
    encode_share,
)
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.errors import InputError
from arachne_opt.models import MODELS, model_spec
from arachne_opt.workload import Clip, MicroBatch, Shape

H100 = DEVICE_TYPES["H100-80"]
HUNYUAN = model_spec("hunyuanvideo-13b")
MODEL = AnalyticCostModel(HUNYUAN)


def batch(frames: int, height: int = 720, width: int = 1280, *, clips: int = 1) -> MicroBatch:
    shape = Shape(frames=frames, height=height, width=width)
    members = tuple(Clip(id=f"c{i}", shape=shape, text_tokens=100) for i in range(clips))
    return MicroBatch(id="mb", shape=shape, clips=members)


def at(model: AnalyticCostModel, task: str, work: MicroBatch, degree: int, kind=H100):
    return next(o for o in model.options(task, work, kind) if o.degree == degree)


@pytest.mark.parametrize("name", ["hunyuanvideo-13b", "wan2.1-14b", "cogvideox-5b"])
def test_forward_work_is_two_operations_per_parameter_and_token_plus_attention(name: str) -> None:
    spec = model_spec(name)
    work = batch(5, 256, 256)
    plain = AnalyticCostModel(spec, memory=MemoryRule(checkpointing=False))
    tokens = spec.tokens(work.shape)
    linear = 6 * spec.parameters * tokens
    # Modulation weights (a sixth to a third) act once per clip, not per token.
    assert 0.6 * linear < plain.denoise_flops(work) < 1.4 * linear


def test_attention_grows_with_the_square_of_the_tokens() -> None:
    short, long = (MODEL.denoise_flops(batch(n)) for n in (61, 121))
    assert HUNYUAN.tokens(batch(121).shape) < 2 * HUNYUAN.tokens(batch(61).shape)
    assert long > 2.5 * short


def test_checkpointing_costs_time_and_saves_memory() -> None:
    kept = AnalyticCostModel(HUNYUAN, memory=MemoryRule(checkpointing=False))
    with_, without = (at(m, "denoise", batch(33), 8) for m in (MODEL, kept))
    assert with_.duration_us > 1.2 * without.duration_us
    assert with_.memory_bytes < without.memory_bytes


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("task", ["encode", "denoise"])
def test_longer_clips_and_more_of_them_never_cost_less(name: str, task: str) -> None:
    model = AnalyticCostModel(model_spec(name))
    for degree in (1, 2, 4):
        if model.why_illegal("denoise", degree):
            continue
        longer = [at(model, task, batch(f, 64, 96), degree) for f in (1, 5, 9, 33, 129)]
        more = [at(model, task, batch(9, 64, 96, clips=n), degree) for n in (1, 2, 3, 8)]
        for rows in (longer, more):
            times = [o.duration_us for o in rows]
            memory = [o.memory_bytes for o in rows]
            assert times == sorted(times)
            assert memory == sorted(memory)


def test_wider_groups_are_faster_but_less_efficient() -> None:
    for task in ("encode", "denoise"):
        options = MODEL.options(task, batch(65), H100)
        narrow = [o for o in options if o.degree <= 8]
        times = [o.duration_us for o in narrow]
        areas = [o.area_us for o in narrow]
        assert times == sorted(times, reverse=True)
        assert areas == sorted(areas)


def test_small_work_uses_a_device_badly() -> None:
    def rate(frames: int, size: int) -> float:
        work = batch(frames, size, size)
        return MODEL.denoise_flops(work) / at(MODEL, "denoise", work, 1).duration_us

    assert rate(1, 128) < 0.3 * rate(33, 512)


def test_options_are_the_degrees_that_divide_the_heads_and_do_not_exceed_the_tokens() -> None:
    degrees = [o.degree for o in MODEL.options("denoise", batch(65), H100)]
    assert degrees == [1, 2, 3, 4, 6, 8, 12, 24]
    few = [o.degree for o in MODEL.options("denoise", batch(1, 32, 32), H100)]
    assert few == [1, 2, 3, 4]
    small = AnalyticCostModel(HUNYUAN, max_degree=4)
    assert [o.degree for o in small.options("encode", batch(65), H100)] == [1, 2, 3, 4]


def test_a_group_wider_than_a_node_pays_for_the_network() -> None:
    fast = Link(bandwidth_bytes_per_s=450 * 10**9, latency_us=5)
    slow = Link(bandwidth_bytes_per_s=10**9, latency_us=50)
    inside, outside = (
        AnalyticCostModel(
            HUNYUAN, networks={"H100-80": Network(intra=fast, inter=slow, node_size=size)}
        )
        for size in (8, 4)
    )
    work = batch(65)
    assert at(outside, "denoise", work, 4) == at(inside, "denoise", work, 4)
    more = at(outside, "denoise", work, 8).duration_us - at(inside, "denoise", work, 8).duration_us
    # Half of 12 exchanges a layer of a device's tokens leave the node at 1 GB/s.
    local = (HUNYUAN.tokens(work.shape) + 100) / 8
    expected_s = 60 * 12 * local * 3072 * 2 * 4 / 8 / 10**9
    assert more == pytest.approx(expected_s * 1e6, rel=0.05)


def test_model_states_follow_the_rule_of_sixteen_bytes() -> None:
    whole = MemoryRule(optimizer_shards=1)
    assert whole.model_states_bytes(1000) == 16_000
    assert MemoryRule(optimizer_shards=8).model_states_bytes(1000) == 4000 + 1500
    sharded = MemoryRule(weight_shards=4, gradient_shards=4, optimizer_shards=4)
    assert sharded.model_states_bytes(1000) == 4000


def test_a_cluster_gives_links_and_shards() -> None:
    cluster = parse_shorthand("H100-80:8x4,A100-80:4")
    model = analytic_for_cluster(HUNYUAN, cluster)
    assert model.memory.optimizer_shards == 36
    assert model.networks["A100-80"].node_size == 4
    assert model.max_degree == 36
    sharded = analytic_for_cluster(HUNYUAN, cluster, shard_weights=True)
    work = batch(65)
    saved = at(model, "denoise", work, 8).memory_bytes
    saved -= at(sharded, "denoise", work, 8).memory_bytes
    assert saved == pytest.approx(4 * HUNYUAN.parameters * 35 / 36, rel=1e-6)


def test_the_version_follows_everything_that_decides_the_predictions() -> None:
    versions = {
        AnalyticCostModel(HUNYUAN).version,
        AnalyticCostModel(model_spec("wan2.1-14b")).version,
        AnalyticCostModel(HUNYUAN, denoise_efficiency=0.5).version,
        AnalyticCostModel(HUNYUAN, memory=MemoryRule(checkpointing=False)).version,
        analytic_for_cluster(HUNYUAN, parse_shorthand("H100-80:8")).version,
        analytic_for_cluster(HUNYUAN, parse_shorthand("H100-80:4")).version,
    }
    assert len(versions) == 6
    assert AnalyticCostModel(HUNYUAN).version == AnalyticCostModel(HUNYUAN).version


def test_encoding_shares_the_clips_with_an_overlap() -> None:
    assert encode_share(3, 1) == 3
    assert encode_share(1, 2) == pytest.approx(0.57)
    assert encode_share(1, 10_000) == pytest.approx(0.14, abs=0.001)


def test_unknown_tasks_and_bad_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="knows encode, denoise, not 'decode'"):
        MODEL.options("decode", batch(5), H100)
    with pytest.raises(InputError, match="between 0 and 1"):
        AnalyticCostModel(HUNYUAN, encode_efficiency=0)
    with pytest.raises(InputError, match="at least 1"):
        AnalyticCostModel(HUNYUAN, max_degree=0)
    with pytest.raises(InputError, match="shards"):
        MemoryRule(weight_shards=0)
    with pytest.raises(InputError, match="reserve_share"):
        MemoryRule(reserve_share=1)
