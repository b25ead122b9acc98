# One verb a job. `make` alone lists them.

PYTHON := .venv/bin/python
SOURCES = $(wildcard app client bench tests scripts wsgi.py)
# Most tests wait for a server or a browser. The tests of one file share servers, and stay together.
SIDE_BY_SIDE = --numprocesses=3 --dist=loadfile
TYPED = $(wildcard app client bench tests scripts/*.py wsgi.py)

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev run test test-fast attack check-unit check-image lint format lock bench bench-quick bare clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## everything `run` needs; does nothing when all is in place
	@scripts/setup

setup-dev: ## the same for `test` and `lint`
	@scripts/setup dev

run: setup ## serve at http://127.0.0.1:8000 until Ctrl-C; SLUICE_ variables as in docs/settings.md
	@exec $(PYTHON) -m app.server.supervisor

test: setup-dev ## all tests; ARGS="-k name" narrows them
	@$(PYTHON) -m pytest $(SIDE_BY_SIDE) $(ARGS)

test-fast: setup-dev ## the tests that start neither a server nor a browser
	@$(PYTHON) -m pytest -m "not e2e and not browser" $(SIDE_BY_SIDE) $(ARGS)

attack: setup-dev ## tests/hostile at full length: many kills, cuts, fuzzed bodies, silent clients; about an hour
	@$(PYTHON) -m pytest tests/hostile --long --timeout=1800 $(ARGS)

check-unit: ## the steps of deploy/ec2.md, run and checked on a fresh Debian with systemd in a container; needs root
	@scripts/check-unit

check-image: ## the container image, built over a fresh Debian and used; needs root
	@scripts/check-image

lint: setup-dev ## formatter, linter, types, import rules, spelling, lock files; changes nothing
	@scripts/lint $(SOURCES) -- $(TYPED)

format: setup-dev ## put sources into the one format and repair what the linter can
	@$(PYTHON) -m ruff check --fix --quiet $(SOURCES) || true
	@$(PYTHON) -m ruff format $(SOURCES)

lock: setup-dev ## compile both pyproject.toml into the requirements files; ARGS=--upgrade for new versions
	@scripts/lock $(ARGS)

bench: setup-dev ## all benchmarks, each with its table
	@$(PYTHON) -m bench $(ARGS)

bench-quick: setup-dev ## a first look at all benchmarks in less than two minutes
	@$(PYTHON) -m bench --quick $(ARGS)

bare: ## `test` in a fresh Debian or Ubuntu, as root; ARGS="--release noble --user sam --tmp tmpfs run"
	@scripts/bare-machine $(ARGS)

clean: ## remove what set-up and the tools made; uploads and data stay
	@rm -rf .venv .tools node_modules static/vendor .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache
	@find app client bench tests scripts -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
