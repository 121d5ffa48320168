"""Tokens: the same samples for every rank, each once an epoch, and clear words for bad files."""

from collections import defaultdict

import numpy as np
import pytest
import torch

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.job import TokenSource
from arachne_opt.executor.pipeline.samples import MadeUpText, TokenFile, open_samples
from arachne_opt.executor.pipeline.tokens import shuffled


def written(path, count=101, dtype=np.uint16):
    tokens = np.arange(count, dtype=dtype)
    if path.suffix == ".npy":
        np.save(path, tokens)
    else:
        tokens.tofile(path)
    return path


@pytest.mark.parametrize(
    ("name", "dtype"), [("a.bin", "uint16"), ("a.bin", "int32"), ("a.npy", "uint16")]
)
def test_each_sample_comes_once_an_epoch_in_another_order(tmp_path, name, dtype):
    path = written(tmp_path / name, dtype=np.dtype(dtype))
    source = TokenSource(path=str(path), dtype=dtype, length=10)
    samples = TokenFile(source, 101, seed=3)
    assert samples.count == 10
    orders = []
    for epoch in range(2):
        tokens, targets = samples(range(10 * epoch, 10 * epoch + 10))
        assert tokens.dtype == torch.int64
        assert torch.equal(targets, tokens + 1)
        orders.append(tokens[:, 0].tolist())
        assert sorted(orders[-1]) == list(range(0, 100, 10))
    assert orders[0] != orders[1]
    alone = TokenFile(source, 101, seed=3)([7])[0]
    assert torch.equal(alone, samples([3, 7])[0][1:])
    other = TokenFile(source, 101, seed=4)(range(10))[0][:, 0].tolist()
    assert other != orders[0]


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 1000])
def test_shuffling_is_one_to_one(count):
    assert sorted(shuffled(place, count, "7 0") for place in range(count)) == list(range(count))


def test_files_that_cannot_be_used_are_named(tmp_path):
    def source(name, length=10):
        return TokenSource(path=str(tmp_path / name), length=length)

    with pytest.raises(InputError, match="cannot read the tokens"):
        TokenFile(source("none.bin"), 101, 0)
    written(tmp_path / "short.bin", count=10)
    with pytest.raises(InputError, match="10 tokens are fewer than one sample of 10 and one"):
        TokenFile(source("short.bin"), 101, 0)
    np.save(tmp_path / "wide.npy", np.zeros((4, 50), dtype=np.uint16))
    with pytest.raises(InputError, match="one row of whole numbers"):
        TokenFile(source("wide.npy"), 101, 0)
    np.save(tmp_path / "float.npy", np.zeros(50))
    with pytest.raises(InputError, match="one row of whole numbers"):
        TokenFile(source("float.npy"), 101, 0)
    written(tmp_path / "big.bin")
    with pytest.raises(InputError, match="the token 100 is not among the 100 of the model"):
        TokenFile(source("big.bin"), 100, 0)(range(10))


def test_made_up_text_follows_a_rule_that_can_be_learnt():
    text = open_samples(TokenSource(length=64), 50, seed=1)
    assert isinstance(text, MadeUpText)
    tokens, targets = text(range(20))
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert torch.equal(text([13])[0], tokens[13:14])
    follows = defaultdict(list)
    for a, b in zip(tokens.flatten().tolist(), targets.flatten().tolist(), strict=True):
        follows[a].append(b)
    most = [max(map(after.count, set(after))) / len(after) for after in follows.values()]
    assert sum(most) / len(most) > 0.8
