# What a person types here. `make run` and `make test` set up everything they need by themselves.
.DEFAULT_GOAL := help
.PHONY: help run test setup lint format bench spark spark-soak conformance soak clean
SHELL := bash
BIN := .venv/bin
# Slow rings are told apart by folder: fast ones first, so that a mistake shows in seconds.
FAST_RINGS := tests/unit tests/property
SLOW_RINGS := tests/cluster tests/cli tests/faults
RINGS := $(FAST_RINGS) $(SLOW_RINGS) tests/conformance tests/spark
# Two at a time. The ring of real peers is one process's; the other one goes on with Spark meanwhile.
WORKERS ?= 2
PYTEST_ARGS ?=

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## a broker with a tour of what it does; up until Ctrl-C; RUN_ARGS="--once", "--data DIR"
	@$(BIN)/orbitmq quickstart $(RUN_ARGS)

# What fails beside others is run once more, alone: real peers answer late on two cores that do something else as well.
# A test that fails alone fails.
test: setup ## all tests, fast rings first; peers that are missing are skipped by name; WORKERS=0 for one process
	@$(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder $(RINGS) $(PYTEST_ARGS) || { \
		code=$$?; [ $$code = 1 ] || exit $$code; \
		printf '\nThe tests that failed are run again, alone.\n'; \
		$(BIN)/pytest -n 0 --last-failed --last-failed-no-failures none $(RINGS) $(PYTEST_ARGS); }

setup: ## only the set-up: .venv with the orbitmq command
	@scripts/setup

lint: setup ## ruff (check and format) and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: setup ## let ruff mend what it can
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: setup ## measure the store and the protocol; BENCH_ARGS="--quick", "--full", "--json FILE", "--list"
	@$(BIN)/python -m bench $(BENCH_ARGS)

spark: setup ## only the tests of Spark against a real broker (Java 17 on the machine)
	@$(BIN)/pytest tests/spark -v $(PYTEST_ARGS)

spark-soak: setup ## Spark jobs whose parts are killed, again and again, and the long tests of pipelines; KILLS=100
	@ORBITMQ_LONG=1 ORBITMQ_KILLS=$(or $(KILLS),20) $(BIN)/pytest tests/spark/test_exactly_once.py \
		tests/spark/test_pipeline_*.py -v -o log_cli=true -o log_cli_level=INFO $(PYTEST_ARGS)

conformance: setup ## only the tests against the real Apache RocketMQ (Java 17 and Maven on the machine)
	@ORBITMQ_LONG=1 $(BIN)/pytest tests/conformance -v $(PYTEST_ARGS)

soak: setup ## thousands of seeded power cuts; SEEDS=5000 for more
	@ORBITMQ_SEEDS=$(or $(SEEDS),1000) $(BIN)/pytest -q $(PYTEST_ARGS) \
		tests/faults/test_power_cuts.py tests/faults/test_{pop,timer,transaction}_faults.py

clean: ## remove the virtual environment, caches and downloaded peers
	@rm -rf .venv .peers .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
