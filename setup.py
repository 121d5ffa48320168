"""Packaging: three folders of the checkout's root become sub-packages of arachne_opt."""

from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent

# Installed at top level these names would overwrite other people's packages.
MOUNTS = {
    "arachne_opt.solvers": "solvers",
    "arachne_opt.executor": "executor",
    "arachne_opt.db": "db",
}

# Explicit: automatic discovery with package_dir breaks editable installs (setuptools #4248).
PACKAGES = [
    "arachne_opt",
    "arachne_opt.bench",
    "arachne_opt.cascade",
    "arachne_opt.cli",
    "arachne_opt.costs",
    "arachne_opt.costs.learned",
    "arachne_opt.costs.pipeline",
    "arachne_opt.exporters",
    "arachne_opt.importers",
    "arachne_opt.learning",
    "arachne_opt.pipeline",
    "arachne_opt.planning",
    "arachne_opt.report",
    "arachne_opt.report.page",
    "arachne_opt.solvers",
    "arachne_opt.solvers.baselines",
    "arachne_opt.solvers.baselines.pipeline",
    "arachne_opt.solvers.cascade",
    "arachne_opt.solvers.cascade.cpsat",
    "arachne_opt.solvers.cascade.walks",
    "arachne_opt.solvers.pipeline",
    "arachne_opt.solvers.seeds",
    "arachne_opt.executor",
    "arachne_opt.executor.adapters",
    "arachne_opt.executor.pipeline",
    "arachne_opt.executor.pipeline.models",
    "arachne_opt.db",
    "arachne_opt.db.migrations",
    "arachne_opt.db.migrations.versions",
]

# A plain library, loaded by ctypes; without a compiler the same is done in Python, slower.
WALKS = Extension(
    "arachne_opt.solvers.cascade.walks._walks",
    sources=[
        f"solvers/cascade/walks/c/{name}.c"
        for name in ("groups", "lists", "changes", "walks", "memory")
    ],
    depends=["solvers/cascade/walks/c/walks.h"],
    extra_compile_args=["-O3"],
    libraries=["m"],
    optional=True,
)

EXTRAS = {
    "cluster": ["dask>=2025.1", "distributed>=2025.1"],
    "hf": ["safetensors>=0.4"],
    "parquet": ["pyarrow>=18"],
    "tensorboard": ["tensorboard>=2.18"],
    "video": ["diffusers>=0.35,<1", "safetensors>=0.4", "transformers>=4.50"],
    "plot": ["matplotlib>=3.9"],
    "decode": ["av>=14"],
    "postgres": ["psycopg[binary]>=3.2"],
    "yaml": ["pyyaml>=6"],
    "dev": [
        "build>=1.2",
        "hypothesis>=6.100",
        "mypy>=1.15",
        "playwright>=1.50",
        "pytest>=8",
        "pytest-xdist>=3.6",
        "ruff>=0.9",
        "scikit-learn>=1.5",
        "setuptools>=77",
        "transformers>=4.50",
    ],
}


def version() -> str:
    """The version of the package, read without importing it."""
    for line in (ROOT / "arachne_opt" / "__init__.py").read_text(encoding="utf-8").splitlines():
        if line.startswith("__version__"):
            return line.split('"')[1]
    raise RuntimeError("arachne_opt/__init__.py names no __version__")


setup(
    name="arachne-opt",
    version=version(),
    description="Integer-programming optimization engine for model training",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE", "NOTICE"],
    python_requires=">=3.11",
    packages=PACKAGES,
    package_dir=MOUNTS,
    ext_modules=[WALKS],
    package_data={
        "arachne_opt": ["py.typed"],
        "arachne_opt.db.migrations": ["script.py.mako"],
        "arachne_opt.solvers.seeds": ["data/*.safetensors"],
        "arachne_opt.report.page": ["*.css", "*.html", "*.js"],
    },
    install_requires=[
        "alembic>=1.16",
        "click>=8.1",
        "filelock>=3.24",
        # 1.15 and later bring a libhighs.so.1 that clashes with the one inside ortools.
        "highspy>=1.11,<1.15",
        "networkx>=3",
        "numpy>=2",
        "ortools>=9.15,<10",
        "pulp>=3.3.1,<4",
        "sqlalchemy>=2.1",
        "torch>=2.9",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["arachne = arachne_opt.cli.main:main"]},
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Typing :: Typed",
    ],
)
