# `make help` lists what can be made.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What rustls' cryptography is built with, and what the tests and the demo run.
BUILD_TOOLS := cc cmake
TEST_TOOLS := curl openssl git nginx haproxy caddy wrk h2load chromium perf dockerd pg_ctlcluster prometheus systemd-analyze \
	redis-server redis-cli etcd sshd ip slapd sqlite3
BENCH_TOOLS := nginx haproxy
COUNT_TOOLS := valgrind nginx haproxy openssl
# The Debian packages that bring the tools whose names differ.
PACKAGE_cc := gcc libc6-dev make
PACKAGE_nginx := nginx-light
PACKAGE_h2load := nghttp2-client
PACKAGE_go := golang-go
PACKAGE_perf := linux-perf
PACKAGE_dockerd := docker.io
PACKAGE_pg_ctlcluster := postgresql
PACKAGE_redis-cli := redis-tools
PACKAGE_etcd := etcd-server
PACKAGE_sshd := openssh-server
PACKAGE_ip := iproute2
PACKAGE_systemd-analyze := systemd
PACKAGE_java := default-jre-headless
PACKAGE_mvn := maven
PACKAGE_debootstrap := debootstrap debian-archive-keyring
PACKAGE_dpkg-shlibdeps := dpkg-dev binutils
PACKAGE_qemu-aarch64-static := qemu-user-static
# Clients and servers of other makers, as modules of Debian's Python.
TEST_MODULES := grpc websockets yaml
PACKAGE_grpc := python3-grpcio
PACKAGE_websockets := python3-websockets
PACKAGE_yaml := python3-yaml
PACKAGE_ensurepip := python3-venv
package = $(foreach tool,$(1),$(or $(PACKAGE_$(tool)),$(tool)))

# Installs missing tools where that needs no password; otherwise says what to run.
define need
	@missing=""; for tool in $(1); do \
	  command -v $$tool >/dev/null || /usr/bin/python3 -c "import $$tool" 2>/dev/null || missing="$$missing $$tool"; \
	done; \
	if [ -n "$$missing" ]; then \
	  packages="$(call package,$(1))"; install="apt-get install --yes --no-install-recommends $$packages"; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && DEBIAN_FRONTEND=noninteractive $$install; \
	  else \
	    echo "missing:$$missing. Install them, on Debian or Ubuntu with: sudo $$install" >&2; exit 1; \
	  fi; \
	fi
endef

# The conformance tests of HTTP/2, as the versions in go.mod make them.
H2SPEC := $(abspath $(TARGET)/tools/h2spec)
$(H2SPEC): crates/gateway/tests/h2spec/go.mod crates/gateway/tests/h2spec/go.sum
	$(call need,go)
	cd $(dir $<) && GOBIN=$(dir $@) go install github.com/summerwind/h2spec/cmd/h2spec
	touch $@

