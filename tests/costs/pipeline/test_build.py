"""Problems from profiles: estimates, zones, sparse and computed models."""

from dataclasses import replace

import pytest

from arachne_opt.cluster import Link, ZoneLink
from arachne_opt.costs.pipeline.analytic import analytic_profiles
from arachne_opt.costs.pipeline.build import build_problem
from arachne_opt.costs.pipeline.moe import MoeRule, moe_profiles
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.errors import InputError
from arachne_opt.pipeline.memory import MIXED_PRECISION
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.presets import ARCHITECTURES
from arachne_opt.pipeline.problem import PipelineOptions
from tests.pipeline_builders import small_problem


def profiles_of(problem) -> Profiles:
    return Profiles(
        model=problem.model,
        steps=problem.tables.steps,
        routes=problem.tables.routes,
        node_links=problem.tables.node_links,
        home_zone="default",
        version="1",
    )


def test_an_unknown_type_is_refused_and_estimated_when_asked():
    profiles = profiles_of(small_problem())
    cluster = parse_pool("H100-80=4,A100-40=4")
    with pytest.raises(InputError, match=r"no profile for type H100-80.*known types A100-40"):
        build_problem(profiles, cluster, 16)
    problem = build_problem(profiles, cluster, 16, allow_estimates=True)
    guesses = [s for s in problem.tables.steps if s.device_type == "H100-80"]
    assert guesses
    assert all(s.error is not None and s.error >= 0 for s in guesses)
    measured = [s for s in problem.tables.steps if s.error is None]
    assert {s.device_type for s in measured} == {"A100-40"}
    assert "estimates" in problem.notes[-1]
    assert "%" in problem.notes[-1]
    costs = TableCosts(problem)
    forward, _ = costs.cut_s([ReplicaKind("H100-80")], [ReplicaKind("A100-40")], 4)
    assert 0 < forward[3] < 1


def test_a_faster_card_is_estimated_as_faster():
    problem = build_problem(
        profiles_of(small_problem()),
        parse_pool("H100-80=4,V100-16=4"),
        16,
        allow_estimates=True,
    )
    costs = TableCosts(problem)
    fast, slow = (costs.work_s(ReplicaKind(k), 1, 0, 6) for k in ("H100-80", "V100-16"))
    assert fast < slow


def test_missing_microbatches_are_interpolated_between_measured_ones_only():
    problem = small_problem("A100-40=4")
    kept = tuple(s for s in problem.tables.steps if s.microbatch in (2, 4, 8))
    profiles = replace(profiles_of(problem), steps=kept)
    options = PipelineOptions(microbatches=(1, 3, 4, 16))
    cluster = parse_pool("A100-40=4")
    plain = TableCosts(build_problem(profiles, cluster, 16, options=options))
    assert plain.microbatches(ReplicaKind("A100-40")) == (4,)
    filled = TableCosts(build_problem(profiles, cluster, 16, options=options, allow_estimates=True))
    kind = ReplicaKind("A100-40")
    assert filled.microbatches(kind) == (3, 4)
    by_size = {s.microbatch: s for s in kept if s.tp == 1}
    middle = [(a + b) / 2 for a, b in zip(by_size[2].forward_s, by_size[4].forward_s, strict=True)]
    found = filled.problem.tables.step_by_key["A100-40", 1, 3]
    assert list(found.forward_s) == pytest.approx(middle)


def test_a_missing_degree_lies_between_its_neighbours():
    problem = small_problem("A100-40=4")
    kept = tuple(s for s in problem.tables.steps if s.tp != 2)
    profiles = replace(profiles_of(problem), steps=kept)
    built = build_problem(profiles, parse_pool("A100-40=4"), 16, allow_estimates=True)
    one, two, four = (sum(built.tables.step_by_key["A100-40", tp, 1].forward_s) for tp in (1, 2, 4))
    assert min(one, four) < two < max(one, four)


def test_the_stated_error_is_that_on_left_out_points():
    problem = small_problem("A100-40=4")
    line = [s for s in problem.tables.steps if s.tp == 1 and s.microbatch in (1, 2, 4, 8)]
    straight = [
        replace(
            s,
            forward_s=(1.0 * s.microbatch,) * 6,
            backward_s=(2.0 * s.microbatch,) * 6,
        )
        for s in line
    ]
    profiles = replace(profiles_of(problem), steps=tuple(straight))
    built = build_problem(profiles, parse_pool("A100-40=4"), 16, allow_estimates=True)
    assert built.tables.step_by_key["A100-40", 1, 3].error == pytest.approx(0, abs=1e-12)
    bent = [replace(s, forward_s=(3.0,) * 6) if s.microbatch == 2 else s for s in straight]
    built = build_problem(
        replace(profiles, steps=tuple(bent)), parse_pool("A100-40=4"), 16, allow_estimates=True
    )
    # Left out, 2 is guessed as 2 of 3 + 4 and 4 as 13/3 between 3 and 8.
    at_two, at_four = abs(6 / 7 - 1), abs((3 + 5 / 3 + 8) / 12 - 1)
    expected = (at_two + at_four) / 2
    assert built.tables.step_by_key["A100-40", 1, 3].error == pytest.approx(expected)


