# What a release publishes: `make dist` makes all of it for ARCHES, into target/dist.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
DIST := $(abspath $(TARGET))/dist
# `make package PROFILE=demo` is quicker, to try packages out.
PROFILE ?= release
ARCHES ?= x86_64 aarch64
BUILT := $(abspath $(TARGET))/$(PROFILE)
# The time of the commit, so that the same sources give the same bytes.
DATED = SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct)

# Subcommands of cargo, in these versions.
CARGO_TOOLS := $(abspath $(TARGET))/tools/cargo
CARGO_TOOL_VERSIONS := cargo-deb@3.8.0 cargo-generate-rpm@0.21.1 cargo-auditable@0.7.7
$(CARGO_TOOLS)/bin/%:
	$(CARGO) install --quiet --locked --root $(CARGO_TOOLS) $(filter $*@%,$(CARGO_TOOL_VERSIONS))

# How a released program is built. It carries the list of its crates, which scanners find in it wherever it is copied
# (cargo-auditable), and no path of the machine that built it, so that the same sources give the same bytes everywhere.
MACHINE_PATHS := $(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo $(CURDIR)=/weir $(abspath $(TARGET))=/weir/target
RELEASE_ENV = $(DATED) PATH="$(CARGO_TOOLS)/bin:$(ZIG)/bin:$$PATH" \
  RUSTFLAGS="$(addprefix --remap-path-prefix=,$(MACHINE_PATHS))" CFLAGS="$(addprefix -ffile-prefix-map=,$(MACHINE_PATHS))"
AUDITABLE := $(CARGO_TOOLS)/bin/cargo-auditable
# One package a command, because packages that are built together share the features of their dependencies.
release_build = $(heartbeat) $(RELEASE_ENV) $(CARGO) auditable build --profile $(PROFILE) --locked --package $(1)
HOST = $$(rustc -vV | sed -n 's/^host: //p')

# A C compiler and linker for other architectures and for musl, as requirements.txt names it.
ZIG := $(abspath $(TARGET))/tools/zig
$(ZIG)/installed: packaging/requirements.txt
	$(call need,ensurepip)
	/usr/bin/python3 -m venv --clear $(ZIG)
	$(ZIG)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.PHONY: dist
dist: archive package static image chart sbom ## Build all that a release publishes into target/dist: archives, packages, image, chart, SBOMs
	packaging/checksums "$(DIST)"

.PHONY: archive
archive: tools-rust $(AUDITABLE) ## Pack weir and weirlab as they are released into target/dist
	$(call need,$(BUILD_TOOLS))
	@$(call release_build,weir-gateway)
	@$(call release_build,weirlab)
	$(DATED) packaging/archive "$(BUILT)" "$(DIST)/weir-$(VERSION)-$$(uname -m)-linux" $(HOST) weir weirlab

.PHONY: package
package: tools-rust $(AUDITABLE) $(CARGO_TOOLS)/bin/cargo-deb $(CARGO_TOOLS)/bin/cargo-generate-rpm ## Build .deb and .rpm for this machine's architecture into target/dist
	$(call need,$(BUILD_TOOLS) dpkg-shlibdeps)
	@$(call release_build,weir-gateway)
	$(DATED) packaging/stage $(BUILT)/weir $(BUILT)/package $(HOST)
	mkdir -p "$(DIST)"
	$(DATED) "$(CARGO_TOOLS)/bin/cargo-deb" --no-build --no-strip --package weir-gateway --profile $(PROFILE) --output "$(DIST)"
	$(DATED) "$(CARGO_TOOLS)/bin/cargo-generate-rpm" generate-rpm --package crates/gateway --profile $(PROFILE) \
	  --target-dir "$(abspath $(TARGET))" --output "$(DIST)"

.PHONY: static
static: $(addprefix static-,$(ARCHES)) ## Build archives of static binaries into target/dist (ARCHES="x86_64 aarch64")

.PHONY: static-x86_64 static-aarch64
static-x86_64 static-aarch64: static-%: tools-rust $(AUDITABLE) $(ZIG)/installed
	$(call need,$(BUILD_TOOLS))
	rustup target add $*-unknown-linux-musl
	@# LuaJIT links a program of its own, for which zig has to be asked for the unwinder. That is not used, so it need not be
	@# stripped, which the host's strip cannot do for another architecture.
	@$(heartbeat) $(RELEASE_ENV) TARGET_LIBS=-lunwind TARGET_STRIP=true $(CARGO) auditable zigbuild --profile $(PROFILE) --config 'profile.$(PROFILE).strip = true' --locked \
	  --package weir-gateway --target $*-unknown-linux-musl
	$(DATED) packaging/archive "$(abspath $(TARGET))/$*-unknown-linux-musl/$(PROFILE)" "$(DIST)/weir-$(VERSION)-$*-linux-musl" \
	  $*-unknown-linux-musl weir

.PHONY: image
image: ## Build the OCI image of the static archives that are in target/dist
	$(DATED) packaging/image.py --out "$(DIST)" "$(DIST)"/weir-$(VERSION)-*-linux-musl.tar.gz

# Helm, and what checks its output against the API of Kubernetes.
KUBERNETES := $(abspath $(TARGET))/tools/kubernetes
$(KUBERNETES)/installed: deploy/helm/requirements.txt
	$(call need,ensurepip)
	/usr/bin/python3 -m venv --clear $(KUBERNETES)
	$(KUBERNETES)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@
GO_TOOLS := $(abspath $(TARGET))/tools/go
$(GO_TOOLS)/helm:
	$(call need,go)
	GOBIN=$(GO_TOOLS) go install helm.sh/helm/v3/cmd/helm@v3.21.4

.PHONY: chart
chart: $(GO_TOOLS)/helm ## Pack the Helm chart into target/dist
	mkdir -p "$(DIST)"
	$(GO_TOOLS)/helm package deploy/helm/weir --version $(VERSION) --app-version $(VERSION) --destination "$(DIST)"

.PHONY: test-chart
test-chart: $(GO_TOOLS)/helm $(KUBERNETES)/installed ## Check the Helm charts with each of their example values
	HELM=$(GO_TOOLS)/helm VALIDATE=$(KUBERNETES)/bin/kubernetes-validate deploy/helm/test

# OpenTofu is built in its own module, because its go.mod replaces another one.
TOFU_VERSION := v1.10.10
$(GO_TOOLS)/tofu:
	$(call need,go)
	cd "$$(go mod download -json github.com/opentofu/opentofu@$(TOFU_VERSION) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')" && go build -o $@ ./cmd/tofu

.PHONY: test-terraform
test-terraform: tools-rust $(GO_TOOLS)/tofu ## Check the Terraform modules, and measure on hosts of one of them
	$(call need,sshd nginx)
	$(CARGO) build --locked --package weirlab
	TERRAFORM=$(GO_TOOLS)/tofu WEIRLAB="$(TARGET)/debug/weirlab" deploy/terraform/test

# The targets of the programs that are released, for which lists are written.
SBOM_TARGETS ?= $(foreach arch,$(ARCHES),$(arch)-unknown-linux-gnu $(arch)-unknown-linux-musl)
.PHONY: sbom
sbom: tools-rust ## List what weir is made of, as CycloneDX, with the licence texts, into target/dist
	mkdir -p "$(DIST)"
	for target in $(SBOM_TARGETS); do \
	  $(DATED) packaging/sbom.py --target $$target --package weir-gateway --out "$(DIST)/weir-$(VERSION)-$$target.cdx.json" \
	    --licenses "$(DIST)/weir-$(VERSION)-$$target.licenses.txt"; \
	done

# What checks a document against the schemas of CycloneDX.
CYCLONEDX := $(abspath $(TARGET))/tools/cyclonedx
$(CYCLONEDX)/installed: packaging/test/requirements.txt
	$(call need,ensurepip)
	/usr/bin/python3 -m venv --clear $(CYCLONEDX)
	$(CYCLONEDX)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.PHONY: test-sbom
test-sbom: sbom $(CYCLONEDX)/installed ## Check the SBOMs against the schema of CycloneDX, and against Cargo.lock
	$(CYCLONEDX)/bin/python packaging/test/sbom.py "$(DIST)"/weir-$(VERSION)-*.cdx.json

.PHONY: test-reproducible
test-reproducible: tools-rust $(AUDITABLE) $(CARGO_TOOLS)/bin/cargo-deb $(CARGO_TOOLS)/bin/cargo-generate-rpm ## Build the last commit twice, in two folders, and compare what a release publishes; 20 minutes
	$(call need,$(BUILD_TOOLS) git dpkg-shlibdeps)
	packaging/test/reproducible "$(abspath $(TARGET))/reproducible" CARGO_TOOLS="$(CARGO_TOOLS)" PROFILE=$(PROFILE)

# The upgrade starts from packages of the same program under an older version.
OLD := $(abspath $(TARGET))/package-test/old
.PHONY: test-packages
test-packages: package ## Install, start, upgrade and remove the packages, and run image and archives of target/dist; needs root
	$(call need,debootstrap qemu-aarch64-static dockerd)
	rm -rf "$(OLD)" && mkdir -p "$(OLD)"
	"$(CARGO_TOOLS)/bin/cargo-deb" --no-build --no-strip --package weir-gateway --profile $(PROFILE) --output "$(OLD)" --deb-version 0.0.1
	"$(CARGO_TOOLS)/bin/cargo-generate-rpm" generate-rpm --package crates/gateway --profile $(PROFILE) \
	  --target-dir "$(abspath $(TARGET))" --payload-compress none --output "$(OLD)" --set-metadata 'version = "0.0.1"'
	packaging/test/run "$(DIST)" "$(abspath $(TARGET))/package-test"
