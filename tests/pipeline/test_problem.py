"""Problems: what is refused, and which differences change the key of a plan."""

import json
from dataclasses import replace

import pytest

from arachne_opt.errors import InputError
from arachne_opt.pipeline.memory import MIXED_PRECISION
from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.pipeline.problem_json import problem_from_json, problem_to_json
from tests.pipeline_builders import small_problem


@pytest.mark.parametrize("experts", [0, 4])
def test_a_problem_survives_its_json_form(experts):
    problem = small_problem("A100-40=8+4,V100-16=2", experts=experts, gpus_per_node=8)
    back = problem_from_json(json.loads(json.dumps(problem_to_json(problem))))
    assert back == problem
    assert back.fingerprint() == problem.fingerprint()


@pytest.mark.parametrize("change", ["format", "tables", "memory"])
def test_malformed_problems_are_refused(change):
    value = problem_to_json(small_problem()) | {change: {"x": 1}}
    with pytest.raises(InputError):
        problem_from_json(value)


def test_equal_nodes_names_and_table_order_do_not_change_the_key():
    problem = small_problem("A100-40=4+2,V100-16=4")
    turned = replace(
        problem,
        name="other",
        cluster=replace(problem.cluster, nodes=problem.cluster.nodes[::-1]),
        model=replace(problem.model, name="other"),
        tables=replace(
            problem.tables,
            steps=problem.tables.steps[::-1],
            routes=problem.tables.routes[::-1],
        ),
    )
    assert turned.fingerprint() == problem.fingerprint()


def test_whatever_changes_the_answer_changes_the_key():
    problem = small_problem()
    others = [
        replace(problem, global_batch=17),
        replace(problem, options=PipelineOptions(zero1=True)),
        replace(problem, memory=MIXED_PRECISION),
        replace(problem, cost_version="2"),
        replace(problem, tables=replace(problem.tables, routes=problem.tables.routes[:-1])),
        replace(problem, model=replace(problem.model, sequence_length=64)),
        small_problem("A100-40=4,V100-16=5"),
    ]
    assert len({p.fingerprint() for p in (problem, *others)}) == len(others) + 1


def test_a_type_without_step_times_is_refused_with_what_there_is():
    problem = small_problem("A100-40=4,V100-16=4")
    steps = tuple(s for s in problem.tables.steps if s.device_type == "A100-40")
    with pytest.raises(InputError, match=r"no profile for type V100-16.*known types A100-40") as e:
        replace(problem, tables=replace(problem.tables, steps=steps))
    assert e.value.hint == "--allow-estimates"


def test_tables_of_another_model_are_refused():
    problem = small_problem()
    with pytest.raises(InputError, match="rows"):
        replace(problem, tables=small_problem(rows=9).tables)


@pytest.mark.parametrize(
    "choice", [{"max_tp": 0}, {"microbatches": ()}, {"microbatches": (0,)}, {"max_stages": -1}]
)
def test_senseless_options_are_refused(choice):
    with pytest.raises(InputError):
        PipelineOptions(**choice)


def test_rows_of_equal_sizes_are_known_as_equal():
    problem = small_problem()
    model = problem.model
    sizes = replace(model.sizes[0], parameters=(9, 5, 5, 5, 5, 7), kept=(1, 2, 2, 2, 3, 1))
    even = replace(model, sizes=(sizes,), parameter_bytes=(1,) * 6, output_bytes=(4, 4, 4, 4, 4, 9))
    assert even.size_classes() == (0, 1, 1, 1, 2, 3)
