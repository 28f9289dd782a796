# Every target installs what it needs. Requirements: Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo serve test test-all sanity mutations lint bench docs clean

demo: $(VENV)/.run
	$(BIN)/evergraph demo --out demo

# The first time, the demo makes the workspace.
serve: $(VENV)/.serve
	test -e demo/ws || $(BIN)/evergraph demo --out demo
	$(BIN)/evergraph serve demo/ws

# Two processes with one thread each, because more threads than cores are slower. Bytecode is kept whatever the
# environment says: without it, every process that a test starts would compile the package again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2

# Browser tests are skipped if no browser is installed.
test: $(VENV)/.dev
	$(PYTEST) -m 'not (slow or packaging or sanity)'

test-all: $(VENV)/.dev
	$(PYTEST) -m 'not sanity' --hypothesis-profile=thorough

# Takes half an hour and needs the real graphs in EVERGRAPH_DATA.
sanity: $(VENV)/.dev
	$(BIN)/python -m pytest -m sanity

mutations: $(VENV)/.dev
	$(BIN)/python scripts/mutate.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/check_prose.py

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .sanity build dist site demo .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Evergraph needs Python 3.11 or newer; choose one with: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# Install torch first and exactly as pinned: with a version range, pip would download a build of several gigabytes.
$(VENV)/.run: pyproject.toml paper/pyproject.toml baselines/pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) torch
	$(PIP) --editable . --editable ./paper --editable ./baselines
	touch $@

$(VENV)/.serve: $(VENV)/.run
	$(PIP) --editable '.[serve]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) --editable '.[pyg,networkx,text,serve,ray,tune,dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.run
	$(PIP) --editable '.[docs]'
	touch $@
