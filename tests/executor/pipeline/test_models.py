"""Rows: what a layout may rely on when it cuts them."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.models.blocks import WordTable
from arachne_opt.executor.pipeline.models.configs import spec_of_architecture
from arachne_opt.executor.pipeline.models.experts import SparseFeedForward, balance_loss
from arachne_opt.executor.pipeline.models.parameters import row_parameters, tied_parameters
from arachne_opt.executor.pipeline.models.rows import build_row
from arachne_opt.pipeline.architecture import rows_of
from arachne_opt.pipeline.presets import ARCHITECTURES, architecture
from tests.executor.pipeline.models import GPT, LLAMA, MIXTRAL, train_whole, whole_model

SPECS = (LLAMA, GPT, MIXTRAL)
ids_of = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


def batch(samples=4, tokens=12, seed=1):
    drawn = torch.randint(
        0, 97, (samples, tokens + 1), generator=torch.Generator().manual_seed(seed)
    )
    return drawn[:, :-1], drawn[:, 1:]


@ids_of
def test_the_description_of_parameters_is_that_of_the_modules(spec):
    for row in range(spec.row_count):
        module = build_row(spec, row, device="meta")
        found = {name: tuple(p.shape) for name, p in module.named_parameters()}
        assert found == {p.name: p.shape for p in row_parameters(spec, row)}


@pytest.mark.parametrize("name", ["OPT-350M", "Llama-3-8B", "Mixtral-8x7B", "DeepSeekMoE-16B"])
def test_published_models_have_the_parameters_that_the_planner_counts(name):
    model = architecture(name)
    spec, rows = spec_of_architecture(model), rows_of(model, dtype_bytes=1)
    for row in range(spec.row_count):
        count = sum(torch.Size(p.shape).numel() for p in row_parameters(spec, row))
        planned = rows.parameter_bytes[row]
        if rows.experts is not None:
            planned += rows.experts.parameter_bytes[row]
        # OPT-350M's head has no norm, and biases of embeddings are not counted.
        assert count == pytest.approx(planned, abs=2 * model.hidden), row


def test_every_published_model_but_those_of_unknown_families_has_a_spec():
    for name, model in ARCHITECTURES.items():
        assert spec_of_architecture(model).name == name
    strange = replace(architecture("Llama-7B"), family="mamba")
    with pytest.raises(InputError, match="cannot run models of the family 'mamba'"):
        spec_of_architecture(strange)


@ids_of
def test_weights_depend_on_seed_row_and_name_alone(spec):
    for row in (0, 2, spec.head_row):
        first, second = build_row(spec, row, seed=3), build_row(spec, row, seed=3)
        other = build_row(spec, row, seed=4)
        for (name, a), b, c in zip(
            first.named_parameters(), second.parameters(), other.parameters(), strict=True
        ):
            assert torch.equal(a, b), name
            assert a.ndim == 1 or not torch.equal(a, c), name
    for row, name in tied_parameters(spec):
        copy = build_row(spec, row, seed=3).get_parameter(name)
        assert torch.equal(copy, build_row(spec, 0, seed=3).get_parameter("words.weight"))


@ids_of
def test_samples_do_not_see_each_other_nor_tokens_those_after_them(spec):
    tokens, _ = batch()
    model = whole_model(spec)
    with torch.no_grad():
        together = model(tokens)
        alone = torch.cat([model(tokens[i : i + 1]) for i in range(4)])
        shorter = model(tokens[:, :5])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together[:, :5], shorter, atol=1e-5, rtol=1e-5)


@ids_of
@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (2, 2), (4, 1), (4, 4)])
def test_the_parts_of_all_ranks_cover_each_parameter_as_often_as_there_are_copies(spec, tp, ep):
    for row in range(spec.row_count):
        for p in row_parameters(spec, row):
            covered = torch.zeros(p.shape)
            for rank in range(tp):
                for expert in range(ep):
                    covered[p.part(tp, rank, ep, expert)] += 1
            experts = ep if p.ep_axis is None else 1
            assert (covered == p.copies(tp) * experts).all(), p.name


def test_few_key_value_heads_are_copied_to_neighbours_and_odd_vocabularies_leave_a_short_part():
    by_name = {p.name: p for p in row_parameters(LLAMA, 1)}
    key = by_name["attention.key.weight"]
    assert [key.part(4, rank)[0] for rank in range(4)] == [slice(0, 8)] * 2 + [slice(8, 16)] * 2
    query = by_name["attention.query.weight"]
    assert [query.part(4, rank)[0].start for rank in range(4)] == [0, 8, 16, 24]
    words = row_parameters(LLAMA, 0)[0]
    assert [words.part(2, rank)[0] for rank in range(2)] == [slice(0, 49), slice(49, 97)]


def test_a_part_of_the_word_table_gives_zeros_for_words_that_it_does_not_hold():
    whole, tokens = build_row(LLAMA, 0).words, torch.tensor([[0, 48, 49, 96]])
    parts = []
    for rank in range(2):
        table = WordTable(LLAMA.vocabulary, LLAMA.embedding_width)
        table.first = 49 * rank
        table.weight = nn.Parameter(whole.weight[49 * rank : 49 * (rank + 1)].detach())
        parts.append(table(tokens))
    assert torch.equal(sum(parts), whole(tokens))
    assert not parts[0][0, 2:].any()
    assert not parts[1][0, :2].any()


def test_what_experts_get_is_in_the_order_of_the_router_and_unvisited_ones_get_zeros():
    row = build_row(MIXTRAL, 1)
    ffn = row.ffn
    assert isinstance(ffn, SparseFeedForward)
    seen = {}

    def spy(visits, counts, run):
        seen["counts"] = counts
        return run(visits, counts)

    ffn.exchange = spy
    x = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(0))
    ffn(x).sum().backward()
    assert int(seen["counts"].sum()) == 3 * 2
    assert ffn.experts.up.grad.shape == ffn.experts.up.shape
    for expert, visits in enumerate(seen["counts"].tolist()):
        assert bool(ffn.experts.up.grad[expert].any()) == (visits > 0)


def test_the_balance_loss_adds_up_over_samples_and_reaches_the_router_alone_once():
    chance = torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
    chosen = chance.flatten(0, 1).topk(2, dim=-1).indices
    together = balance_loss(chance, chosen)
    alone = sum(balance_loss(chance[i : i + 1], chosen[5 * i : 5 * i + 5]) for i in range(3))
    torch.testing.assert_close(together, alone)
    even = torch.full((1, 4, 4), 0.25)
    spread = torch.tensor([[0, 1], [2, 3], [0, 1], [2, 3]])
    assert balance_loss(even, spread).item() == pytest.approx(4)  # 1 for each token
    steps = [batch()] * 2
    plain, balanced = train_whole(MIXTRAL, steps), train_whole(MIXTRAL, steps, balance=0.1)
    router = (1, "ffn.router.weight")
    assert not torch.allclose(plain.gradients[0][router], balanced.gradients[0][router])
    last = MIXTRAL.layers
    for name in ("ffn.experts.up", "ffn.experts.down"):
        same = plain.gradients[0][last, name], balanced.gradients[0][last, name]
        torch.testing.assert_close(*same)
    assert plain.losses[0] == balanced.losses[0]


@ids_of
def test_training_lowers_the_loss(spec):
    losses = train_whole(spec, [batch()] * 8, learning_rate=1e-2).losses
    assert losses[-1] < 0.8 * losses[0]


def test_wrong_rows_long_samples_and_illegal_degrees_are_refused():
    with pytest.raises(InputError, match="row 8 of a model of 8 rows"):
        build_row(LLAMA, 8)
    with pytest.raises(InputError, match="a sample of 25 tokens for the 24 positions"):
        build_row(GPT, 0)(torch.zeros(1, 25, dtype=torch.long))
    assert LLAMA.why_illegal(4) is None
    assert "does not divide the 4 heads" in LLAMA.why_illegal(3)
    assert "feed-forward width" in replace(LLAMA, ffn=49).why_illegal(2)
    odd = replace(LLAMA, heads=12, kv_heads=6, hidden=96)
    assert "key-value heads" in odd.why_illegal(4)
