# Two words for a newcomer: `make accept` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=

# Tests start hundreds of interpreters: without compiled modules each of them would compile them all again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup system accept accept-real accept-docker test test-quick lint format types bench-load bench-judge bench-startup clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "rackgate needs Python >= 3.11: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

setup: $(STAMP)  ## make .venv with everything that Python needs

system:  ## install and start what the container tests need (root), or say what is missing
	@sh tests/images/system.sh

accept: $(STAMP)  ## staged acceptance of the simulated rack (ARGS="--rack-scenario slow_card")
	$(BIN)/python -m pytest -m rack_acceptance $(ARGS)

accept-real: $(STAMP)  ## install vLLM for the CPU and accept it with a tiny model
	PYTHON=$(BIN)/python sh examples/accept_real.sh $(ARGS)

accept-docker: $(STAMP) system  ## staged acceptance of two containerised engines
	PYTHON=$(BIN)/python sh tests/images/build.sh
	$(BIN)/python -m pytest -m rack_acceptance --rack-target=examples/docker-two-engines.toml $(ARGS)

test: $(STAMP) system  ## the project's own tests (ARGS='-m "not proof and not real_engine"' for the quick ones)
	PYTHON=$(BIN)/python sh tests/images/build.sh
	PYTHON=$(BIN)/python sh examples/install_vllm.sh
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

test-quick: $(STAMP)  ## the tests that need no container, no real engine and no whole rack, under 90 s
	$(BIN)/python -m pytest -n 2 --dist loadfile -q -m 'not docker and not real_engine and not packaging and not proof and not slow' $(ARGS)

lint: $(STAMP)  ## ruff, and the layers (import-linter)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(STAMP)  ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)  ## mypy --strict over all packages
	$(BIN)/mypy --strict

bench-load: $(STAMP)  ## the load generator beside its peers (docs/performance.md)
	-$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python benchmarks/load.py $(ARGS)

bench-judge: $(STAMP)  ## how long it takes to judge ten million samples (docs/performance.md)
	$(BIN)/python benchmarks/judge_scale.py $(ARGS)

bench-startup: $(STAMP)  ## what the plugin adds to pytest's start-up in a project that does not use it
	$(BIN)/python benchmarks/startup_share.py

clean:  ## remove what was built (the run folders stay)
	rm -rf $(VENV) .venv-vllm .cache dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
