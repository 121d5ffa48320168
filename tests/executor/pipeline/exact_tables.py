"""A planner's problem whose tables have the sizes that a model really has."""

from dataclasses import replace

from arachne_opt.executor.pipeline.models.parameters import row_parameters
from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from arachne_opt.pipeline.cells import box_of, size
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.rows import RowSizes
from tests.executor.pipeline.models import MIXTRAL
from tests.pipeline_builders import small_problem

# All degrees and shards are whole, as the planner's tables have them.
SPEC = replace(MIXTRAL, vocabulary=96, kv_heads=4)


def exact_problem(spec: DecoderSpec = SPEC) -> PipelineProblem:
    """Two nodes of four devices, and tables with the sizes that the model really has."""
    problem = small_problem("A100-40=8", rows=spec.row_count, experts=4)

    def held(row: int, tp: int, experts: bool) -> int:
        parts = [p.part(tp) for p in row_parameters(spec, row) if (p.ep_axis is None) != experts]
        return sum(size(box_of(part)) for part in parts)

    rows = range(spec.row_count)
    sizes = tuple(
        RowSizes(
            tp=tp,
            parameters=tuple(held(row, tp, False) for row in rows),
            kept=(1,) * len(rows),
            expert_parameters=tuple(held(row, tp, True) for row in rows),
        )
        for tp in (1, 2, 4)
    )
    return replace(problem, model=replace(problem.model, sizes=sizes))
