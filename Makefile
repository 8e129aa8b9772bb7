# Two commands for a bare machine with Python 3.11 or later: `make demo` and `make test`. Everything goes into .venv.
SHELL := /bin/bash
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
CORE := $(VENV)/.core
READY := $(VENV)/.ready
BUILT := $(VENV)/.kernels
RELEASE := out/release

unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test bytecode test-fast test-tenth test-off coverage audit sabotage fuzz system soak tried sanitize test-slow test-one lint format docs bench guard guard-short figures peers hooks lock release release-check advisories release-emulate image image-test clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14
	@echo; echo "New here? CONTRIBUTING.md says what goes where; make test is what a change must pass."

# What the package needs to run: enough for the demo. pip compiles nothing; a run writes the bytecode of what it imports. A lock
# has every library, so nothing is resolved (--no-deps): pip 23.2 asks for the newest release of a `library[extra]`.
$(CORE): requirements-demo.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed"; exit 1; }
	@echo "1/3 A virtual environment in $(VENV) (450 MB; about a minute altogether, once)"
	@$(PYTHON) -m venv $(VENV)
	@echo "2/3 The libraries that blindbayes needs, by the hashes of requirements-demo.lock"
	@$(PIP) install --no-compile --no-deps --require-hashes -r requirements-demo.lock
	@$(PIP) uninstall --yes setuptools
	@echo "3/3 blindbayes itself, its kernels compiled for this processor"
	@$(PIP) install --no-deps --no-build-isolation -e .
	@find $(VENV)/lib -type d -regex '.*/\(\(numpy\|scipy\|pyarrow\)/.*tests\|pip/.*__pycache__\)' -prune -exec rm -r {} +  # 37 MB
	@touch $@

# What developers need as well.
$(READY): $(CORE) requirements.lock papers/pyproject.toml
	@echo "The libraries and tools of the tests, by the hashes of requirements.lock (1 GB more)"
	@$(PIP) install --no-compile --no-deps --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e papers
	@touch $@

