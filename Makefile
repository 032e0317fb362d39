# The entry points. Meson and the scripts named here do the work; each can be run by itself.
#
#   make            build into build/ (gcc)          make check       all tests
#   make deps       install missing Debian packages  make check-fresh quick start, fresh Debian 12
#   make check-vm   the suites under Debian's kernel and systemd, in QEMU
#   make serve      build and start the server
#   make demo       three sandboxes, explained       make bench       start, server, executor
#   make install    into $(DESTDIR)$(PREFIX)         make soak        many runs that leave nothing
#   make uninstall  remove the installed files       make fuzz        fuzz each decoder for SECONDS
#   make coverage   lines that the tests execute     make clean       remove the build directories
#   make check-mcp  the MCP conformance suite and clients of others, installed into build-mcp/
#   make help       this text

PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
SECONDS ?= 60
SUITES ?=
FLAGS ?=
DATA ?= yes

.DEFAULT_GOAL := build
.PHONY: build help deps check check-fresh check-vm check-mcp bench soak install uninstall demo serve runtimes clean fuzz coverage prefix

build: $(BUILD)/build.ninja
	@runtimes/node/check-snapshot $(BUILD)/runtimes/node
	@ninja -C $(BUILD) product
	@ln -sfn src/main/cove $(BUILD)/cove

$(BUILD)/build.ninja:
	@CC=$${CC:-gcc} meson setup $(BUILD) --prefix=$(PREFIX)

help:
	@sed -n 's/^# \{0,1\}//; 3,12p' Makefile

deps:
	@tools/deps build

# The tests need more packages: a second compiler, checkers, a weaker sandbox to compare with.
check:
	@tools/deps build test
	@tests/check $(SUITES)

check-fresh:
	@tests/fresh/run

# WORDS choose jobs: root, user, delegation, contract, storm, escape, units. Example:
# make check-vm WORDS=units
check-vm: build
	@tools/deps build vm
	@ninja -C $(BUILD)
	@tests/vm/run.py $(WORDS)

check-mcp: build
	@status=0; tests/mcp/run.py || status=1; tests/mcp/clients.py || status=1; \
	ninja -C $(BUILD) tests/tools/mcp-conformance-client && tests/mcp/conformance_client.py || status=1; exit $$status

bench: build
	@tools/deps build bench
	@ninja -C $(BUILD)
	@bench/start
	@bench/path
	@bench/api
	@bench/mcp --out bench/results
	@bench/calculate
	@bench/egress --out bench/results
	@bench/validate
	@bench/execute

soak: build
	@ninja -C $(BUILD)
	@tests/soak/run.py
	@tests/soak/executions.py
	@SCHEMA_SECONDS=$${SCHEMA_SECONDS:-600} tests/contract/schema_test.py $(BUILD)/src/main/cove
	@COVE_SWAP_ROUNDS=$${COVE_SWAP_ROUNDS:-100000} COVE_RUNTIME=$(abspath $(BUILD))/src/main/cove-runtime $(BUILD)/tests/contract/contract-runtime-links
	@COVE_TEST_ENTRIES=$${COVE_TEST_ENTRIES:-1000000} tests/contract/transfers_test.py $(BUILD)/tests/tools/api-testd $(BUILD)/src/main/cove-runtime
	@COVE_TEST_CONNECTIONS=$${COVE_TEST_CONNECTIONS:-10000} tests/contract/http_test.py $(BUILD)/tests/tools/http-testd
	@COVE=$(abspath $(BUILD))/src/main/cove COVE_TEST_SANDBOXES=$${COVE_TEST_SANDBOXES:-1000} tests/e2e/run.py RC07
	@tests/crash/run.py --kills 200
	@tests/storm/run.py --seconds $${STORM_SECONDS:-600}
	@tests/storm/run.py --as-user --seconds $${STORM_SECONDS:-600}
	@tools/deps build vm
	@tests/vm/run.py

# The packages of the built-in templates. A host that lacks some of them serves the other templates.
runtimes: deps
	@DATA=$(DATA) tools/deps --optional runtimes

# FLAGS="--listen 0.0.0.0:8700": settings for the server; docs/configuration.md lists them. DATA=no
# omits the packages of the template python-data, the largest ones.
serve: runtimes build
	@$(BUILD)/src/main/cove serve $(FLAGS)

demo: build
	@tools/demo $(BUILD)/src/main/cove

# A changed prefix makes Meson reconfigure, so it is passed only when it changed.
prefix: $(BUILD)/build.ninja
	@[ "$$(cat $(BUILD)/.prefix 2>/dev/null)" = "$(PREFIX)" ] || \
	    { meson configure $(BUILD) -Dprefix=$(PREFIX) && echo "$(PREFIX)" >$(BUILD)/.prefix; }

install: prefix build
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild --quiet
	@echo "installed under $(DESTDIR)$(PREFIX)"

uninstall: $(BUILD)/build.ninja prefix
	@tools/uninstall $(BUILD) "$(DESTDIR)"

fuzz:
	@tests/fuzz/run.py $(SECONDS)

coverage:
	@tools/deps build test
	@tests/coverage/run.py

clean:
	@rm -rf build build-asan build-cov build-fuzz build-vm
