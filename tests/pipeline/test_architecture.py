"""Public models by their numbers."""

import pytest

from arachne_opt.errors import InputError
from arachne_opt.pipeline.architecture import Architecture, ExpertLayers, rows_of
from arachne_opt.pipeline.presets import ARCHITECTURES, architecture

PUBLISHED = {
    "OPT-350M": 331e6,
    "GPT-Neo-2.7B": 2.65e9,
    "OPT-30B": 29.97e9,
    "Llama-7B": 6.74e9,
    "Llama-3-8B": 8.03e9,
    "Llama-3-70B": 70.6e9,
    "Mixtral-8x7B": 46.7e9,
    "DeepSeekMoE-16B": 16.4e9,
}


def test_every_preset_has_a_published_size_to_compare():
    assert set(PUBLISHED) == set(ARCHITECTURES)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published(name):
    assert architecture(name).total_parameters() == pytest.approx(PUBLISHED[name], rel=0.005)


@pytest.mark.parametrize("name", PUBLISHED)
def test_rows_hold_all_parameters_and_a_copy_of_tied_ones(name):
    model = architecture(name)
    rows = rows_of(model, degrees=(1,))
    sizes = rows.sizes_by_tp[1]
    held = sum(sizes.parameters) + sum(sizes.expert_parameters)
    copied = model.head_parameters() - model.norm_parameters() if model.tied else 0
    assert held == model.total_parameters() + copied
    assert rows.row_count == model.layers + 2


def test_equal_blocks_are_one_class():
    assert rows_of(architecture("Llama-3-8B")).size_classes() == (0, *[1] * 32, 2)
    fine = rows_of(architecture("DeepSeekMoE-16B"))
    assert fine.size_classes() == (0, 1, *[2] * 27, 3)  # the first layer is dense
    assert fine.experts.exchange_bytes[1] == 0
    assert fine.expert_degrees == (1, 2, 4, 8, 16, 32, 64)


def test_only_degrees_that_divide_the_heads_are_described():
    model = architecture("GPT-Neo-2.7B")  # 20 heads
    assert [s.tp for s in rows_of(model).sizes] == [1, 2, 4]


def test_tensor_parallel_devices_hold_their_share():
    sizes = rows_of(architecture("Llama-3-8B")).sizes_by_tp
    assert sizes[4].parameters[5] == pytest.approx(sizes[1].parameters[5] / 4, abs=1)
    assert sizes[1].kept[5] > sizes[4].kept[5] > sizes[1].kept[5] / 4


def test_an_unknown_model_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'Mixtral-8x7B'"):
        architecture("mixtral-8x7")


@pytest.mark.parametrize(
    "change", [{"layers": 0}, {"kv_heads": 3}, {"heads": 7, "kv_heads": 7}, {"hidden": -1}]
)
def test_impossible_numbers_are_refused(change):
    numbers = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 4, "ffn": 128, "vocabulary": 99}
    with pytest.raises(InputError, match="model x"):
        Architecture(name="x", family="x", sequence_length=8, **(numbers | change))
    with pytest.raises(InputError):
        ExpertLayers(count=4, top_k=5, width=8)
