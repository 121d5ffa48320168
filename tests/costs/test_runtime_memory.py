"""What our runtime holds, as priced; tests/executor/test_memory.py holds it against peaks."""

import pytest

from arachne_opt.cluster_file import parse_shorthand
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.costs.runtime_memory import RuntimeMemory
from arachne_opt.errors import InputError
from arachne_opt.models import model_spec
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape

WAN = model_spec("wan2.1-1.3b")
SHAPE = Shape(frames=81, height=480, width=832)


def batch(clips=1):
    return MicroBatch(
        id="b", shape=SHAPE, clips=tuple(Clip(id=f"c{i}", shape=SHAPE) for i in range(clips))
    )


def test_states_are_shared_out_as_the_sharding_says():
    each = 4 * WAN.parameters
    vae = 4 * WAN.vae.encoder_parameters
    states = {
        s: RuntimeMemory(model=WAN, ranks=8, sharding=s).states_bytes() - vae
        for s in ("replicated", "zero1", "fsdp2")
    }
    assert states == {
        "replicated": 4 * each,
        "zero1": 2 * each + each // 4,
        "fsdp2": 2 * each + each // 2,
    }


def test_computing_again_and_wider_groups_take_less():
    memory = RuntimeMemory(model=WAN, ranks=8)
    kept, again = (memory.denoise_bytes(batch(), 1, recompute=r) for r in (False, True))
    states = memory.states_bytes()
    assert (kept - states) > 10 * (again - states)
    wide = memory.denoise_bytes(batch(), 4, recompute=False)
    assert 0.2 < (wide - states) / (kept - states) < 0.3
    assert memory.denoise_bytes(batch(2), 1, recompute=False) - states > 1.9 * (kept - states)


def test_a_plan_may_choose_between_both_and_the_prices_have_a_version_of_their_own():
    cluster = parse_shorthand("H100-80:8")
    usual = analytic_for_cluster(WAN, cluster)
    runtime = RuntimeMemory(model=WAN, ranks=8)
    both = analytic_for_cluster(WAN, cluster, recompute=True, runtime=runtime)
    (kind,) = cluster.device_types.values()
    options = both.options("denoise", batch(), kind)
    kept = [o for o in options if not o.recompute]
    again = [o for o in options if o.recompute]
    assert [o.degree for o in kept] == [o.degree for o in again] == [1, 2, 3, 4, 6]
    for a, b in zip(kept, again, strict=True):
        assert a.duration_us < b.duration_us < 1.4 * a.duration_us
        assert a.memory_bytes > b.memory_bytes
    assert not any(o.recompute for o in both.options("encode", batch(), kind))
    sharded = analytic_for_cluster(
        WAN, cluster, recompute=True, runtime=RuntimeMemory(model=WAN, ranks=8, sharding="fsdp2")
    )
    assert len({usual.version, both.version, sharded.version}) == 3


def test_what_does_not_fit_with_activations_kept_is_planned_with_them_computed_again():
    cluster = parse_shorthand("H100-80:2")
    runtime = RuntimeMemory(model=WAN, ranks=2)
    costs = analytic_for_cluster(WAN, cluster, recompute=True, runtime=runtime)
    iteration = Iteration(name="one", micro_batches=(batch(),))
    (cascade,) = build_problem(iteration, cluster, costs).cascades
    assert {(o.degree, o.recompute) for o in cascade.tasks[1].options} == {(1, True), (2, True)}


@pytest.mark.parametrize(("ranks", "sharding"), [(0, "zero1"), (2, "zero3")])
def test_what_is_no_run_is_refused(ranks, sharding):
    with pytest.raises(InputError, match="no memory model of"):
        RuntimeMemory(model=WAN, ranks=ranks, sharding=sharding)
