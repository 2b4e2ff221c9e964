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
ifneq ($(words [$(DESTDIR)$(PREFIX)]),1)
$(error PREFIX=$(PREFIX) DESTDIR=$(DESTDIR): names without blanks are needed)
endif
CARGO ?= cargo
CC ?= cc
# An argument of make may name another gfortran; the environment's compiler may be one that has other options.
FC := gfortran
INSTALL ?= install

TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
RELEASE := $(TARGET_DIR)/release
CAPI := han/capi

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- system packages ---------------------------------------------------------------------------

# What is needed and the Debian package that has it: C and C++ compilers, Fortran, pkg-config, Hydra's mpiexec
# (Debian's package `hydra` is something else), an mpirun that speaks PMIx, a compiler for MPI programs, what makes
# network namespaces, and what tests CMake's files and manual pages; then the libraries, as pkg-config knows them.
NEEDED := cc:gcc c++:g++ gfortran:gfortran pkg-config:pkg-config mpiexec.hydra:mpich mpirun.openmpi:openmpi-bin \
    ip:iproute2 tc:iproute2 cmake:cmake mandoc:mandoc
NEEDED_LIBRARIES := libfabric:libfabric-dev pmix:libpmix-dev mpich:libmpich-dev
# What bindgen opens to read the headers of libfabric and PMIx, and what the engine opens to see where the cores are.
NEEDED_LOADABLE := libclang:libclang1 libhwloc:libhwloc15

.PHONY: deps
deps: ## install what is missing of the system packages (apt), nothing else
	@command -v $(CARGO) > /dev/null || { \
	    echo "make deps: no cargo: install a Rust toolchain from https://rustup.rs" >&2; exit 1; }; \
	packages=(); export PATH="$$PATH:/usr/sbin:/sbin"; \
	for pair in $(NEEDED); do \
	    command -v "$${pair%%:*}" > /dev/null || packages+=("$${pair##*:}"); \
	done; \
	for pair in $(NEEDED_LIBRARIES); do \
	    pkg-config --exists "$${pair%%:*}" 2> /dev/null || packages+=("$${pair##*:}"); \
	done; \
	loadable="$$(PATH="$$PATH:/sbin:/usr/sbin" ldconfig -p 2> /dev/null || true)"; \
	for pair in $(NEEDED_LOADABLE); do \
	    [[ "$${pair%%:*}$${LIBCLANG_PATH:-}" = libclang?* || "$$loadable" =~ $${pair%%:*}(-[0-9]+)?\.so ]] || \
	        packages+=("$${pair##*:}"); \
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

# What `make check-launchers` needs besides.
NEEDED_FOR_LAUNCHERS := slurmctld:slurmctld slurmd:slurmd srun:slurm-client

.PHONY: deps-launchers
deps-launchers: ## install what check-launchers needs besides: Slurm
	@$(MAKE) --no-print-directory deps NEEDED="$(NEEDED_FOR_LAUNCHERS)" NEEDED_LIBRARIES= NEEDED_LOADABLE=

# What `make check-mpi` needs besides: the rivals' Open MPI has no Fortran, Debian's has.
NEEDED_FOR_MPI := mpifort.openmpi:libopenmpi-dev

.PHONY: deps-mpi
deps-mpi: ## install what check-mpi needs besides: Open MPI with Fortran
	@$(MAKE) --no-print-directory deps NEEDED="$(NEEDED_FOR_MPI)" NEEDED_LIBRARIES= NEEDED_LOADABLE=

# ---- build, run, measure -----------------------------------------------------------------------

.PHONY: build
build: deps ## release build of everything
	$(CARGO) build --release --workspace

# All at once: neither core waits for the other where one package ends.
.PHONY: build-tests
build-tests: deps
	$(CARGO) build --release --workspace --lib --bins --tests

# What is installed needs less than the workspace: no examples, no benchmarks.
.PHONY: build-installed
build-installed: deps
	$(CARGO) build --release -p han-capi -p han-cli -p han-mpi

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
# Over nodes instead: NODES=2, or 2,4; with RATES=0,1gbit and PPN=2 if others than bench-peers' own are meant.
NODES ?=
RATES ?=
PPN ?=
# For bench-defaults: nodes x ranks of each.
SHAPES ?= 2x2 4x2
OVER_NODES = $(NODES:%=--nodes %) $(if $(NODES),$(RATES:%=--rates %) $(PPN:%=--ppn %))

.PHONY: collbench
collbench: build
	benches/build-collbench.sh $(RELEASE) $(PEERS)