GO_INSTALL := .ci/go-install
# A CA that speaks ACME, as the versions in go.mod make it.
PEBBLE := $(abspath $(TARGET)/tools/pebble)
PEBBLE_FILES := crates/gateway/tests/pebble
$(PEBBLE): $(wildcard $(PEBBLE_FILES)/*) $(GO_INSTALL) | $(H2SPEC)
	$(GO_INSTALL) $(PEBBLE_FILES) $(dir $@)
	touch $@

# connectconformance, grpc-go's examples and statsd_exporter, as the versions in go.mod make them.
COUNTERPARTS := $(abspath $(TARGET)/tools/counterparts)
COUNTERPARTS_FILES := crates/gateway/tests/counterparts
$(COUNTERPARTS)/installed: $(wildcard $(COUNTERPARTS_FILES)/*) $(GO_INSTALL) | $(PEBBLE)
	$(GO_INSTALL) $(COUNTERPARTS_FILES) $(COUNTERPARTS)
	touch $@

# A provider of OpenID Connect, dex as a program of ours, as the versions in go.mod make it.
DEX := $(abspath $(TARGET)/tools/dex)
DEX_FILES := crates/gateway/tests/dex
$(DEX): $(DEX_FILES)/main.go $(DEX_FILES)/go.mod $(DEX_FILES)/go.sum | $(COUNTERPARTS)/installed
	if cd $(DEX_FILES) && CGO_ENABLED=0 go build -o $@ .; then touch $@; \
	else echo "dex cannot be built here: what needs it is tested only where DEX names it" >&2; fi

# The client of HTTP/3, as the versions in requirements.txt make it.
AIOQUIC := $(abspath $(TARGET)/tools/aioquic)
$(AIOQUIC)/installed: crates/gateway/tests/http3/requirements.txt | $(DEX)
	$(call need,ensurepip)
	/usr/bin/python3 -m venv --clear $(AIOQUIC)
	$(AIOQUIC)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

# The client libraries that plugins are tested with, as the versions in requirements.txt make them.
CLIENTS := $(abspath $(TARGET)/tools/clients)
$(CLIENTS)/installed: crates/gateway/tests/clients/requirements.txt | $(AIOQUIC)/installed
	$(call need,ensurepip)
	/usr/bin/python3 -m venv --clear $(CLIENTS)
	$(CLIENTS)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

# apt-get with the sources.list of a folder alone, and a line of it: of `deb` or `deb-src`, for this Debian or a suite of it.
own_apt = apt-get --quiet -o Dir::Etc::sourcelist=$(1)/sources.list -o Dir::Etc::sourceparts=- \
  -o Dir::State::lists=$(1)/lists -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
own_source = apt-get indextargets --format '$$(REPO_URI)' 'Created-By: Packages' "Release: $$(. /etc/os-release; echo $$VERSION_CODENAME)" | \
  sed -n "1s|.*|$(1) [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] & $$(. /etc/os-release; echo $$VERSION_CODENAME)$(2) main|p"

# Valkey, from the backports of Debian 12, without adding them to the system's sources. Later Debians have it themselves.
VALKEY := $(abspath $(TARGET)/tools/valkey)
$(VALKEY)/usr/bin/valkey-server: | $(CLIENTS)/installed
	mkdir -p $(VALKEY)/lists/partial
	$(call own_source,deb,-backports) > $(VALKEY)/sources.list
	if cd $(VALKEY) && $(call own_apt,$(VALKEY)) update && $(call own_apt,$(VALKEY)) download valkey-server valkey-tools; then \
	  for package in *.deb; do dpkg-deb --extract $$package .; done; touch $@; \
	else echo "valkey-server cannot be had here: what needs it is tested only if it is installed" >&2; fi

# The jars of Apache Kafka, as pom.xml names them, if they are those of the list.
KAFKA := $(abspath $(TARGET)/tools/kafka)
KAFKA_FILES := crates/gateway/tests/kafka
$(KAFKA)/installed: $(KAFKA_FILES)/pom.xml $(KAFKA_FILES)/sha256sums | $(VALKEY)/usr/bin/valkey-server
	$(call need,java mvn)
	rm -rf $(KAFKA) && mkdir -p $(KAFKA)
	if mvn --batch-mode --quiet --file $< dependency:copy-dependencies -DoutputDirectory=$(KAFKA); then \
	  (cd $(KAFKA) && sha256sum --check --strict --quiet) < $(KAFKA_FILES)/sha256sums && touch $@; \
	else echo "Apache Kafka cannot be had here: what needs it is tested only where KAFKA names its jars" >&2; fi

# Libraries in Lua of Debian, which ours are compared with, or which run on ours. They are not installed, because some bring
# nginx. Of lua-cjson, the source has the tests.
LUA_LIBRARIES := $(abspath $(TARGET)/tools/lua)
$(LUA_LIBRARIES)/fetched: crates/guests/tests/packages.txt | $(KAFKA)/installed
	rm -rf $(LUA_LIBRARIES) && mkdir -p $(LUA_LIBRARIES)/lists/partial $(LUA_LIBRARIES)/lua-cjson
	cd $(LUA_LIBRARIES) && apt-get --quiet download $$(cat $(abspath $<)) && \
	  for package in *.deb; do dpkg-deb --extract $$package .; done
	$(call own_source,deb-src) > $(LUA_LIBRARIES)/sources.list
	cd $(LUA_LIBRARIES) && $(call own_apt,$(LUA_LIBRARIES)) update && \
	  $(call own_apt,$(LUA_LIBRARIES)) source --download-only lua-cjson && \
	  tar --extract --file=$$(echo lua-cjson_*.orig.tar.*) --directory=lua-cjson --strip-components=1
	touch $@

# Says which step begins, so that a long build is not silent.
step = @echo '==> $(1)'
# Before a long command: without a terminal, cargo shows no progress, so the time is printed every half minute.
heartbeat = if [ ! -t 2 ]; then \
  (while sleep 30 > /dev/null 2>&1; do echo "    building for $$SECONDS s" >&2; done) & beat=$$!; trap "kill $$beat" EXIT; \
  fi;

.PHONY: help
help: ## List what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: run
run: tools-rust ## Build quickly, start the demo, and show what to try
	$(call need,$(BUILD_TOOLS) curl)
	$(call step,Building the demo; two to four minutes the first time. To measure take make build instead)
	@$(heartbeat) $(CARGO) build --profile demo --locked --package weir-gateway
	exec "$(TARGET)/demo/weir" demo

.PHONY: build
build: tools-rust ## Build weir and weirlab as they are released, into target/release
	$(call need,$(BUILD_TOOLS))
	$(CARGO) build --release --locked --package weir-gateway --package weirlab

.PHONY: test
test: tools-rust ## Check formatting, lints, documentation and licences, and run every test
	$(call need,$(BUILD_TOOLS) $(TEST_TOOLS) $(TEST_MODULES))
	@mkdir -p "$(TARGET)/tools"; log="$(TARGET)/tools/log"; \
	$(MAKE) --no-print-directory test-tools > "$$log" 2>&1 & tools=$$!; trap 'kill $$tools 2> /dev/null || true' EXIT; \
	$(MAKE) --no-print-directory lint; \
	wait $$tools || { cat "$$log" >&2; exit 1; }
	$(call step,Tests)
	@$(heartbeat) $(CARGO) test --workspace --locked --no-run
	H2SPEC=$(H2SPEC) AIOQUIC=$(AIOQUIC)/bin/python CLIENTS=$(CLIENTS)/bin/python VALKEY=$(VALKEY)/usr/bin/valkey-server \
  KAFKA=$(KAFKA) LUA_LIBRARIES=$(LUA_LIBRARIES) PEBBLE=$(PEBBLE) DEX=$(DEX) COUNTERPARTS=$(COUNTERPARTS) \
	  $(CARGO) test --workspace --locked --config "target.'cfg(unix)'.runner = '$(CURDIR)/.ci/test-runner'"
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check; else echo "cargo-deny is not installed: licences and advisories are not checked"; fi

# One after the other, because each may call the package manager. `make test` fetches them while the lints run.
.PHONY: test-tools
test-tools: $(H2SPEC) $(PEBBLE) $(COUNTERPARTS)/installed $(DEX) $(AIOQUIC)/installed $(CLIENTS)/installed $(VALKEY)/usr/bin/valkey-server $(KAFKA)/installed $(LUA_LIBRARIES)/fetched ## Fetch what only the tests use: h2spec, pebble, connectconformance, grpc-go's examples, statsd_exporter, dex, aioquic, client libraries, Valkey, Kafka, libraries in Lua

.PHONY: lint
lint: tools-rust ## Check formatting, lints and documentation; part of make test
	$(call step,Formatting)
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path examples/plugin/Cargo.toml --check
	$(call step,Lints)
	@$(heartbeat) $(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	$(call step,Documentation)
	@$(heartbeat) RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked

.PHONY: test-removal
test-removal: tools-rust ## Show that a plugin can be removed: build and test without key-auth (PLUGIN=key_auth), in 3 minutes after make test
	CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" .ci/without-plugin $(PLUGIN)

FUZZ_SECONDS ?= 300
FUZZ_CRATES := $(wildcard crates/*/fuzz)
# How long each target runs; by default, all of them together take FUZZ_SECONDS.
FUZZ_TARGET_SECONDS = $(shell echo $$(($(FUZZ_SECONDS) / $$(cat $(addsuffix /Cargo.toml,$(FUZZ_CRATES)) | grep --count '^\[\[bin\]\]'))))
# What a run finds is kept outside the repository, in front of the committed corpus.
FUZZ_CORPUS := $(abspath $(TARGET))/fuzz-corpus
# Schemas and declarations last as long as the process, so leaks are not looked for.
.PHONY: fuzz
fuzz: tools-rust ## Run every fuzz target, five minutes in all (FUZZ_SECONDS=300); needs nightly and cargo-fuzz
	@command -v cargo-fuzz >/dev/null || { echo "missing: cargo-fuzz. Install it with: cargo install cargo-fuzz; rustup toolchain install nightly" >&2; exit 1; }
	@failed=""; for crate in $(FUZZ_CRATES); do for target in $$(cd $$crate/.. && $(CARGO) +nightly fuzz list); do \
	  echo "==> $$crate: $$target"; corpus=$(FUZZ_CORPUS)/$$(basename $$(dirname $$crate))-$$target; \
	  mkdir -p $$corpus $$crate/corpus/$$target; \
	  (cd $$crate/.. && ASAN_OPTIONS=detect_leaks=0 $(CARGO) +nightly fuzz run --target-dir $(abspath $(TARGET))/fuzz $$target $$corpus fuzz/corpus/$$target -- \
	    -max_total_time=$(FUZZ_TARGET_SECONDS) -detect_leaks=0 -verbosity=1) || failed="$$failed $$crate:$$target"; \
	done; done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

