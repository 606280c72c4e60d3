# One word per wish; .ci/run uses the same words.  `make` alone lists them.
#
#   ARGS='...'   goes to the program behind the word:   make run ARGS='--amqp-port 5673'
#                                                       make test ARGS='-k recovery -x'

VENV   := .venv
BIN    := $(VENV)/bin
SETUP  := tools/setup.sh
HOT    := $(wildcard $(shell sed -n 's/^ *"\(src\/.*\.py\)",$$/\1/p' setup.py))
CHECKED := src tests setup.py $(wildcard benchmarks fuzz tools examples)

.PHONY: help setup run test test-exactly-once test-cluster nightly lint types fmt bench clean

help:
	@echo "make setup   everything into .venv, hot path compiled; then .venv/bin/penstock is the program"
	@echo "make run     setup, then the broker in the foreground"
	@echo "make test    setup, then the whole test suite"
	@echo "make test-exactly-once setup, then batches and Spark from queue to queue under kills, half an hour"
	@echo "make test-cluster setup, then clusters of processes under a load and kills and cuts, as root, half an hour"
	@echo "make nightly setup, then storage, links and mirrors by chance, for half an hour or more"
	@echo "make lint    ruff and the import contracts"
	@echo "make types   mypy, strict"
	@echo "make fmt     format the code"
	@echo "make bench   compare with the RabbitMQ that is installed here"
	@echo "make clean   remove everything the other words made"

# Whoever runs interpreted need not wait for the compiler.
setup: $(VENV)/.installed $(if $(filter 1,$(PENSTOCK_PURE)),,$(VENV)/.compiled)
	@:

$(VENV)/.installed: pyproject.toml $(SETUP)
	@$(SETUP) program

$(VENV)/.compiled: $(VENV)/.installed setup.py mypy.ini $(HOT)
	@$(SETUP) compile

$(VENV)/.test-extra: $(VENV)/.installed
	@$(SETUP) test

run: setup
	@exec $(BIN)/penstock serve $(ARGS)

test: setup $(VENV)/.test-extra
	@$(BIN)/python -m pytest $(ARGS)

test-exactly-once: setup $(VENV)/.test-extra
	@PENSTOCK_EXACTLY_ONCE_KILLS=$${PENSTOCK_EXACTLY_ONCE_KILLS:-36} \
		PENSTOCK_SINK_KILLS=$${PENSTOCK_SINK_KILLS:-100} PENSTOCK_STAGING_LIVES=400 \
		$(BIN)/python -m pytest -rP --timeout=7200 tests/simulation/test_staging_lives.py \
		tests/spark/test_sink_kill.py tests/spark/test_exactly_once.py $(ARGS)

# PENSTOCK_CLUSTER_... says how much: see tests/cluster/test_cluster_lives.py.  The counts come last.
test-cluster: setup $(VENV)/.test-extra
	@$(BIN)/python -m pytest -rP tests/cluster/test_judge.py tests/cluster/test_namespaces.py \
		tests/cluster/test_live_load.py tests/cluster/test_cluster_lives.py $(ARGS)

# One test is thousands of lives here, so the limit for one that hangs is hours, not minutes.
nightly: setup $(VENV)/.test-extra
	@HYPOTHESIS_PROFILE=nightly PENSTOCK_ENGINE_SEEDS=5000 PENSTOCK_LINK_SEEDS=200 \
		PENSTOCK_MEMBERSHIP_SEEDS=3000 PENSTOCK_PROMOTION_SEEDS=20000 PENSTOCK_ETCD_CHAOS_S=600 PENSTOCK_RING_SEEDS=20000 \
		PENSTOCK_LIVES=1000 PENSTOCK_MIRROR_SEEDS=20000 PENSTOCK_METADATA_SEEDS=5000 \
		PENSTOCK_GROUP_SEEDS=3000 PENSTOCK_NODES_SEEDS=2000 \
		$(BIN)/python -m pytest --timeout=14400 -rP tests/backing tests/simulation \
		tests/cluster tests/storage/test_coordination.py tests/server/test_peers.py $(ARGS)
	@$(BIN)/python -m pytest --timeout=1800 -rP -m long tests/spark $(ARGS)

lint: setup $(VENV)/.test-extra
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/lint-imports --no-logo

types: setup $(VENV)/.test-extra
	$(BIN)/mypy $(ARGS)

fmt: setup $(VENV)/.test-extra
	$(BIN)/ruff check --fix-only $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

bench: setup $(VENV)/.test-extra
	$(BIN)/python benchmarks/compare.py $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
