"""Files of examples survive whatever happens to the process that writes them."""

import dataclasses

import pytest

from arachne_opt.errors import InputError
from arachne_opt.learning import generation
from arachne_opt.learning.drawing import drawn_cascades, drawn_pipelines
from arachne_opt.learning.examples import Example, ExampleFile, Recipe, read_examples
from arachne_opt.learning.generation import generate
from arachne_opt.learning.jobs import Workers
from arachne_opt.learning.lessons import cases_of_file
from arachne_opt.learning.worlds import HELD_OUT, LEARNED

RECIPE = Recipe(policy="templates", world="learned", units=1.0, features=1, searched=0)


def example(number: int) -> Example:
    return Example(
        number=number, plan=None, objective_us=0, bound_us=0, priced=((number, 1, 0, 2.5),)
    )


def written(path, *numbers):
    with ExampleFile(path, RECIPE) as file:
        for number in numbers:
            file.add(example(number))


def test_examples_come_back_by_number(tmp_path):
    path = tmp_path / "e.jsonl"
    written(path, 4, 0, 2)
    recipe, found = read_examples(path)
    assert recipe == RECIPE
    assert [e.number for e in found] == [0, 2, 4]
    assert found[1].priced == [[2, 1, 0, 2.5]]


def test_a_line_that_was_cut_is_dropped_and_made_again(tmp_path):
    path = tmp_path / "e.jsonl"
    written(path, 0, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    assert [e.number for e in read_examples(path)[1]] == [0]
    written(path, 1, 2)
    assert path.read_bytes().startswith(whole)
    assert [e.number for e in read_examples(path)[1]] == [0, 1, 2]


@pytest.mark.parametrize("units", [0.0, -1.0, float("nan"), float("inf")])
def test_work_that_is_no_number_above_zero_is_refused_before_a_file_has_it(units):
    with pytest.raises(InputError, match="work is a number above 0"):
        dataclasses.replace(RECIPE, units=units)


@pytest.mark.parametrize("other", [1, 3])
def test_plans_for_problems_that_are_no_longer_drawn_are_refused_by_name(tmp_path, other):
    recipe = dataclasses.replace(RECIPE, policy="cascades", units=0.01)
    made = generation.example(recipe, 0)
    path = tmp_path / "e.jsonl"
    with ExampleFile(path, recipe) as file:
        file.add(made)
    assert len(cases_of_file(path, "cascades")) == 1
    path.unlink()
    with ExampleFile(path, recipe) as file:
        file.add(dataclasses.replace(made, number=other))
    with pytest.raises(InputError, match=f"example {other} is for another problem") as refused:
        cases_of_file(path, "cascades")
    assert refused.value.where == str(path)
    assert "--examples" in refused.value.hint


def test_a_file_of_another_recipe_is_refused(tmp_path):
    path = tmp_path / "e.jsonl"
    written(path, 0)
    other = dataclasses.replace(RECIPE, units=2.0)
    with pytest.raises(InputError, match=r"holds examples of .*another --examples"):
        ExampleFile(path, other).__enter__()


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "e.jsonl"
    written(path, 0, 1)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:9], lines[2]]) + "\n")
    with pytest.raises(InputError, match="line 2: is no JSON"):
        read_examples(path)


def test_generation_goes_on_where_it_ended(tmp_path, monkeypatch):
    made = []

    def fake(recipe, number):
        made.append(number)
        return example(number)

    monkeypatch.setattr(generation, "example", fake)
    path, told = tmp_path / "e.jsonl", []
    stop = [False]
    generate(
        path,
        RECIPE,
        range(6),
        Workers(),
        told=lambda done, of: (told.append((done, of)), stop.__setitem__(0, done == 3)),
        should_stop=lambda: stop[0],
    )
    assert made == [0, 1, 2]
    found = generate(path, RECIPE, range(6), Workers())
    assert made == [0, 1, 2, 3, 4, 5]
    assert [e.number for e in found] == [0, 1, 2, 3, 4, 5]
    assert told[-1] == (3, 6)


def test_a_number_always_means_the_same_problem():
    for draw in (drawn_pipelines, drawn_cascades):
        assert draw(LEARNED, 3).fingerprint() == draw(LEARNED, 3).fingerprint()
        assert draw(LEARNED, 3).fingerprint() != draw(LEARNED, 4).fingerprint()


def test_held_out_clusters_share_nothing_with_those_that_are_learned_from():
    assert not {*LEARNED.types} & {*HELD_OUT.types}
    assert not {*LEARNED.node_sizes} & {*HELD_OUT.node_sizes}
    assert not {*LEARNED.node_counts} & {*HELD_OUT.node_counts}
    assert not {*LEARNED.video_nodes} & {*HELD_OUT.video_nodes}
    assert not {*LEARNED.video_types} & {*HELD_OUT.video_types}
    assert not {*LEARNED.video_models} & {*HELD_OUT.video_models}
