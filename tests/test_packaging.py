"""The four folders of the checkout are one distribution, however it is installed."""

import ast
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("arachne_opt", "solvers", "executor", "db")
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "NOTICE")
MOUNTED = ("arachne_opt.solvers.base", "arachne_opt.executor", "arachne_opt.db.migrations")


def constant(name: str):
    """A literal of setup.py."""
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"setup.py has no {name}")


def sources(root: Path = ROOT) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]


def package_of(folder: Path) -> str:
    parts = folder.relative_to(ROOT).parts
    return ".".join(parts if parts[0] == "arachne_opt" else ("arachne_opt", *parts))


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of what a distribution is built from: a build writes beside its sources."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS:
        shutil.copytree(
            ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    for file in FILES:
        shutil.copy(ROOT / file, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory) -> Path:
    return built_wheel(tree, tmp_path_factory.mktemp("wheel"))


def built_wheel(tree: Path, out: Path, variables: Mapping[str, str] = MappingProxyType({})) -> Path:
    """The wheel of a tree, built with some variables of the environment."""
    command = ("-m", "build", "--wheel", "--no-isolation", "--outdir", out)
    run(sys.executable, *command, cwd=tree, variables=variables)
    (found,) = out.glob("arachne_opt-*.whl")
    return found


def libraries(names: Iterable[str]) -> set[str]:
    """The compiled files among those of a wheel."""
    return {n for n in names if n.startswith("arachne_opt/solvers/cascade/walks/_walks.")}


def run(
    *command: object, cwd: Path | str = "/", variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Output of a command that must succeed, with no checkout on its path."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | dict(variables)
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=cwd, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of(python: object, modules: tuple[str, ...], path: Path | None = None) -> list[Path]:
    """Where an interpreter finds modules, with a folder put before its path."""
    code = "import importlib, sys\n"
    code += f"sys.path[:0] = {[str(path)] if path else []!r}\n"
    code += "for name in sys.argv[1:]: print(importlib.import_module(name).__file__)\n"
    code += "assert not {'solvers', 'executor', 'db'} & set(sys.modules)\n"
    return [Path(line) for line in run(python, "-I", "-c", code, *modules).splitlines()]


def test_setup_names_every_package_of_the_tree():
    tree = {package_of(path.parent) for path in sources()}
    assert sorted(constant("PACKAGES")) == sorted(tree)


def test_every_folder_with_modules_is_a_package():
    for path in sources():
        assert (path.parent / "__init__.py").is_file(), path.parent


def test_mounts_name_the_folders_at_the_root():
    mounts = constant("MOUNTS")
    assert mounts == {f"arachne_opt.{folder}": folder for folder in FOLDERS[1:]}


def test_an_uninstalled_checkout_can_be_imported():
    found = files_of(sys.executable, ("arachne_opt", *MOUNTED), ROOT)
    assert found == [
        ROOT / "arachne_opt" / "__init__.py",
        ROOT / "solvers" / "base.py",
        ROOT / "executor" / "__init__.py",
        ROOT / "db" / "migrations" / "__init__.py",
    ]


@pytest.mark.slow
def test_no_module_of_ours_lands_at_top_level():
    skipped = {"__init__", "__main__", "env"}  # alembic's env runs inside alembic only
    names = [
        f"{package_of(path.parent)}.{path.stem}" for path in sources() if path.stem not in skipped
    ]
    assert len(files_of(sys.executable, tuple(names), ROOT)) == len(names)


@pytest.mark.slow
def test_the_wheel_has_all_files_inside_one_package(tree, wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = set()
    for path in sources(tree):
        parts = path.relative_to(tree).parts
        expected.add("/".join(parts if parts[0] == "arachne_opt" else ("arachne_opt", *parts)))
    expected |= {"arachne_opt/py.typed", "arachne_opt/db/migrations/script.py.mako"}
    page = tree / "arachne_opt" / "report" / "page"
    expected |= {f"arachne_opt/report/page/{p.name}" for p in page.iterdir() if p.suffix != ".py"}
    policies = (tree / "solvers" / "seeds" / "data").glob("*.safetensors")
    expected |= {f"arachne_opt/solvers/seeds/data/{p.name}" for p in policies}
    inside = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    library = libraries(inside)
    assert len(library) == (shutil.which("cc") is not None)
    assert inside - library == expected


@pytest.mark.slow
def test_without_a_compiler_there_is_a_wheel_that_does_the_same_in_python(tree, tmp_path):
    copy = tmp_path / "tree"
    shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    made = built_wheel(copy, tmp_path, {"CC": "/no/such/compiler"})
    assert not libraries(zipfile.ZipFile(made).namelist())


@pytest.mark.slow
def test_the_wheel_carries_licence_notice_and_command(wheel):
    archive = zipfile.ZipFile(wheel)
    info = {name.partition(".dist-info/")[2]: name for name in archive.namelist()}
    assert {"licenses/LICENSE", "licenses/NOTICE"} <= info.keys()
    commands = archive.read(info["entry_points.txt"]).decode()
    assert "arachne = arachne_opt.cli.main:main" in commands
    assert "License-Expression: Apache-2.0" in archive.read(info["METADATA"]).decode()


@pytest.mark.slow
def test_an_unpacked_wheel_can_be_imported(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for file in files_of(sys.executable, ("arachne_opt", *MOUNTED), tmp_path):
        assert tmp_path / "arachne_opt" in file.parents


@pytest.mark.slow
def test_an_editable_install_finds_the_checkout(tree, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(ours) + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--ignore-installed"]
    run(*pip, *options, "--editable", tree)
    for file in files_of(python, ("arachne_opt", *MOUNTED)):
        assert tree in file.parents
    assert "Usage" in run(tmp_path / "venv" / "bin" / "arachne", "--help")
