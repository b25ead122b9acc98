# One verb per job. `make` alone lists them.

PYTHON := .venv/bin/python
SOURCES = $(wildcard app client bench tests scripts wsgi.py)
# Most tests wait for a server or a browser. The tests of a file share servers, so they run in one process.
# Files keep the order of tests/conftest.py.
SIDE_BY_SIDE = --numprocesses=5 --dist=loadfile --no-loadscope-reorder
TYPED = $(wildcard app client bench tests scripts/*.py scripts/fleet wsgi.py)

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev setup-s3 run fleet test test-long test-all test-fast test-s3 watch-films attack chaos check-unit check-image lint format lock bench bench-quick bare clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## install what `run` needs; does nothing if everything is there
	@scripts/setup

setup-dev: ## install what `test` and `lint` need
	@scripts/setup dev

setup-s3: ## build Garage, a second S3 server for the tests, with Rust; a quarter of an hour, once a machine
	@scripts/setup s3

run: setup ## serve at http://127.0.0.1:8000 until Ctrl-C; settings are in docs/settings.md
	@exec $(PYTHON) -m app.run.server.supervisor

fleet: setup-dev ## serve with three nodes, PostgreSQL, versitygw and nginx at http://127.0.0.1:8000
	@exec $(PYTHON) -m scripts.fleet $(ARGS)

test: setup-dev ## run the tests of every promise; ARGS="-k name" narrows them
	@$(PYTHON) -m pytest -m "not long" $(SIDE_BY_SIDE) $(ARGS)

test-long: setup-dev ## run the tests that `test` leaves out: larger sizes, and more of the same
	@$(PYTHON) -m pytest -m long $(SIDE_BY_SIDE) $(ARGS)

test-all: setup-dev ## run all tests
	@$(PYTHON) -m pytest $(SIDE_BY_SIDE) $(ARGS)

test-fast: setup-dev ## run the tests that start neither a server nor a browser
	@$(PYTHON) -m pytest -m "not e2e and not browser and not long" $(SIDE_BY_SIDE) $(ARGS)

test-s3: setup-dev ## run the tests of uploads with files in a bucket; five minutes
	@$(PYTHON) -m pytest tests/uploads --storage=s3 $(ARGS)

watch-films: setup-dev ## play every film of the tests in Chromium and Firefox; half an hour
	@$(PYTHON) -m pytest tests/video/test_delivery.py tests/browser/test_playback.py --all-films $(ARGS)

attack: setup-dev ## run tests/hostile at full length: kills, cuts, fuzzed bodies, silent clients; about an hour
	@$(PYTHON) -m pytest tests/hostile --full-length --timeout=5400 $(ARGS)

chaos: setup-dev ## run tests/fleet at full length: nodes, PostgreSQL, Garage and versitygw killed, paused and cut off; about an hour
	@$(PYTHON) -m pytest tests/fleet --full-length --timeout=14400 $(ARGS)

check-unit: ## run the steps of deploy/ec2.md on a fresh Debian in a container, and check the result; needs root
	@scripts/check-unit

check-image: ## build the container image on a fresh Debian, and test it; needs root
	@scripts/check-image

lint: setup-dev ## check format, lint, types, import rules, spelling, scripts of the page and their types, lock files; changes nothing
	@scripts/lint $(SOURCES) -- $(TYPED)

format: setup-dev ## format the sources and fix what the linter can
	@$(PYTHON) -m ruff check --fix --quiet $(SOURCES) || true
	@$(PYTHON) -m ruff format $(SOURCES)

lock: setup-dev ## compile both pyproject.toml into the requirements files; ARGS=--upgrade for new versions
	@scripts/lock $(ARGS)

bench: setup-dev ## run all benchmarks, each with its table
	@$(PYTHON) -m bench $(ARGS)

bench-quick: setup-dev ## run all benchmarks in a small size, in less than two minutes
	@$(PYTHON) -m bench --quick $(ARGS)

bare: ## run `test` on a fresh Debian or Ubuntu; needs root; ARGS="--release noble --user sam --tmp tmpfs run"
	@scripts/bare-machine $(ARGS)

clean: ## remove what set-up and the tools created; keeps uploads and data
	@rm -rf .venv .tools node_modules static/vendor .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache
	@find app client bench tests scripts -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
