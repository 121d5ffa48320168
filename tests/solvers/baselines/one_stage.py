"""Small problems with one task per cascade, for rules that can be followed by hand."""

from arachne_opt.cascade.problem import Cascade, CascadeProblem
from tests.strategies import even_cluster, simple_task


def one_stage(devices: int, *durations_us: dict[int, int]) -> CascadeProblem:
    """Cascades of one task each with these times by degree, on one node."""
    cascades = tuple(
        Cascade(id=str(i), tasks=(simple_task("denoise", row),))
        for i, row in enumerate(durations_us)
    )
    return CascadeProblem(name="by hand", cluster=even_cluster(devices=devices), cascades=cascades)
