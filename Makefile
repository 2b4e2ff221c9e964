# Builds, checks, runs and installs han. `make` alone lists the targets.
#
# Every target that needs them first installs missing system packages (`make deps`), so that each
# works as the first command on a machine with a Rust toolchain, a C compiler and apt.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml)
SOVERSION := $(firstword $(subst ., ,$(VERSION)))

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
CC ?= cc
FC := $(if $(filter default,$(origin FC)),gfortran,$(FC))
INSTALL ?= install

TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
RELEASE := $(TARGET_DIR)/release
CAPI := han/capi

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- system packages ---------------------------------------------------------------------------

# What is needed and the Debian package that has it: C and C++ compilers, Fortran, pkg-config, and
# Hydra's mpiexec (Debian's package `hydra` is something else); then the libraries, as pkg-config
# knows them.
NEEDED := cc:gcc c++:g++ gfortran:gfortran pkg-config:pkg-config mpiexec.hydra:mpich
NEEDED_LIBRARIES := hwloc:libhwloc-dev

.PHONY: deps
deps: ## install what is missing of the system packages (apt), nothing else
	@command -v $(CARGO) > /dev/null || { \
	    echo "make deps: no cargo: install a Rust toolchain from https://rustup.rs" >&2; exit 1; }; \
	packages=(); \
	for pair in $(NEEDED); do \
	    command -v "$${pair%%:*}" > /dev/null || packages+=("$${pair##*:}"); \
	done; \
	for pair in $(NEEDED_LIBRARIES); do \
	    pkg-config --exists "$${pair%%:*}" 2> /dev/null || packages+=("$${pair##*:}"); \
	done; \
	[ $${#packages[@]} -gt 0 ] || exit 0; \
	command -v apt-get > /dev/null || { \
	    echo "make deps: $${packages[*]} missing, and no apt-get here to install it" >&2; exit 1; }; \
	as_root=(); \
	if [ "$$(id -u)" -ne 0 ]; then \
	    command -v sudo > /dev/null || { \
	        echo "make deps: as root, run: apt-get install $${packages[*]}" >&2; exit 1; }; \
	    as_root=(sudo); \
	fi; \
	echo "make deps: installing $${packages[*]}"; \
	"$${as_root[@]}" apt-get update -qq || echo "make deps: apt-get update failed; trying all the same" >&2; \
	"$${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends "$${packages[@]}" > /dev/null || { \
	    echo "make deps: apt-get install $${packages[*]} failed" >&2; exit 1; }

# ---- build, run, measure -----------------------------------------------------------------------

.PHONY: build
build: deps ## release build of everything
	$(CARGO) build --release --workspace

# What is installed needs less than the workspace: no examples, no benchmarks.
.PHONY: build-installed
build-installed: deps
	$(CARGO) build --release -p han-capi -p han-cli

.PHONY: run
run: build ## the main job on 4 ranks, then a short table of latencies
	$(RELEASE)/han run -n 4 -- $(RELEASE)/gradient
	$(RELEASE)/han bench allreduce -n 2 --min 8 --max 64K

.PHONY: bench
bench: build ## our own numbers: kernels, the machine's limits, collectives on 2, 4 and 8 ranks
	$(CARGO) bench -p reduce-kernels
	$(RELEASE)/han bench --limits
	for ranks in 2 4 8; do $(RELEASE)/han bench all -n $$ranks --factor 4; done

# Where the rivals are installed; what they are compared with is in target/release/collbench.
PEERS ?= .peers
BENCH ?=

.PHONY: collbench
collbench: build
	benches/build-collbench.sh $(RELEASE) $(PEERS)

.PHONY: bench-peers
bench-peers: ## han beside the rivals (BENCH="--quick" for two minutes, BENCH="--help" for options)
	benches/install-rivals.sh $(PEERS)
	$(MAKE) --no-print-directory collbench
	$(RELEASE)/bench-peers --rivals $(PEERS) $(BENCH)

# ---- checks ------------------------------------------------------------------------------------

.PHONY: test
test: build ## everything that .ci/run checks
	$(MAKE) --no-print-directory test-format test-lint test-loom test-sanitize
	$(MAKE) --no-print-directory test-workspace

# A toolchain of rustup's minimal profile lacks them.
.PHONY: components
components:
	@$(CARGO) fmt --version > /dev/null 2>&1 && $(CARGO) clippy --version > /dev/null 2>&1 \
	    || rustup component add rustfmt clippy

.PHONY: test-format
test-format: components ## rustfmt
	$(CARGO) fmt --all --check

.PHONY: test-lint
test-lint: components ## clippy, warnings are errors
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

.PHONY: test-workspace
test-workspace: build ## unit, process, C and Fortran tests
	$(CARGO) test --release --workspace

# Loom explores every interleaving of the flag protocols; its own target directory, because the cfg
# changes every crate.
.PHONY: test-loom
test-loom: ## the flag protocols under loom
	RUSTFLAGS="--cfg loom" $(CARGO) test --release -p shm-core --test loom \
	    --target-dir $(TARGET_DIR)/loom

# Sanitizers need unstable options: of the nightly toolchain if there is one, else of the default one with
# these options unlocked. Non-temporal stores are invisible to them: --cfg sanitized puts ordinary ones in
# their place, under the same flags.
SAN_TARGET := $(shell rustc -vV 2> /dev/null | sed -n 's/^host: //p')
SAN_TOOLCHAIN = $(shell rustup toolchain list 2> /dev/null | grep -m1 -o '^nightly[^ ]*')
SAN_ENV = $(if $(SAN_TOOLCHAIN),RUSTUP_TOOLCHAIN=$(SAN_TOOLCHAIN),RUSTC_BOOTSTRAP=1)

.PHONY: test-sanitize
test-sanitize: test-tsan test-asan ## ThreadSanitizer and AddressSanitizer

# ThreadSanitizer must see the standard library's own synchronisation, so that is built from source
# with it: component rust-src. Where rustup cannot provide that, the reports would be noise; then
# the same tests run without the sanitizer, and the last line says so; with CI set that is a failure.
.PHONY: test-tsan
test-tsan: ## the collectives on the in-process segment under ThreadSanitizer
	@export $(SAN_ENV) CARGO_TARGET_DIR=$(TARGET_DIR)/tsan; \
	source="$$(rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock"; \
	[ -e "$$source" ] || rustup component add rust-src $(SAN_TOOLCHAIN:%=--toolchain %) || true; \
	tests=(test -p shm-core --release --target $(SAN_TARGET) --test tsan); \
	if [ -e "$$source" ]; then \
	    RUSTFLAGS="-Zsanitizer=thread --cfg sanitized" $(CARGO) "$${tests[@]}" -Zbuild-std; \
	else \
	    $(CARGO) "$${tests[@]}"; \
	    echo "test-tsan: WITHOUT ThreadSanitizer: install rust-src (rustup component add rust-src)"; \
	    [ -z "$${CI:-}" ]; \
	fi

# AddressSanitizer needs its runtime alone, which comes with the toolchain. Its stand-in for the stack is no
# stack, and its allocator never gives memory back to the system, and what lies between objects on a registered page
# must not be copied: tests that are about these things are left out.
ASAN_OPTIONS_HERE = detect_stack_use_after_return=0:suppressions=$(CURDIR)/shm-core/tests/asan.supp
ASAN_SKIPS := a_peers_buffer_that_is_not_there registering_without_the_method \
    the_engines_own_data_may_lie_on_a_registered_page

.PHONY: test-asan
test-asan: ## unit tests, collectives and kernels under AddressSanitizer
	@export $(SAN_ENV) CARGO_TARGET_DIR=$(TARGET_DIR)/asan ASAN_OPTIONS=$(ASAN_OPTIONS_HERE); \
	runtimes=("$$(rustc --print sysroot)"/lib/rustlib/$(SAN_TARGET)/lib/librustc*_rt.asan.*); \
	tests=(test -p shm-core -p reduce-kernels --release --target $(SAN_TARGET) --lib --tests --no-fail-fast); \
	if [ -e "$${runtimes[0]}" ]; then \
	    RUSTFLAGS="-Zsanitizer=address --cfg sanitized" $(CARGO) "$${tests[@]}" -- $(ASAN_SKIPS:%=--skip %); \
	else \
	    echo "test-asan: NOT RUN: this toolchain has no AddressSanitizer for $(SAN_TARGET)"; \
	    [ -z "$${CI:-}" ]; \
	fi

# ---- installation ------------------------------------------------------------------------------

ROOT = $(DESTDIR)$(abspath $(PREFIX))

.PHONY: install
install: build-installed ## libhan, han.h, han.mod, han.pc and han into PREFIX
	$(INSTALL) -d $(ROOT)/bin $(ROOT)/include $(ROOT)/lib/pkgconfig
	$(INSTALL) -m 755 $(RELEASE)/han $(ROOT)/bin/han
	$(INSTALL) -m 755 $(RELEASE)/libhan_capi.so $(ROOT)/lib/libhan.so.$(VERSION)
	ln -sf libhan.so.$(VERSION) $(ROOT)/lib/libhan.so.$(SOVERSION)
	ln -sf libhan.so.$(SOVERSION) $(ROOT)/lib/libhan.so
	$(INSTALL) -m 644 $(RELEASE)/libhan_capi.a $(ROOT)/lib/libhan.a
	$(INSTALL) -m 644 $(CAPI)/include/han.h $(CAPI)/fortran/han.f90 $(ROOT)/include
	$(FC) -std=f2018 -fsyntax-only -J$(ROOT)/include $(CAPI)/fortran/han.f90
	sed -e 's|@PREFIX@|$(abspath $(PREFIX))|' -e 's|@VERSION@|$(VERSION)|' $(CAPI)/han.pc.in \
	    > $(ROOT)/lib/pkgconfig/han.pc

.PHONY: uninstall
uninstall: ## remove what install put into PREFIX
	rm -f $(ROOT)/bin/han $(ROOT)/lib/libhan.so* $(ROOT)/lib/libhan.a $(ROOT)/lib/pkgconfig/han.pc \
	    $(ROOT)/include/han.h $(ROOT)/include/han.f90 $(ROOT)/include/han.mod

.PHONY: clean
clean: ## remove the build's output
	$(CARGO) clean
