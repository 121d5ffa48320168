# Everything that a checkout needs; each target sets up .venv by itself. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The interpreter that makes .venv: 3.11 or newer.
PYTHON ?= python3
# Arguments for pytest: two workers unless you say otherwise, such as PYTEST_ARGS="-x".
PYTEST_ARGS ?= -n 2 --dist loadfile

BIN := .venv/bin
STAMP := .venv/.installed
SOURCES := arachne_opt solvers executor db

.PHONY: help demo test test-fast test-postgres lint wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## plan, store and replay a small workload on this machine, and compare
	$(BIN)/arachne demo

test: $(STAMP) ## all tests that this machine can run
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-fast: $(STAMP) ## the tests that take less than a few seconds each
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-postgres: $(STAMP) ## the tests that need PostgreSQL, with a server started for them
	.ci/with-postgres $(BIN)/python -m pytest -m postgres $(PYTEST_ARGS)

lint: $(STAMP) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	.ci/link-tree
	$(BIN)/mypy .linktree/arachne_opt

wheel: $(STAMP) ## sdist and wheel in dist/
# A stale build/ would put files into the wheel that are no longer in the tree.
	rm -rf build dist
	$(BIN)/python -m build

clean: ## remove what was built; keeps .venv
	rm -rf build dist .linktree .mypy_cache .ruff_cache .pytest_cache .hypothesis ./*.egg-info
	find $(SOURCES) tests -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): setup.py constraints.txt $(wildcard solvers/cascade/walks/c/*)
	@command -v $(PYTHON) >/dev/null \
	  || { echo "no $(PYTHON) here; try: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "arachne-opt needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V);" \
	       "try: make PYTHON=python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -e '.[dev,video,decode,postgres,plot,parquet,hf,tensorboard,cluster,yaml]'
	touch $@
