"""Who may import whom, and what must stay cheap to import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("arachne_opt", "solvers", "executor", "db")

# What a room may import besides itself; those above, on the same floor as the service, may import
# all.
ALLOWED = {
    "domain": set(),
    "costs": {"domain"},
    "solvers": {"domain", "costs"},
    "db": {"domain"},
    "executor": {"domain"},
    "importers": {"domain", "costs"},
    "exporters": {"domain", "costs"},
    "report": {"domain", "costs"},
}
ABOVE = {"__main__", "bench", "cli", "learning", "planning"}
HEAVY = ("torch", "diffusers", "ortools", "pulp", "highspy", "sqlalchemy", "alembic", "pandas")


def module_name(path: Path) -> str:
    """Import name of a file of the checkout."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "arachne_opt" else ("arachne_opt", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The room of a module: its folder, or the domain."""
    first = module.split(".")[1] if "." in module else "domain"
    return first if first in ALLOWED or first in ABOVE else "domain"


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports, anywhere in it, by absolute name."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path.parent)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if ours(alias.name))
        if isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*up, node.module or ""]).rstrip(".") if node.level else node.module
            if base == "arachne_opt":
                yield from (f"arachne_opt.{alias.name}" for alias in node.names)
            elif ours(base or ""):
                yield base or ""


def ours(module: str) -> bool:
    return module.split(".")[0] == "arachne_opt"


def modules_of(*rooms: str) -> list[str]:
    return [name for name in map(module_name, sources()) if room_of(name) in rooms]


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_lies_below_it(room):
    seen = 0
    for path in sources():
        if room_of(module_name(path)) != room:
            continue
        for module in imports(path):
            other = room_of(module)
            assert other in ALLOWED[room] | {room}, f"{path.relative_to(ROOT)} imports {module}"
            seen += 1
    assert seen, f"no import was found in {room}: the test looks in the wrong place"


def test_planning_does_not_know_the_command_line():
    for path in (ROOT / "arachne_opt" / "planning").glob("*.py"):
        assert "cli" not in {room_of(module) for module in imports(path)}, path.name


def loaded_after(modules: list[str]) -> set[str]:
    """Top-level packages in memory after importing modules in a new interpreter."""
    code = "import importlib, sys; sys.path.insert(0, sys.argv[1])\n"
    code += "for name in sys.argv[2:]: importlib.import_module(name)\n"
    code += "print(*{name.partition('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", code, str(ROOT), *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    return set(done.stdout.split())


def test_the_domain_is_cheap_to_import():
    domain = modules_of("domain")
    assert "arachne_opt.cascade.check" in domain
    assert not loaded_after(domain) & {*HEAVY, "numpy", "networkx"}


def test_reports_and_importers_load_no_engine():
    assert not loaded_after(modules_of("report", "importers", "exporters")) & set(HEAVY)


def test_solvers_load_neither_torch_nor_a_database():
    assert not loaded_after(modules_of("solvers")) & {"torch", "diffusers", "sqlalchemy", "alembic"}


def test_databases_load_neither_torch_nor_a_solver():
    names = [name for name in modules_of("db") if ".migrations." not in name]
    assert not loaded_after(names) & {"torch", "diffusers", "ortools", "pulp", "highspy"}
