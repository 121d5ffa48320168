"""The example of a user's own model: as documented, priced, and exact under any plan."""

import itertools
from pathlib import Path

import pytest
import torch

from arachne_opt.cli.main import run
from arachne_opt.errors import InputError
from arachne_opt.executor.adapters import build_adapter
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.models import model_spec
from tests.executor import rank_tasks, reference
from tests.executor.jobs import ODD, SMALL, WIDE, batch, iteration_of, job_of
from tests.executor.ranks import run_ranks

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "own_model.py"
NAME = "own_model:SPEC"
BATCHES = (batch("a", ODD, 2), batch("b", WIDE), batch("d", SMALL, 3))


@pytest.fixture(autouse=True)
def _found(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))


def test_the_page_shows_the_example_as_it_is_and_it_is_short():
    text = EXAMPLE.read_text()
    assert text in (ROOT / "docs" / "adapters.md").read_text()
    assert len(text.splitlines()) < 80


def test_its_numbers_are_those_of_its_modules():
    spec, adapter = model_spec(NAME), build_adapter(ModelChoice(preset=NAME), torch.device("cpu"))
    assert sum(p.numel() for p in adapter.transformer.parameters()) == spec.parameters
    assert sum(p.numel() for p in adapter.vae.parameters()) == spec.vae.encoder_parameters


def test_four_ranks_give_the_gradients_of_one():
    wide = (
        (0, 0, (0,), 0),
        (1, 0, (1, 2), 0),
        (0, 1, (0, 1, 2, 3), 1),
        (2, 0, (3,), 2),
        (1, 1, (2,), 2),
        (2, 1, (0, 3), 3),
    )
    orders = enumerate(itertools.product(range(3), range(2)))
    alone = tuple((c, t, (0,), slot) for slot, (c, t) in orders)
    plans = {4: iteration_of("it", BATCHES, wide), 1: iteration_of("it", BATCHES, alone, 1)}
    found = {}
    for ranks, iteration in plans.items():
        job = job_of(iteration, preset=NAME, learning_rate=0.0)
        losses, gradients, *_ = run_ranks(rank_tasks.train, ranks, [job])[0][0]
        tensors = {name: torch.from_numpy(array) for name, array in gradients[0].items()}
        found[ranks] = losses[0], tensors
    assert found[4][0] == pytest.approx(found[1][0], rel=1e-6)
    assert reference.worst_difference(found[4][1], found[1][1]) < 1e-5


def test_the_command_line_plans_for_it(tmp_path, capsys):
    clips = str(ROOT / "examples" / "clips-tiny.csv")
    arguments = ["solve", "cascade", "--workload", clips, "--cluster", "CPU:4", "--model", NAME]
    database = ["--db", str(tmp_path / "plans.db"), "--time-limit", "1", "--iterations", "0"]
    assert run([*arguments, *database]) == 0
    assert "it0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:SPEC", "cannot import 'no_such_module'"),
        ("own_model:NOTHING", "has no 'NOTHING'"),
        ("own_model:OwnAdapter", "is a .*, not a ModelSpec"),
    ],
)
def test_what_is_no_model_is_named(name, message):
    with pytest.raises(InputError, match=message):
        ModelChoice(preset=name)


def test_a_class_that_is_no_adapter_is_refused(tmp_path, monkeypatch):
    text = EXAMPLE.read_text().replace("own_model:OwnAdapter", "odd_model:OwnBlock")
    (tmp_path / "odd_model.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="odd_model:OwnBlock is no VideoAdapter"):
        build_adapter(ModelChoice(preset="odd_model:SPEC"), torch.device("cpu"))