$(BUILT): $(READY) $(wildcard src/blindbayes/crypto/kernels/*.[ch]) src/blindbayes/crypto/kernels/build.py
	@$(BIN)/python -m blindbayes.crypto.kernels.build
	@touch $@

setup: $(BUILT)  ## Make the virtual environment from the pinned lock

demo: $(CORE)  ## Three hospitals train one model without pooling a row
	@$(BIN)/blindbayes demo --out out/demo

test: $(BUILT)  ## What a change must pass: lint, types, the default suite, a tenth of the slow tests, costs
	$(MAKE) --no-print-directory -j2 lint bytecode
	$(MAKE) --no-print-directory -j1 test-fast
	$(MAKE) --no-print-directory -j1 test-tenth
	$(MAKE) --no-print-directory -j1 guard-short

bytecode: $(BUILT)  ## Compile what the tests import: each of their processes would do it again
	@mkdir -p out && $(BIN)/pytest --collect-only > out/.collected 2>&1 || { tail -30 out/.collected; exit 1; }

test-fast: $(BUILT)  ## The default test suite alone
	$(BIN)/pytest -n auto --dist worksteal --durations=8

test-tenth: $(BUILT)  ## A tenth of the slow tests, another one every day, for about a minute
	$(BIN)/pytest -m slow --tenth -n auto --dist worksteal -rs --durations=4

test-one: $(BUILT)  ## The tests of one place: make test-one T=tests/report
	$(BIN)/pytest $(T)

test-off: $(BUILT)  ## Protocols and their attacks without kernels, by numpy alone
	BLINDBAYES_KERNELS=off $(BIN)/pytest -n auto --dist worksteal tests/crypto tests/protocols tests/attacks tests/adversary

coverage: $(BUILT)  ## Which lines of src the default test suite runs: out/coverage.xml
	COVERAGE_CORE=sysmon COVERAGE_FILE=out/.coverage $(BIN)/pytest -n auto --dist worksteal --cov blindbayes --cov-report xml:out/coverage.xml --cov-report term:skip-covered

audit: $(BUILT)  ## Try to refute the privacy of our own mechanisms
	$(BIN)/python tests/audits

sabotage: $(BUILT)  ## Change one privacy-critical line at a time: the tests it names must fail
	$(BIN)/python tests/sabotage

fuzz: $(BUILT)  ## A million mutated inputs to every reader of what others send: make fuzz N=1000000
	$(BIN)/python tests/fuzz --inputs $(or $(N),1000000)

system: $(BUILT)  ## Whole-system runs from lists of operations, and kill -9 of agents: make system LISTS=200 KILLS=1000
	$(BIN)/python tests/system --lists $(or $(LISTS),200) --kills $(or $(KILLS),1000)

soak: $(BUILT)  ## Three agents run back to back: memory, files, handles and threads stay flat: make soak MINUTES=30
	$(BIN)/python tests/soak --minutes $(or $(MINUTES),30)

tried: $(BUILT)  ## Write docs/what-we-tried.md from the stored results
	$(BIN)/python tests/tried

sanitize: $(BUILT)  ## Every kernel under the address and undefined-behaviour sanitizers
	$(BIN)/pytest -m slow tests/crypto/kernels/test_build.py -k sanitizers

test-slow: $(BUILT)  ## The long forms: large simulations, exhaustive faults, soak
	$(BIN)/pytest -m slow -n auto --dist worksteal --timeout 3600 --durations=20

lint: $(BUILT)  ## ruff and mypy --strict
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(BUILT)  ## Format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(BUILT)  ## Build the documentation into out/docs, warnings as errors
	$(BIN)/python docs/notebooks.py
	$(BIN)/blindbayes settings > docs/settings.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(BUILT)  ## Every benchmark, in its short form
	for file in benchmarks/[!_]*.py; do $(BIN)/python $$file --quick || exit 1; done

guard: $(BUILT)  ## Whether fits, predictions, sums and protocols cost more than they did: ratios against benchmarks/guard.json
	$(BIN)/python benchmarks/guard.py

guard-short: $(BUILT)  ## The same for tables and a sum alone
	$(BIN)/python benchmarks/guard.py --quick

figures: $(BUILT)  ## Measure the figures of README and docs, store them in docs/figures.json and write the pages (quiet machine)
	$(BIN)/python benchmarks/figures.py --store

peers: $(BUILT)  ## Beside scikit-learn, diffprivlib, python-paillier, openmined.psi, SPU, MPyC, OpenDP, DecLearn: docs/peers.md
	$(BIN)/python benchmarks/peers/run.py

hooks: $(BUILT)  ## Run lint before every commit (installs a hook of pre-commit, which must be there)
	pre-commit install

LOCK = $(RELEASE)/bin/uv pip compile $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet

lock: $(RELEASE)/.ready  ## Bring the locks up to pyproject.toml; UPGRADE=--upgrade: to the newest versions too
	$(LOCK) pyproject.toml --all-extras --group dev --no-emit-package pyspark --no-emit-package blindbayes \
		--no-emit-package blindbayes-papers --output-file requirements.lock
	$(LOCK) pyproject.toml --extra agent --group build --constraint requirements.lock --output-file requirements-demo.lock
	$(LOCK) pyproject.toml --extra agent --extra excel --extra ids --extra oidc --extra postgres --group build \
		--no-emit-package blindbayes --constraint requirements.lock --output-file requirements-image.lock
	echo 'pyspark>=4,<4.1' | $(LOCK) - --output-file engines/spark.lock
	echo 'nvflare>=2.9,<2.10' | $(LOCK) - --output-file engines/flare.lock
	echo 'flwr>=1.41,<1.42' | $(LOCK) - --output-file engines/flower.lock
	$(LOCK) --group release --output-file requirements-release.lock

$(RELEASE)/.ready: requirements-release.lock
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip --quiet --disable-pip-version-check install --no-compile --no-deps --require-hashes -r requirements-release.lock
	@touch $@

release: $(RELEASE)/.ready  ## Build sdist and wheels (x86-64, aarch64, pure) of blindbayes and blindbayes-papers into dist/
	rm -rf dist
	$(RELEASE)/bin/python tools/release.py build dist
	@ls -l dist

release-check: $(BUILT) release  ## Build twice and compare, bill of materials, licences, manifests; use the wheel on every Python here
	$(RELEASE)/bin/python tools/release.py check dist

advisories: $(RELEASE)/.ready  ## Known vulnerabilities of all pinned libraries (needs the index's advisories)
	for lock in requirements*.lock engines/*.lock; do $(RELEASE)/bin/pip-audit --disable-pip --require-hashes -r $$lock || exit 1; done

release-emulate: release  ## Train with the aarch64 wheel under qemu (Debian: mmdebstrap, qemu-user-static)
	$(RELEASE)/bin/python tools/release.py emulate dist out/aarch64

image:  ## Build the image of one site into out/image, without a registry (Debian: buildah, mmdebstrap, uidmap)
	python3 tools/image.py out/image

image-test: $(BUILT)  ## Three sites of compose and the pods of deploy/kubernetes, run from that image (root; Debian: crun, iproute2)
	$(BIN)/pytest -m slow -rs tests/agent/test_image.py

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis out