def test_zones_need_a_link():
    profiles = profiles_of(small_problem("A100-40=4"))
    cluster = parse_pool("A100-40=4,moon/A100-40=4")
    with pytest.raises(InputError, match=r"no link from zone \w+ to zone \w+"):
        build_problem(profiles, cluster, 16)


def test_a_clusters_own_zone_link_joins_zones_without_curves():
    problem = small_problem("east/A100-40=4,west/A100-40=4")
    inside = tuple(r for r in problem.tables.routes if r.source.zone == r.target.zone)
    profiles = replace(profiles_of(problem), routes=inside)
    cluster = parse_pool("east/A100-40=4,west/A100-40=4")
    link = ZoneLink(zones=("east", "west"), link=Link(bandwidth_bytes_per_s=10**9, latency_us=1000))
    built = build_problem(profiles, replace(cluster, zone_links=(link,)), 16)
    costs = TableCosts(built)
    east, west = (ReplicaKind("A100-40", zone=z) for z in ("east", "west"))
    forward, _ = costs.cut_s([east], [west], 1)
    assert forward[3] == pytest.approx(problem.model.output_bytes[2] / 1e9 + 1e-3)


def test_computed_profiles_scale_with_the_cards_and_the_group():
    cluster = parse_pool("H100-80=8,A100-80=8", 8)
    problem = build_problem(
        analytic_profiles(ARCHITECTURES["Llama-3-8B"], cluster), cluster, 64, memory=MIXED_PRECISION
    )
    costs = TableCosts(problem)
    h100, a100 = (ReplicaKind(k) for k in ("H100-80", "A100-80"))
    assert costs.row_count == 34
    assert costs.work_s(a100, 1, 1, 33) == pytest.approx(
        costs.work_s(h100, 1, 1, 33) * 989.4 / 312, rel=1e-6
    )
    pair = costs.work_s(a100._replace(tp=2), 1, 1, 33)
    assert 0.5 < pair / costs.work_s(a100, 1, 1, 33) < 0.7
    # 6 operations a parameter and token, plus attention, at 40 % of the peak.
    tokens, weights = 8192, 6_979_584_000
    attention = 3 * 4 * tokens * tokens * 4096 * 32
    expected = (6 * tokens * weights + attention) / (0.4 * 989.4e12)
    assert costs.work_s(h100, 1, 1, 33) == pytest.approx(expected, rel=0.01)
    assert "not measured" in problem.notes[0]


def test_a_computed_sparse_model_works_like_its_active_experts():
    cluster = parse_pool("H100-80=8", 8)
    profiles = analytic_profiles(ARCHITECTURES["Mixtral-8x7B"], cluster, imbalance=1.5)
    costs = TableCosts(build_problem(profiles, cluster, 64, memory=MIXED_PRECISION))
    alone, spread = ReplicaKind("H100-80"), ReplicaKind("H100-80", 1, 8, True)
    assert costs.work_s(spread, 1, 1, 33) > costs.work_s(alone, 1, 1, 33)
    assert costs.memory_bytes(spread, 1, 1, 33, 1) < costs.memory_bytes(alone, 1, 1, 33, 1) / 3


def test_experts_by_rule_work_top_k_times_and_weigh_all():
    dense = profiles_of(small_problem("A100-40=8"))
    width = 1024
    block = 12 * width**2
    model = replace(
        dense.model,
        sequence_length=2048,
        parameter_bytes=(7, *[4 * block] * 4, 9),
        sizes=tuple(replace(s, parameters=(7, *[block // s.tp] * 4, 9)) for s in dense.model.sizes),
    )
    dense = replace(dense, model=model)
    rule = MoeRule(name="sparse", experts=4, top_k=2, hidden=width, imbalance=1.25)
    profiles = moe_profiles(dense, rule)
    share = 16 * width**2 / (24 * width**2 + 4 * 2048 * width)
    for before, after in zip(dense.steps, profiles.steps, strict=True):
        assert after.forward_s[0] == before.forward_s[0]
        assert after.forward_s[2] == pytest.approx(before.forward_s[2] * (1 - share + 2 * share))
        assert after.expert_forward_s[2] == pytest.approx(before.forward_s[2] * 2 * share)
        assert after.expert_forward_s[0] == 0
    sizes = profiles.model.sizes_by_tp[1]
    assert sizes.parameters[2] == 4 * width**2
    assert sizes.expert_parameters[2] == 4 * 8 * width**2
    experts = profiles.model.experts
    assert experts.exchange_bytes[1] == 2048 * width * 2 * 4
    assert experts.exchange_bytes[0] == experts.parameter_bytes[5] == 0
    assert len(profiles.notes) == 3


def test_the_rule_refuses_a_width_that_is_not_that_of_the_model():
    with pytest.raises(InputError, match="no room"):
        moe_profiles(
            profiles_of(small_problem()), MoeRule(name="x", experts=2, top_k=1, hidden=90_000)
        )