.PHONY: bench
bench: tools-rust ## Put Weir, nginx, HAProxy and the floor through short cases, in 4 minutes; prints the report's path
	$(call need,$(BUILD_TOOLS) $(BENCH_TOOLS))
	$(CARGO) build --release --locked --package weir-gateway --package weirlab
	exec "$(TARGET)/release/weirlab" run --suite bench --weir "$(TARGET)/release/weir" --out output

.PHONY: bench-figures
bench-figures: tools-rust ## Measure every figure that this project states, in 20 minutes
	$(call need,$(BUILD_TOOLS) $(BENCH_TOOLS))
	$(CARGO) build --release --locked --package weir-gateway --package weirlab
	exec "$(TARGET)/release/weirlab" run --suite figures --rounds 16 --weir "$(TARGET)/release/weir" --out output

.PHONY: bench-plugins
bench-plugins: tools-rust ## Measure what routes and plugins add, in a loop without sockets; prints the table's path
	$(call need,$(BUILD_TOOLS))
	bench/plugins.py

.PHONY: instructions
instructions: tools-rust ## Count the instructions of a request in Weir, nginx and HAProxy, in 5 minutes after the build
	$(call need,$(BUILD_TOOLS) $(COUNT_TOOLS))
	$(CARGO) build --release --locked --package weir-gateway
	bench/instructions.py --weir "$${CARGO_TARGET_DIR:-target}/release/weir"

.PHONY: docs
docs: tools-rust ## Write the documents that derive from the code
	$(CARGO) run --quiet --locked --package weir-gateway -- settings > docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md

include packaging/packaging.mk

.PHONY: clean
clean: ## Remove what was built
	$(CARGO) clean

.PHONY: tools-rust
tools-rust:
	@command -v $(CARGO) >/dev/null || { echo "missing: cargo. Install Rust as https://rustup.rs says; rust-toolchain.toml names the version" >&2; exit 1; }
