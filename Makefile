# Commands for developers. `make run` and `make test` set up everything they need by themselves.
.DEFAULT_GOAL := help
.PHONY: help run test test-python-path test-lowest setup lock lint format docs wheels bench spark spark-soak conformance soak kill9 kill9-ha failover kill9-failover simulate fuzz fuzz-guided clean
SHELL := bash
BIN := .venv/bin
# Fast rings run first, so that a mistake shows in seconds.
FAST_RINGS := tests/unit tests/property
SLOW_RINGS := tests/cluster tests/cli tests/faults tests/simulation
RINGS := $(FAST_RINGS) $(SLOW_RINGS) tests/conformance tests/spark
# Two processes. One begins the ring of real peers, the other one Spark meanwhile; who ends first helps the other.
WORKERS ?= 2
PYTEST_ARGS ?=

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## a broker with a tour of what it does; up until Ctrl-C; RUN_ARGS="--once", "--data DIR"
	@$(BIN)/orbitmq quickstart $(RUN_ARGS)

# Tests that fail run once more, alone; those that pass then are reported as flaky, by name, and more than two fail.
test: setup ## all tests, fast rings first; peers that are missing are skipped by name; WORKERS=0 for one process
	@$(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder --rerun-alone $(RINGS) $(PYTEST_ARGS)

# The rings whose code differs without the native extension. Tests of the extension itself are skipped by name.
PYTHON_PATH_RINGS := tests/unit/native tests/unit/broker tests/unit/store tests/property/broker tests/property/store
test-python-path: setup ## the unit and property tests of broker and store on the Python path (ORBITMQ_NATIVE=off)
	@ORBITMQ_NATIVE=off $(BIN)/pytest -n $(WORKERS) -q $(PYTHON_PATH_RINGS) $(PYTEST_ARGS)

test-lowest: setup ## the client's tests, a server and the command line with the lowest versions that pyproject.toml allows
	@scripts/lowest

setup: ## only the set-up: .venv with the orbitmq command
	@scripts/setup

lock: ## write requirements.lock again, with hashes, after a change of pyproject.toml or constraints.txt
	@scripts/lock

lint: setup ## ruff (check and format), mypy --strict, layers of imports, sizes and words
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python scripts/lint_house.py

format: setup ## let ruff repair what it can
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

wheels: setup ## the wheel of this Python and platform with the native extension, tested in a fresh environment; into dist
	@scripts/wheels

# The variable silences a notice of mkdocs-material about its successor.
docs: setup ## the documentation site, into build/site; any warning fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html"

bench: setup ## measure the store and the protocol; BENCH_ARGS="--quick", "--full", "--json FILE", "--list"
	@$(BIN)/python -m bench $(BENCH_ARGS)

spark: setup ## only the tests of Spark against a real broker (Java 17 on the machine)
	@$(BIN)/pytest tests/spark -v $(PYTEST_ARGS)

spark-soak: setup ## Spark jobs whose parts are killed, again and again, and the long tests of pipelines; KILLS=100
	@ORBITMQ_LONG=1 ORBITMQ_KILLS=$(or $(KILLS),20) $(BIN)/pytest tests/spark/streams/test_exactly_once.py \
		tests/spark/pipelines -v -o log_cli=true -o log_cli_level=INFO $(PYTEST_ARGS)

conformance: setup ## only the tests against the real Apache RocketMQ (Java 17 and Maven on the machine)
	@ORBITMQ_LONG=1 $(BIN)/pytest tests/conformance -v $(PYTEST_ARGS)

soak: setup ## thousands of seeded power cuts; SEEDS=5000 for more
	@ORBITMQ_SEEDS=$(or $(SEEDS),1000) $(BIN)/pytest -q $(PYTEST_ARGS) \
		tests/faults/store/test_power_cuts.py tests/faults/deferred/test_{pop,timer,transaction}_faults.py

kill9: setup ## brokers killed under load and in recovery, with every kind of message; KILLS=200 for more
	@ORBITMQ_KILLS=$(or $(KILLS),40) $(BIN)/pytest -q $(PYTEST_ARGS) tests/faults/broker/test_every_kind_kill_9.py

kill9-ha: setup ## master and slave killed under load, then compared; KILLS=200 for more
	@ORBITMQ_HA_KILLS=$(or $(KILLS),50) $(BIN)/pytest -q $(PYTEST_ARGS) tests/faults/ha/test_kill_either.py

failover: setup ## masters killed and stopped under load, and how long sends fail; KILLS=200 for more
	@PYTHONPATH=tests $(BIN)/python -m faults.ha.failover_run $(or $(KILLS),20)

kill9-failover: setup ## masters killed and stopped with short timings, also without a controller; ROUNDS=100 for more
	@ORBITMQ_FAILOVERS=$(or $(ROUNDS),20) $(BIN)/pytest -q $(PYTEST_ARGS) tests/faults/ha/test_failover.py

# Whole clusters in virtual time: the same SEED is the same run. A failing seed prints the command that repeats it.
simulate: setup ## simulated clusters with faults from seeds; SEEDS=10000, SEED=7 for one, SIMULATE_ARGS="--log"
	@$(BIN)/python -m orbitmq.testing.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEED),,--seeds $(or $(SEEDS),200)) \
		--workers $(WORKERS) $(SIMULATE_ARGS)

# The same SEED sends the same frames; FIRST and FRAMES select a part of them. SANITIZE=1 needs gcc.
fuzz: setup ## malformed frames against real servers, then probes; FRAMES=5000000 SEED=1 FIRST=0 SANITIZE=1
	@PYTHONPATH=tests $(BIN)/python -m faults.fuzz --frames $(or $(FRAMES),200000) $(if $(SEED),--seed $(SEED)) \
		$(if $(FIRST),--first $(FIRST)) $(if $(SANITIZE),--sanitize) $(FUZZ_ARGS)

# Needs `pip install atheris==3.0.0` in .venv (Linux); what is found is in a file crash-… of this folder.
fuzz-guided: setup ## coverage-guided fuzzing of what reads bytes of strangers; FUZZ_SECONDS=300
	@ORBITMQ_NATIVE=off PYTHONPATH=tests $(BIN)/python -m faults.fuzz.guided -max_total_time=$(or $(FUZZ_SECONDS),60) $(FUZZ_ARGS)

clean: ## remove the virtual environment, caches and downloaded peers
	@rm -rf .venv .peers .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
