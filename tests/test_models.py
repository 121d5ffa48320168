"""Model presets and what follows from them."""

import pytest

from arachne_opt.errors import InputError
from arachne_opt.models import MODELS, ModelSpec, TextUse, model_spec
from arachne_opt.workload import Shape

HD = Shape(frames=129, height=720, width=1280)


def counted_parameters(m: ModelSpec) -> int:
    """Weights of the blocks alone, by the shapes of their matrices."""
    h, f, cross = m.hidden, m.ffn, m.text_use is TextUse.CROSS
    if m.family == "hunyuan_video":
        double = 2 * (4 * h * h + 2 * h * f + 6 * h * h)
        single = 4 * h * h + 2 * h * f + 3 * h * h
        return 20 * double + 40 * single
    modulation = 12 * 512 * h if m.family == "cogvideox" else 0
    return m.layers * (4 * h * h + 2 * h * f + (4 * h * h if cross else 0) + modulation)


@pytest.mark.parametrize(
    "name", ["hunyuanvideo-13b", "wan2.1-1.3b", "wan2.1-14b", "cogvideox-2b", "cogvideox-5b"]
)
def test_the_parameters_agree_with_the_layers(name: str) -> None:
    spec = model_spec(name)
    assert counted_parameters(spec) == pytest.approx(spec.parameters, rel=0.06)


def test_presets_have_the_published_sizes() -> None:
    billions = {name: round(spec.parameters / 1e9, 1) for name, spec in MODELS.items()}
    assert billions["hunyuanvideo-13b"] == 12.8
    assert billions["wan2.1-14b"] == 14.3
    assert billions["wan2.1-1.3b"] == 1.4
    assert billions["cogvideox-2b"] == 1.7
    assert billions["cogvideox-5b"] == 5.6
    assert all(spec.source for spec in MODELS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-wan", "demo-wan"])
def test_the_tiny_presets_count_the_parameters_of_the_real_classes(name: str) -> None:
    diffusers = pytest.importorskip("diffusers", reason="needs the extra video")
    spec = model_spec(name)
    net = diffusers.WanTransformer3DModel(
        num_attention_heads=spec.heads,
        attention_head_dim=spec.head_dim,
        in_channels=spec.in_channels,
        out_channels=spec.out_channels,
        text_dim=spec.text_width,
        freq_dim=32,
        ffn_dim=spec.ffn,
        num_layers=spec.layers,
    )
    assert sum(p.numel() for p in net.parameters()) == spec.parameters


def test_720p_at_129_frames_has_118800_tokens() -> None:
    assert model_spec("hunyuanvideo-13b").latent_shape(HD) == (33, 90, 160)
    assert model_spec("hunyuanvideo-13b").tokens(HD) == 33 * 45 * 80 == 118_800


def test_the_first_frame_stands_alone() -> None:
    spec = model_spec("wan2.1-14b")
    frames = [spec.latent_shape(Shape(frames=n, height=64, width=64))[0] for n in (1, 4, 5, 8, 9)]
    assert frames == [1, 1, 2, 2, 3]


def test_shapes_are_rounded_down_to_what_the_model_takes() -> None:
    spec = model_spec("wan2.1-14b")
    assert spec.fit_shape(Shape(frames=100, height=1080, width=1920)) == Shape(
        frames=97, height=1072, width=1920
    )
    assert spec.fit_shape(HD) == HD
    assert spec.fit_shape(Shape(frames=1, height=16, width=16)).frames == 1


def test_rounding_twice_changes_nothing_and_keeps_the_tokens() -> None:
    spec = model_spec("cogvideox-5b")
    for frames in range(1, 30):
        shape = Shape(frames=frames, height=100 + frames, width=50 + 7 * frames)
        once = spec.fit_shape(shape)
        assert spec.fit_shape(once) == once
        assert spec.tokens(once) == spec.tokens(shape)


def test_a_clip_below_one_token_is_refused() -> None:
    with pytest.raises(InputError, match=r"smaller than one token.*at least 16 x 16"):
        model_spec("wan2.1-14b").fit_shape(Shape(frames=5, height=8, width=64))
    with pytest.raises(InputError, match="smaller than one token"):
        model_spec("wan2.1-14b").tokens(Shape(frames=5, height=64, width=15))


def test_legal_degrees_divide_the_heads() -> None:
    assert model_spec("wan2.1-14b").legal_degrees(16) == (1, 2, 4, 5, 8, 10)
    assert model_spec("hunyuanvideo-13b").legal_degrees(12) == (1, 2, 3, 4, 6, 8, 12)
    assert model_spec("tiny-wan").legal_degrees(64) == (1, 2, 4)


def test_an_illegal_degree_is_explained_with_the_legal_ones() -> None:
    reason = model_spec("wan2.1-14b").why_illegal(3)
    expected = "degree 3 does not divide the 40 heads of wan2.1-14b; legal: 1, 2, 4, 5, 8, 10"
    assert reason is not None
    assert reason.startswith(expected)
    assert model_spec("wan2.1-14b").why_illegal(0) is not None
    assert model_spec("wan2.1-14b").why_illegal(8) is None


def test_latents_hold_their_channels_at_two_bytes() -> None:
    assert model_spec("hunyuanvideo-13b").latent_bytes(HD) == 33 * 90 * 160 * 16 * 2


def test_text_is_cut_to_the_model_and_unknown_text_is_padded() -> None:
    spec = model_spec("hunyuanvideo-13b")
    assert [spec.used_text_tokens(n) for n in (0, 10, 1000)] == [256, 10, 256]


def test_an_unknown_model_is_guessed() -> None:
    with pytest.raises(InputError, match=r"did you mean 'wan2.1-14b'"):
        model_spec("wan-2.1-14b")
