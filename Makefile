# One word per wish; .ci/run uses the same words.  `make` alone lists them.
#
#   ARGS='...'   goes to the program behind the word:   make run ARGS='--amqp-port 5673'
#                                                       make test ARGS='-k recovery -x'

VENV   := .venv
BIN    := $(VENV)/bin
SETUP  := tools/setup.sh
PYTEST := $(BIN)/python -m pytest
CHECKED := src tests setup.py $(wildcard benchmarks fuzz tools examples docs packaging)
QUIET  := $(addprefix tests/,core settings routing queues backing storage broker) $(wildcard tests/protocols/*/codec)

.PHONY: help setup run quick test spark test-exactly-once test-cluster chaos test-losses test-peers test-links nightly lint types fmt bench
.PHONY: docs links screenshots lock audit wheel sdist sbom release-check clean deps-core deps-lint deps-clients deps-spark deps-ui deps-older-sparks

help:
	@echo "make setup   everything into .venv, hot files compiled; then .venv/bin/penstock is the program"
	@echo "make run     setup, then the broker in the foreground"
	@echo "make quick   interpreted, most tests of the quiet packages: a minute"
	@echo "make test    setup, then the whole test suite; ARGS=tests/queues: those tests, and only"
	@echo "             what they need is installed"
	@echo "make spark   setup, then what pipelines need, with a Java if there is none"
	@echo "make deps-core deps-lint deps-clients deps-spark deps-ui  what tests of that kind need"
	@echo "make deps-older-sparks  PySpark 4.0, 4.1 and 4.2 below build/spark: tests run them beside the newest"
	@echo "make test-exactly-once setup, then batches and Spark from queue to queue under kills, half an hour"
	@echo "make test-cluster setup, then clusters of processes under a load and kills and cuts, as root, half an hour"
	@echo "make chaos   setup, then a cluster under a load and faults by a seed, an hour, as root"
	@echo "make test-losses setup, then what once lost or doubled messages, 100 times, some hours"
	@echo "make test-peers setup, then hostile peers and the time of the loop, an hour for each"
	@echo "make test-links setup, then shovels and federation between Penstock and RabbitMQ under kills"
	@echo "make nightly setup, then storage, links, mirrors and kills by chance, for some hours"
	@echo "make lint    ruff and the import contracts"
	@echo "make types   mypy, strict"
	@echo "make fmt     format the code"
	@echo "make docs    the documentation as a site: build/site/index.html"
	@echo "make links   asks for each address of another site that the documentation names"
	@echo "make screenshots  the pictures of the web UI in docs/pictures/ui, taken anew"
	@echo "make bench   compare with the RabbitMQ that is installed here"
	@echo "make wheel   dist/*.whl for this Python, compiled, for any Linux of this age or newer"
	@echo "make sdist   dist/*.tar.gz;  make sbom  the list of all packages of an installation"
	@echo "make lock    requirements.lock from pyproject.toml; ARGS=--upgrade: with the newest versions"
	@echo "make audit   known vulnerabilities of what requirements.lock names"
	@echo "make release-check  wheels, image, chart and Debian package built and tried, as root"
	@echo "make clean   remove everything the other words made"

# PENSTOCK_PURE=1 runs interpreted, and need not wait for the compiler.
setup:
	@$(SETUP)
	@[ "$$PENSTOCK_PURE" = 1 ] || $(BIN)/python tools/native.py
	@echo "setup: done; $(BIN)/penstock serve starts a broker"

run: setup
	@exec $(BIN)/penstock serve $(ARGS)

quick:
	@$(SETUP) extras test-core
	@PENSTOCK_PURE=1 HYPOTHESIS_PROFILE=quick $(PYTEST) -q -n 2 --dist load -m 'not slow' $(QUIET) $(ARGS)

test: setup
	@$(SETUP) pytest $(ARGS)
	@$(PYTEST) $(or $(ARGS),-n auto --dist loadfile)

spark:
	@$(SETUP) spark

deps-core deps-lint deps-clients deps-spark deps-ui:
	@$(SETUP) extras $(@:deps-%=test-%)

deps-older-sparks:
	@$(SETUP) older-sparks

test-exactly-once: setup deps-core deps-spark
	@PENSTOCK_EXACTLY_ONCE_KILLS=$${PENSTOCK_EXACTLY_ONCE_KILLS:-36} \
		PENSTOCK_SINK_KILLS=$${PENSTOCK_SINK_KILLS:-100} PENSTOCK_STAGING_LIVES=400 \
		$(PYTEST) -rP --timeout=7200 tests/simulation/test_staging_lives.py \
		tests/spark/source/test_sink_kill.py tests/spark/source/test_exactly_once.py $(ARGS)

# PENSTOCK_CLUSTER_... says how much: see tests/cluster/test_cluster_lives.py.  The counts come last.
test-cluster: setup deps-core deps-clients
	@$(PYTEST) -rP tests/cluster/test_judge.py tests/cluster/test_namespaces.py \
		tests/cluster/test_live_load.py tests/cluster/test_cluster_lives.py $(ARGS)

# PENSTOCK_CHAOS_S: seconds; PENSTOCK_CHAOS_SEED: that schedule again.
chaos: setup deps-core deps-clients
	@PENSTOCK_CHAOS_S=$${PENSTOCK_CHAOS_S:-3600} $(PYTEST) -s tests/cluster/test_chaos.py $(ARGS)

# Each way in which a confirmed message was once lost, or doubled: deterministic stories, then
# pipelines, then processes.  PENSTOCK_REPEAT says how many times.
DEFINITIONS := tests/storage/test_definitions_damage.py::test_
TABLES      := tests/spark/tables/test_publishing.py::test_
REPLAY      := tests/spark/jobs/test_replay_bounds.py::test_
test-losses: setup deps-core deps-clients deps-spark
	@PENSTOCK_REPEAT=$${PENSTOCK_REPEAT:-100} $(PYTEST) -q --timeout=1800 \
		tests/node/test_causes.py tests/node/test_unused_queues.py \
		$(addprefix $(DEFINITIONS),messages_of_an_unknown_queue_stop_the_start \
			a_flipped_bit_in_the_log_loses_nothing_or_stops_the_start) \
		tests/protocols/amqp/test_deadlines.py::test_a_jump_of_the_wall_clock_is_not_time_that_passed \
		tests/cluster/test_restarts_and_expiry.py tests/cluster/test_clock_jumps.py \
		tests/cluster/test_pauses.py tests/cluster/test_lost_history.py tests/cluster/test_known_keys.py $(ARGS)
	@PENSTOCK_REPEAT=$${PENSTOCK_REPEAT:-100} $(PYTEST) -q --timeout=1800 \
		tests/spark/tables/test_power_cut.py \
		$(addprefix $(TABLES),a_table_that_was_moved_is_completed \
			a_table_of_release_0_1_0_that_was_moved_is_completed \
			a_file_that_is_gone_without_its_draft_is_an_error) \
		$(addprefix $(REPLAY),what_lands_after_the_plan_is_not_sent \
			a_slice_that_is_not_as_planned_is_not_sent) $(ARGS)
	@PENSTOCK_REPEAT=$${PENSTOCK_REPEAT:-10} $(PYTEST) -q --timeout=1800 \
		tests/cluster/test_live_lost_etcd.py tests/cluster/test_etcd_lost_data.py \
		tests/cluster/test_live_pause.py $(ARGS)

# PENSTOCK_PEER_S: seconds for each of both.
test-peers: setup deps-core
	@PENSTOCK_LOOP_TIME_S=$${PENSTOCK_PEER_S:-3600} $(PYTEST) -rP --timeout=14400 \
		tests/fuzz/test_loop_time.py $(ARGS)
	@end=$$(($$(date +%s) + $${PENSTOCK_PEER_S:-3600})); rounds=0; \
	while [ $$(date +%s) -lt $$end ]; do \
		$(PYTEST) -q --timeout=1800 tests/node/test_memory_of_a_peer.py $(ARGS) || exit 1; \
		rounds=$$((rounds + 1)); \
	done; echo "$$rounds rounds of a hostile peer, 50 examples of each test, nothing found"

# PENSTOCK_RABBITMQ_SERVER names the start script of another RabbitMQ than the one installed.
test-links: setup deps-core deps-clients
	@PENSTOCK_LINK_KILLS=$${PENSTOCK_LINK_KILLS:-8} PENSTOCK_LINK_MESSAGES=$${PENSTOCK_LINK_MESSAGES:-6000} \
		$(PYTEST) -rP tests/links/test_kills.py $(ARGS)

# One test is thousands of lives here, so the limit for one that hangs is hours, not minutes.
nightly: setup deps-core deps-clients deps-spark
	@HYPOTHESIS_PROFILE=nightly PENSTOCK_ENGINE_SEEDS=5000 PENSTOCK_STREAM_LIVES=5000 PENSTOCK_LINK_SEEDS=200 \
		PENSTOCK_MEMBERSHIP_SEEDS=3000 PENSTOCK_PROMOTION_SEEDS=20000 PENSTOCK_ETCD_CHAOS_S=600 PENSTOCK_RING_SEEDS=20000 \
		PENSTOCK_LIVES=1000 PENSTOCK_MIRROR_SEEDS=20000 PENSTOCK_METADATA_SEEDS=5000 \
		PENSTOCK_GROUP_SEEDS=3000 PENSTOCK_NODES_SEEDS=2000 PENSTOCK_LOOP_TIME_S=1200 \
		PENSTOCK_BROKER_SEEDS=1500 PENSTOCK_RANGE_LIVES=2000 PENSTOCK_ROOM_LIVES=1000 PENSTOCK_DUE_LIVES=2000 \
		PENSTOCK_LINK_CALLS=1000 \
		$(PYTEST) --timeout=14400 -rP tests/backing tests/simulation tests/core tests/queues tests/broker \
		tests/cluster tests/storage tests/protocols/amqp tests/protocols/peers/test_peers.py \
		tests/node/test_memory_of_a_peer.py tests/fuzz/test_loop_time.py \
		tests/links/test_failing_links.py $(ARGS)
	@PENSTOCK_KILLS=$${PENSTOCK_KILLS:-500} $(PYTEST) --timeout=14400 -rP tests/crash $(ARGS)
	@$(PYTEST) --timeout=1800 -rP -m long tests/spark $(ARGS)

lint: deps-lint
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/lint-imports --no-logo

types: deps-lint deps-core deps-clients deps-spark deps-ui
	$(BIN)/mypy $(ARGS)
	$(BIN)/mypy --explicit-package-bases benchmarks tools packaging/*.py

fmt: deps-lint
	$(BIN)/ruff check --fix-only $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

# Any warning is an error: a page in no table of contents, a link or an anchor that leads nowhere.
docs:
	@$(SETUP) extras docs
	@$(BIN)/python -m sphinx -q -W --keep-going -j auto -c docs -d build/doctrees . build/site $(ARGS)
	@echo "build/site/index.html"

# Links to other sites: needs the network, and ends with an error where one is not answered.
links:
	@$(SETUP) extras docs
	@$(BIN)/python -m sphinx -q -b linkcheck -j auto -c docs -d build/doctrees . build/links $(ARGS)
	@cat build/links/output.txt && echo "every link to another site was answered"

# Of the web UI, for the documentation; tests/ui/test_screenshots.py says which and why.
screenshots: setup deps-core deps-clients deps-ui
	@PENSTOCK_SCREENSHOTS=1 $(PYTEST) -q tests/ui/test_screenshots.py $(ARGS)

bench: setup
	@$(BIN)/python -m benchmarks compare $(ARGS)

# Known faults of what is locked; asks the package index.  Ends with an error where it cannot ask.
audit:
	@$(SETUP) extras audit
	@$(BIN)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r requirements.lock $(ARGS)

lock:
	@$(SETUP) extras lock
	@tools/lock.sh $(ARGS)

# setuptools would pack what an earlier build left in build/lib.
wheel: setup
	@$(SETUP) extras release
	@rm -rf build/lib* build/bdist* build/wheel
	@PENSTOCK_REQUIRE_COMPILED=1 $(BIN)/python -m build -q --wheel --no-isolation --outdir build/wheel
	@PATH=$(CURDIR)/$(BIN):$$PATH auditwheel repair --wheel-dir dist build/wheel/*.whl
	@ls dist/*.whl

sdist:
	@$(SETUP) extras release
	@PENSTOCK_NO_COMPILE=1 $(BIN)/python -m build -q --sdist --no-isolation
	@ls dist/*.tar.gz

release-check: wheel sdist
	packaging/check_chart.sh
	packaging/check_compose.sh
	packaging/check_wheel.sh
	packaging/check_deb.sh
	packaging/check_image.sh
	packaging/run_chart.sh
	packaging/check_debian.sh

# What an installation with pipelines consists of, with versions and licences (CycloneDX).
sbom: wheel
	@rm -rf build/sbom && $(BIN)/python -m venv build/sbom
	@$(BIN)/python tools/requirements.py program spark-jre >build/requirements.txt
	@build/sbom/bin/pip install -q --no-compile --require-hashes --no-deps -r build/requirements.txt
	@build/sbom/bin/pip install -q --no-compile --no-deps "$$(ls -t dist/*.whl | head -1)"
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --of JSON \
		-o dist/penstock_broker.cdx.json build/sbom
	@ls dist/*.cdx.json

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
