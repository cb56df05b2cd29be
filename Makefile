# Everything a developer runs. It needs python3.11 or newer, git and make; the rest is installed into .venv.
#
#   make demo         install, then run a real plan in a scratch repository
#   make test         install, check and test: what CI runs
#   make test-agents  install the real coding agents from npm, and test with them
#   make check        formatting, lint and types only
#   make web          build the dashboard; with its Node as a Python package where there is none
#   make web-check    build the dashboard, check its types and test its logic
#   make test-browser install Chromium where that can be done, and test the pages in it
#   make test-all     the slow tests (crashes, faults and histories behind each wall among them) and the mutants as well
#   make mutants      take each protection out and see its tests fail
#   make bench        figures beside their floors
#   make types        write the API as TypeScript types, for the dashboard
#   make lock         resolve the dependencies anew, with hashes
#   make clean        remove what the other targets made

PYTHON ?= python3
# Of two cores: everyday tests mostly wait for programs, the slow ones are measured by the clock.
WORKERS ?= 4
SLOW_WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := src tests bench tools

# Compiled modules are kept, whatever the shell says: tests start the program thousands of times.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install dev demo check node web web-check test test-browser test-agents test-all mutants bench types lock clean

help:
	@sed -n 's/^#   //p' Makefile

# The files with a leading dot say that a step was done; they are newer than what the step was made of.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit("Orchard needs Python 3.11 or newer; try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The build backend is pinned too, and used from here: an isolated build would fetch one without hashes.
$(VENV)/.installed: $(VENV)/.made requirements.lock requirements-build.lock pyproject.toml
	$(PIP) install --quiet --require-hashes -r requirements.lock -r requirements-build.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed requirements-dev.lock
	$(PIP) install --quiet --require-hashes -r requirements-dev.lock
	@touch $@

install: $(VENV)/.installed

dev: $(VENV)/.dev

demo: install
	$(BIN)/orchard demo

check: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

node: install
	@command -v node > /dev/null && command -v npm > /dev/null || $(PIP) install --quiet --require-hashes -r requirements-web.lock

web: node
	$(BIN)/python tools/web.py

web-check: node
	$(BIN)/python tools/web.py --check

test: check web-check
	$(BIN)/python tools/run_tests.py -n $(WORKERS) -m "not slow"

# Where there is no browser, these tests are skipped, loudly: a test does not install programs on a machine.
test-browser: dev web
	$(BIN)/python tools/install_browser.py
	$(BIN)/python tools/run_tests.py -n $(SLOW_WORKERS) tests/web

# What `make test` skips: tests that run real programs. Few at once, for these are large.
test-agents: dev
	$(BIN)/python tools/install_agents.py
	ORCHARD_TEST_AGENTS=1 $(BIN)/python tools/run_tests.py -n $(SLOW_WORKERS) tests/agents

test-all: check web-check
	ORCHARD_TEST_ALL=1 $(BIN)/pytest -n $(SLOW_WORKERS)
	$(MAKE) mutants

mutants: dev
	$(BIN)/python tools/mutants.py --jobs $(SLOW_WORKERS)

bench: dev
	$(BIN)/python -m bench

types: install
	$(BIN)/python tools/typescript_types.py

lock: dev
	tools/lock.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	rm -rf web/node_modules web/src/generated src/orchard/surfaces/http/pages/dashboard
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
