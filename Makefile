# Two commands for a bare machine with Python 3.11 or later: `make demo` and `make test`. Everything goes into .venv.
SHELL := /bin/bash
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test test-slow lint format docs bench lock clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY)  ## Make the virtual environment from the pinned lock

demo: $(READY)  ## Three hospitals train one model without pooling a row
	$(BIN)/blindbayes demo hospitals --out out/demo

test: $(READY) lint  ## Lint, types and the whole default test suite
	$(BIN)/pytest -n auto --dist worksteal --durations=8

test-slow: $(READY)  ## The long forms: large simulations, exhaustive faults, soak
	$(BIN)/pytest -m slow --timeout 3600

lint: $(READY)  ## ruff and mypy --strict
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(READY)  ## Format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(READY)  ## Build the documentation into out/docs, warnings as errors
	$(BIN)/python docs/notebooks.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY)  ## Every benchmark, in its short form
	for file in benchmarks/*.py; do $(BIN)/python $$file --quick || exit 1; done

lock: $(READY)  ## Renew requirements.lock (needs uv in the environment)
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --all-extras --group dev --generate-hashes \
		--no-emit-index-url --no-header --quiet --output-file requirements.lock

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis out