.PHONY: bench-peers
bench-peers: ## han beside the rivals (BENCH="--quick" for two minutes, BENCH="--help" for options; NODES=2)
	benches/install-rivals.sh $(PEERS)
	$(MAKE) --no-print-directory collbench
	$(RELEASE)/bench-peers --rivals $(PEERS) $(OVER_NODES) $(BENCH)

.PHONY: bench-defaults
bench-defaults: build ## built-in choices over nodes beside all ranks on the network, as root (SHAPES="2x2 4x2")
	benches/defaults $(RELEASE)/han "$(SHAPES)"

.PHONY: bench-applications
bench-applications: ## asp and gradient with han and with the rivals over nodes (BENCH="--help" for options)
	benches/install-rivals.sh $(PEERS)
	$(MAKE) --no-print-directory collbench
	$(RELEASE)/bench-applications --rivals $(PEERS) $(OVER_NODES) $(BENCH)

.PHONY: bench-mpi
bench-mpi: ## collectives of an MPI program with and without libhan_mpi.so (BENCH="--help" for options)
	benches/install-rivals.sh $(PEERS)
	$(MAKE) --no-print-directory collbench
	$(RELEASE)/bench-mpi --rivals $(PEERS) $(BENCH)

# Programs in han/mpi/check, with Open MPI, MPICH, Intel MPI and Debian's; what the MPIs alone print is kept, so that
# only the first time takes long. Nodes are network namespaces: without root, CHECK="--nodes 0".
CHECK ?=
.PHONY: check-mpi
check-mpi: build deps-mpi ## MPI programs with and without libhan_mpi.so, with every MPI that is here (CHECK="--help" for options)
	benches/install-rivals.sh $(PEERS)
	$(RELEASE)/check-mpi --rivals $(PEERS) $(CHECK)

# ---- checks ------------------------------------------------------------------------------------

# What of a job beside others has failed: said once more at the end, where whoever sees a part of the output looks.
FAILED := $(TARGET_DIR)/test-failed

# Tests wait for processes and deadlines: meanwhile the rest is built and run, with what time they leave.
.PHONY: test
test: deps components ## everything that .ci/run checks
	@rm -f $(FAILED)
	$(MAKE) --no-print-directory -j2 build-tests test-format
	$(MAKE) --no-print-directory -j2 test-workspace test-beside || { cat $(FAILED); exit 1; }

.PHONY: test-beside
test-beside:
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	nice $(MAKE) --no-print-directory test-loom test-sanitize test-lint 2>&1 | tee "$$log" \
	    || { tail -n 60 "$$log" >> $(FAILED); exit 1; }

# A toolchain of rustup's minimal profile lacks them.
.PHONY: components
components:
	@$(CARGO) fmt --version > /dev/null 2>&1 && $(CARGO) clippy --version > /dev/null 2>&1 \
	    || rustup component add rustfmt clippy

.PHONY: test-format
test-format: components ## rustfmt
	$(CARGO) fmt --all --check

.PHONY: test-lint
test-lint: deps components ## clippy and rustdoc, warnings are errors
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps

# More at a time than there are cores: most of them wait for processes that wait for each other.
.PHONY: test-workspace
test-workspace: deps ## unit, process, C and Fortran tests
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; export RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((4 * $$(nproc)))}; \
	$(CARGO) test --release --workspace --no-fail-fast 2>&1 | tee "$$log" \
	    || { sed -n '/^failures:$$/,/^test result/p' "$$log" | tee -a $(FAILED); exit 1; }

# What test-workspace does in part: 200 jobs with a random rank killed at a random time, 100,000 communicators.
.PHONY: test-long
test-long: build-tests ## the loops of the workspace's tests at full length (minutes)
	HAN_TEST_KILL_RUNS=200 $(CARGO) test --release -p han-cli --test safety -- at_random --nocapture
	HAN_TEST_COMMUNICATORS=100000 $(CARGO) test --release -p han-cli --test communicators -- --nocapture

# As root, or with HAN_TEST_NO_NETNS=1 without nodes and Slurm.
.PHONY: check-launchers
check-launchers: build deps-launchers ## native programs under every launcher: Hydra, Open MPI 4 and 5, Slurm, and none
	benches/install-rivals.sh $(PEERS)
	HAN_TEST_PEERS=$(abspath $(PEERS)) $(CARGO) test --release -p han-cli --test launchers -- --include-ignored

# `make test` proves the same, and says nothing.
.PHONY: prove
prove: ## every schedule between nodes, 1 to 64 ranks, all roots, 1 to 5 chunks, with a report
	$(CARGO) test --release -p net-fabric --test schedules -- --nocapture every_small_world

