"""Column and row parallelism in the seams of a row, held against torch's own."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.executor.pipeline.models.parameters import row_parameters
from arachne_opt.executor.pipeline.models.rows import build_row
from arachne_opt.executor.pipeline.seams import Company, join_group, keep_parts
from arachne_opt.pipeline.cells import box_of, within
from tests.executor.pipeline.models import LLAMA
from tests.executor.ranks import run_ranks

COLUMNS = ("attention.query", "attention.key", "attention.value", "ffn.gate", "ffn.up")
ROWS = ("attention.output", "ffn.down")


def ours(rank: int) -> torch.nn.Module:
    row = build_row(LLAMA, 1)
    parameters = row_parameters(LLAMA, 1)
    keep_parts(row, {p.name: box_of(p.part(2, rank)) for p in parameters})
    company = Company(group=dist.group.WORLD, order=(0, 1))
    join_group(row, LLAMA.vocabulary, company, None)
    return row


def torchs() -> torch.nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    styles = {name: ColwiseParallel() for name in COLUMNS} | {n: RowwiseParallel() for n in ROWS}
    return parallelize_module(build_row(LLAMA, 1), init_device_mesh("cpu", (2,)), styles)


def both(rank: int) -> tuple[float, float]:
    """Largest differences of outputs and of gradients, our parts against torch's."""
    x = torch.randn(3, 7, LLAMA.hidden, generator=torch.Generator().manual_seed(4))
    outputs, gradients = [], []
    for row in (ours(rank), torchs()):
        given = x.clone().requires_grad_()
        out = row(given)
        out.square().sum().backward()
        outputs.append(out.detach())
        named = {name: local(p.grad) for name, p in row.named_parameters()}
        gradients.append(named | {"input": given.grad})
    one, two = gradients
    assert one.keys() == two.keys()
    worst = max((one[n] - two[n]).abs().max().item() for n in one)
    return (outputs[0] - outputs[1]).abs().max().item(), worst


def local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient


@pytest.mark.slow
def test_our_parts_give_what_parallelize_module_gives():
    for output, gradient in run_ranks(both, 2):
        assert output < 1e-6
        assert gradient < 1e-4


def test_parts_of_a_parameter_lie_where_their_boxes_say():
    whole = build_row(LLAMA, 1)
    parts = {p.name: box_of(p.part(4, 3)) for p in row_parameters(LLAMA, 1)}
    row = build_row(LLAMA, 1)
    keep_parts(row, parts)
    for name, box in parts.items():
        outer = tuple((0, n) for n in whole.get_parameter(name).shape)
        assert torch.equal(row.get_parameter(name), whole.get_parameter(name)[within(box, outer)])