# Nobody runs these builds for their speed: with less optimization they are there sooner. What a sanitizer says names
# functions; `make test-asan SAN_LINES=1` has lines, too.
SAN_LINES ?= 0
FOR_CHECKS := CARGO_PROFILE_RELEASE_DEBUG=$(if $(filter 0,$(SAN_LINES)),0,line-tables-only) CARGO_PROFILE_RELEASE_LTO=off \
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

# Loom explores every interleaving of the flag protocols; its own target directory, because the cfg
# changes every crate. Optimizing it takes longer than it then saves.
.PHONY: test-loom
test-loom: ## the flag protocols under loom
	$(FOR_CHECKS) CARGO_PROFILE_RELEASE_OPT_LEVEL=0 RUSTFLAGS="--cfg loom" $(CARGO) test --release -p shm-core --test loom \
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
	@export $(SAN_ENV) $(FOR_CHECKS) CARGO_TARGET_DIR=$(TARGET_DIR)/tsan; \
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
# must not be copied: tests that are about these things are left out. What it is told to suppress it knows by names
# of functions, which llvm-symbolizer tells it, or addr2line, which is wherever there is a C compiler.
ASAN_OPTIONS_HERE = detect_stack_use_after_return=0:allow_addr2line=1:suppressions=$(CURDIR)/shm-core/tests/asan.supp
ASAN_SKIPS := a_peers_buffer_that_is_not_there registering_without_the_method \
    the_engines_own_data_may_lie_on_a_registered_page

# The others reach no memory in a way of their own.
ASAN_TESTS := conformance records vectors_match_scalar user_operators datatypes_and_operators

.PHONY: test-asan
test-asan: ## unit tests, collectives and kernels under AddressSanitizer
	@export $(SAN_ENV) $(FOR_CHECKS) CARGO_TARGET_DIR=$(TARGET_DIR)/asan ASAN_OPTIONS=$(ASAN_OPTIONS_HERE); \
	runtimes=("$$(rustc --print sysroot)"/lib/rustlib/$(SAN_TARGET)/lib/librustc*_rt.asan.*); \
	tests=(test -p shm-core -p reduce-kernels --release --target $(SAN_TARGET) --lib $(ASAN_TESTS:%=--test %) --no-fail-fast); \
	if [ -e "$${runtimes[0]}" ]; then \
	    RUSTFLAGS="-Zsanitizer=address --cfg sanitized" $(CARGO) "$${tests[@]}" -- $(ASAN_SKIPS:%=--skip %); \
	else \
	    echo "test-asan: NOT RUN: this toolchain has no AddressSanitizer for $(SAN_TARGET)"; \
	    [ -z "$${CI:-}" ]; \
	fi

# ---- installation ------------------------------------------------------------------------------

# The folder of libraries within PREFIX; Debian's is lib/x86_64-linux-gnu.
LIBDIR ?= lib
ROOT = $(DESTDIR)$(abspath $(PREFIX))
LIBRARIES = $(ROOT)/$(LIBDIR)
MANUALS = $(ROOT)/share/man
# Where the loader looks anyway, a run-time path would be in the way.
RPATH = $(if $(filter /usr,$(abspath $(PREFIX))),,-Wl,-rpath,$${libdir})

# At the foot of manual pages: the day of the last entry of the change log, unless a packager says otherwise.
DATE = $(shell date -u -d "@$${SOURCE_DATE_EPOCH:-$$(stat -c %Y CHANGELOG.md)}" +%F)

# Fills in what the templates of han.pc and of CMake's files leave open.
FILL_IN = sed -e 's|@PREFIX@|$(abspath $(PREFIX))|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
    -e 's|@SOVERSION@|$(SOVERSION)|' -e 's|@MAJOR@|$(SOVERSION)|g' -e 's|@MINOR@|$(word 2,$(subst ., ,$(VERSION)))|g' \
    -e 's|@UP@|$(shell realpath -ms --relative-to=/$(LIBDIR)/cmake/han /)|' -e 's|@RPATH@|$(RPATH)|'

.PHONY: install
install: build-installed ## libraries, header, Fortran module, pkg-config and CMake files, manual pages, han
	$(INSTALL) -d $(ROOT)/bin $(ROOT)/include $(LIBRARIES)/pkgconfig $(LIBRARIES)/cmake/han $(MANUALS)/man1 $(MANUALS)/man3 \
	    $(MANUALS)/man7
	$(INSTALL) -m 755 $(RELEASE)/han $(ROOT)/bin/han
	$(CAPI)/link.sh $(RELEASE) $(VERSION)
	$(INSTALL) -m 755 $(RELEASE)/libhan.so.$(VERSION) $(LIBRARIES)
	$(INSTALL) -m 755 $(RELEASE)/libhan_mpi.so $(LIBRARIES)
	ln -sf libhan.so.$(VERSION) $(LIBRARIES)/libhan.so.$(SOVERSION)
	ln -sf libhan.so.$(SOVERSION) $(LIBRARIES)/libhan.so
	$(INSTALL) -m 644 $(RELEASE)/libhan_capi.a $(LIBRARIES)/libhan.a
	$(INSTALL) -m 644 $(CAPI)/include/han.h $(CAPI)/fortran/han.f90 $(ROOT)/include
	$(FC) -std=f2018 -fsyntax-only -J$(ROOT)/include $(CAPI)/fortran/han.f90
	$(FILL_IN) $(CAPI)/han.pc.in > $(LIBRARIES)/pkgconfig/han.pc
	for file in hanConfig hanConfigVersion; do \
	    $(FILL_IN) $(CAPI)/cmake/$$file.cmake.in > $(LIBRARIES)/cmake/han/$$file.cmake; \
	done
	$(RELEASE)/han manual $(DATE) $(MANUALS)/man1
	$(RELEASE)/han-manual $(CAPI)/include/han.h $(DATE) $(MANUALS)/man3
	$(FILL_IN) -e 's|@DATE@|$(DATE)|' han/mpi/libhan_mpi.7.in > $(MANUALS)/man7/libhan_mpi.7

.PHONY: uninstall
uninstall: ## remove what install put into PREFIX
	rm -f $(ROOT)/bin/han $(LIBRARIES)/libhan.so* $(LIBRARIES)/libhan.a $(LIBRARIES)/libhan_mpi.so $(LIBRARIES)/pkgconfig/han.pc \
	    $(ROOT)/include/han.h $(ROOT)/include/han.f90 $(ROOT)/include/han.mod \
	    $(LIBRARIES)/cmake/han/hanConfig.cmake $(LIBRARIES)/cmake/han/hanConfigVersion.cmake \
	    $(MANUALS)/man1/han.1 $(MANUALS)/man1/han-*.1 $(MANUALS)/man3/libhan.3 $(MANUALS)/man3/han_*.3 \
	    $(MANUALS)/man7/libhan_mpi.7
	-rmdir --ignore-fail-on-non-empty $(LIBRARIES)/cmake/han

# ---- packages ----------------------------------------------------------------------------------

DIST = $(TARGET_DIR)/dist
ARCHIVE = $(DIST)/han-$(VERSION).tar.xz
# Builds what the argument says as on a machine without a network, if that can be had here.
NO_NETWORK = $(if $(filter 0,$(shell id -u)),unshare --net)

.PHONY: dist
dist: deps ## the sources with all crates, as an archive that builds without a network (target/dist)
	CARGO=$(CARGO) han/packaging/dist.sh $(VERSION) $(ARCHIVE)

.PHONY: debhelper
debhelper:
	@command -v dh > /dev/null || { echo "make deb: needs debhelper: apt-get install debhelper" >&2; exit 1; }

.PHONY: deb
deb: debhelper deps dist ## Debian packages of that archive (target/dist/deb)
	$(NO_NETWORK) han/packaging/deb.sh $(VERSION) $(ARCHIVE) $(DIST)/deb

.PHONY: check-deb
check-deb: deb ## installs and uses them on a copy of this system; as root
	han/packaging/check-deb.sh $(DIST)/deb

.PHONY: check-spack
check-spack: dist ## the steps of the Spack recipe, on that archive
	rm -rf $(DIST)/spack && mkdir -p $(DIST)/spack
	env -u CARGO_TARGET_DIR $(NO_NETWORK) python3 han/packaging/spack/by_hand.py $(ARCHIVE) $(DIST)/spack

MANIFESTS = $(filter-out target/%,$(wildcard */Cargo.toml */*/Cargo.toml */*/*/Cargo.toml))
PUBLIC_CRATES = $(shell grep -L '^publish = false' $(MANIFESTS))

.PHONY: check-package
check-package: deps ## every public crate as crates.io would get it: packed, unpacked, built
	for crate in $(PUBLIC_CRATES); do \
	    [ "$$($(CARGO) package --list --allow-dirty --manifest-path $$crate | grep -c '^LICENSE-')" -eq 2 ] || { \
	        echo "make check-package: $$crate lacks the texts of its licences" >&2; exit 1; }; \
	done
	$(CARGO) publish --workspace --dry-run

.PHONY: clean
clean: ## remove the build's output
	$(CARGO) clean
