# crib: `make` alone lists what can be made.

# The kubelet wants a semantic version, so a commit without a tag is metadata.
VERSION ?= $(or $(patsubst v%,%,$(shell git describe --tags --dirty 2>/dev/null)),0.0.0-dev+$(or $(shell git rev-parse --short HEAD 2>/dev/null),unknown))
GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
GOFMT    = $(shell $(GO) env GOROOT)/bin/gofmt
BUILD   := $(CURDIR)/build
BIN     ?= $(BUILD)

# The same source gives the same binaries: static, no paths of the machine. The
# version comes from here, so that go need not ask git who owns the checkout.
GOBUILD := CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags '-s -w -X main.version=$(VERSION)'

CRICTL_VERSION   := v1.37.0
GOLANGCI_VERSION := v2.15.0
NFPM_VERSION     := v2.48.0
RUNC_VERSION     := v1.5.2

# What make test leaves to the second run, without -race: packages in which
# containerd is compiled in, and those that run built binaries.
SLOW := /sandbox/engine|/cmd/|/integration

# A runc for what Debian's cannot do.
NEW_RUNC := $(BUILD)/tools/runc-$(RUNC_VERSION)/runc

# Scripts that build and serve the images of the conformance suite; without them it
# is left out.
TESTIMAGES ?= ../shared/testimages

# Scripts that build virtual machines and run a control plane, for make node.
NODES ?= ../shared/nodes

# Steps are told in the order in which they are to happen.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test minbase critest node long fuzz unit bench microbench verify lint fmt build build-arm64 tools install uninstall deb clean deps-demo deps-test

help: ## This list
	@awk -F ':.*## ' '/^## /{printf "\n%s\n", substr($$0, 4)} /^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## Try it (root; installs Debian packages that are missing)

demo: deps-demo build ## Start crib on sockets of its own, run pods, show their IPs and times, clean up
	$(GOBUILD) -o $(BUILD)/ ./integration/demo
	$(BUILD)/demo --bin $(BUILD)

## Test

test: deps-test verify build build-arm64 tools ## Everything: the house rules, both builds, every test (root)
	@[ "$$(id -u)" = 0 ] || echo "not root: tests that need the kernel are skipped"
	PATH=$(BUILD)/tools:$$PATH $(GO) test $$(command -v gcc >/dev/null && echo -race) -timeout 25m \
		$$($(GO) list ./... | grep -Ev '$(SLOW)')
	PATH=$(BUILD)/tools:$$PATH CRIB_BIN=$(BUILD) CRIB_NEW_RUNC=$(NEW_RUNC) $(GO) test -timeout 25m \
		$$($(GO) list ./... | grep -E '$(SLOW)')
	$(MAKE) --no-print-directory fuzz
	@[ ! -e $(TESTIMAGES)/build.sh ] || $(MAKE) --no-print-directory critest

minbase: ## demo and test on a fresh Debian in namespaces of its own, and what they left (root, debootstrap)
	integration/minbase.sh

critest: build $(BUILD)/tools/critest $(BUILD)/tools/crane $(NEW_RUNC) ## The CRI conformance suite (root, gcc, and TESTIMAGES)
	PATH=$(dir $(NEW_RUNC)):$$PATH $(GO) run ./integration/critest --bin $(BUILD) --tools $(BUILD)/tools --images $(TESTIMAGES)

long: build ## What the tests do a few times, a thousand times (root): restarts of a container, a minute of logs
	CRIB_LONG=1 CRIB_BIN=$(BUILD) $(GO) test -timeout 60m -v -run 'TestOnePodHasOneShim|TestALogIsWhole' ./integration

node: ## Real kubelets in virtual machines, 40 minutes (root, qemu, NODES); CHECKS="standalone restarts", RUNTIME=containerd
	NODES=$(abspath $(NODES)) integration/node/run.sh $(CHECKS)

FUZZTIME ?= 15s
fuzz: ## Requests of every kind and content: refused with the field's name or passed on, FUZZTIME for each target
	for f in FuzzSpecFrom FuzzContainerSpec; do $(GO) test -short -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) ./cri || exit; done

unit: ## Hermetic and fast: no root, no kernel features, no network
	$(GO) test -short ./...

bench: build ## Calls of pods and containers, memory, CPU (root); containerd beside it if it is there; BENCH_JSON=FILE
	$(GOBUILD) -o $(BUILD)/ ./integration/bench
	$(BUILD)/bench --bin $(BUILD)

microbench: build ## Benchmarks of the packages (root): time and allocations of pod networks, addresses
	CRIB_BIN=$(BUILD) $(GO) test -run '^$$' -bench . -benchmem -timeout 25m ./...

## Keep it in order

verify: ## What CI runs besides tests: format, vet, modules, import laws, budgets
	@test -z "$$($(GOFMT) -l .)" || { echo "not formatted (make fmt does it):"; $(GOFMT) -l .; exit 1; }
	$(GO) vet ./...
	$(GO) mod verify
	$(GO) mod tidy -diff
	$(GO) test -short -run 'Layers|Imports|Door|Budget|Habit|Install' ./integration

lint: $(BUILD)/tools/golangci-lint-$(GOLANGCI_VERSION) ## golangci-lint: what needs types to be found
	$< run ./...

fmt: ## Format the Go files
	$(GOFMT) -w .

## Build

build: ## Static binaries into build/
	@mkdir -p $(BIN)
	$(GOBUILD) -o $(BIN)/ ./cmd/...

build-arm64: ## The same for arm64, into build/arm64/
	@mkdir -p $(BUILD)/arm64
	GOARCH=arm64 $(GOBUILD) -o $(BUILD)/arm64/ ./cmd/...

tools: $(BUILD)/tools/crictl $(NEW_RUNC) ## Programs that the tests use, into build/tools/

$(BUILD)/tools/crictl: integration/tools/go.mod integration/tools/go.sum
	CGO_ENABLED=0 $(GO) build -C integration/tools -buildvcs=false -trimpath \
		-ldflags '-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=$(CRICTL_VERSION)' \
		-o $@ sigs.k8s.io/cri-tools/cmd/crictl

$(BUILD)/tools/crane: integration/tools/go.mod integration/tools/go.sum
	CGO_ENABLED=0 $(GO) build -C integration/tools -buildvcs=false -trimpath -ldflags '-s -w' \
		-o $@ github.com/google/go-containerregistry/cmd/crane

$(BUILD)/tools/critest: integration/tools/go.mod integration/tools/go.sum
	CGO_ENABLED=0 $(GO) test -C integration/tools -c -buildvcs=false -trimpath -ldflags '-s -w' \
		-o $@ sigs.k8s.io/cri-tools/cmd/critest

# Debian's runc cannot map the ids of mounts; what needs it takes this one.
$(NEW_RUNC):
	@mkdir -p $(@D)
	CGO_ENABLED=1 GOBIN=$(@D) $(GO) install -tags seccomp -ldflags '-s -w' github.com/opencontainers/runc@$(RUNC_VERSION)

# Not in integration/tools: its 200 modules would choose versions for crictl.
$(BUILD)/tools/golangci-lint-$(GOLANGCI_VERSION):
	CGO_ENABLED=0 GOBIN=$(BUILD)/tools $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(BUILD)/tools/golangci-lint $@

# Not in integration/tools for the same reason. GOARCH is the package's, not the tool's.
$(BUILD)/tools/nfpm-$(NFPM_VERSION):
	GOARCH= CGO_ENABLED=0 GOBIN=$(BUILD)/tools $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	mv $(BUILD)/tools/nfpm $@

## Install it (PREFIX is /usr/local or /usr: systemd, udev and sysctl look there)

# NetworkManager does not look into /usr/local/lib.
NM_CONF := $(if $(filter /usr,$(PREFIX)),/usr/lib,/etc)/NetworkManager/conf.d

# Files of cmd/crib/systemd, and as what they are installed.
DROPINS := \
	00-crib.link:$(PREFIX)/lib/systemd/network/00-crib.link \
	00-crib.network:$(PREFIX)/lib/systemd/network/00-crib.network \
	00-crib.nm.conf:$(NM_CONF)/00-crib.conf \
	90-crib.sysctl.conf:$(PREFIX)/lib/sysctl.d/90-crib.conf \
	crib.modules.conf:$(PREFIX)/lib/modules-load.d/crib.conf
UNIT    := $(PREFIX)/lib/systemd/system/crib.service
LIBEXEC := $(PREFIX)/libexec/crib

install: build ## Binaries, unit, and files that keep udev, networkd and others off our links; DESTDIR
	install -D -m 0755 $(BIN)/crib $(DESTDIR)$(PREFIX)/bin/crib
	install -D -m 0755 -t $(DESTDIR)$(LIBEXEC) $(BIN)/crib-shim $(BIN)/crib-init
	@for f in $(DROPINS); do set -x; install -D -m 0644 cmd/crib/systemd/$${f%%:*} $(DESTDIR)$${f#*:}; { set +x; } 2>/dev/null; done
	install -D -m 0644 cmd/crib/systemd/crib.service $(DESTDIR)$(UNIT)
	sed -i 's,/usr/local/bin,$(PREFIX)/bin,' $(DESTDIR)$(UNIT)

uninstall: ## Remove what install made; systemctl disable --now crib and crib reset come before it
	rm -f $(foreach f,$(DROPINS),$(DESTDIR)$(lastword $(subst :, ,$f))) $(DESTDIR)$(UNIT) $(DESTDIR)$(PREFIX)/bin/crib
	rm -rf $(DESTDIR)$(LIBEXEC)

# dpkg takes what follows "-" as a revision, and "~" before the end: 1.2-rc1 is
# before 1.2, which is before 1.2-3-gabc, three commits later.
DEB_VERSION = $(shell echo '$(VERSION)' | sed -E 's/-([0-9]+)-g([0-9a-f]+)/+\1.g\2/; s/-dirty$$/+dirty/; s/-/~/; s/-/./g')
DEB_ARCH    = $(or $(GOARCH),$(shell $(GO) env GOARCH))
DEB_STAGE   = $(BUILD)/deb/$(DEB_ARCH)
DEB_EPOCH   = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),0)
DEB_ROOT    = $(DEB_STAGE)/root

deb: $(BUILD)/tools/nfpm-$(NFPM_VERSION) ## A Debian package into build/, for this machine or GOARCH=arm64
	rm -rf $(DEB_STAGE)
	$(MAKE) --no-print-directory install BIN=$(DEB_STAGE)/bin DESTDIR=$(DEB_ROOT) PREFIX=/usr
	install -D -m 0644 cmd/crib/deb/copyright $(DEB_ROOT)/usr/share/doc/crib/copyright
	install -D -m 0644 cmd/crib/deb/lintian-overrides $(DEB_ROOT)/usr/share/lintian/overrides/crib
	install -d $(DEB_ROOT)/usr/share/man/man8 $(DEB_ROOT)/usr/share/bash-completion/completions
	gzip -9nc cmd/crib/deb/crib.8 >$(DEB_ROOT)/usr/share/man/man8/crib.8.gz
	GOARCH= $(GO) run ./cmd/crib completion bash >$(DEB_ROOT)/usr/share/bash-completion/completions/crib
	printf 'crib (%s) unstable; urgency=medium\n\n  * CHANGELOG.md of the source says what changed.\n\n -- %s  %s\n' '$(DEB_VERSION)' \
		"$$(sed -n 's/^maintainer: //p' cmd/crib/deb/nfpm.yaml)" "$$(date -uRd @$(DEB_EPOCH))" | gzip -9nc >$(DEB_ROOT)/usr/share/doc/crib/changelog.gz
	find $(DEB_ROOT) -exec touch -hd @$(DEB_EPOCH) {} +
	SOURCE_DATE_EPOCH=$(DEB_EPOCH) DEB_VERSION='$(DEB_VERSION)' DEB_ARCH=$(DEB_ARCH) DEB_STAGE=$(DEB_STAGE) \
		$< package --config cmd/crib/deb/nfpm.yaml --packager deb --target $(BUILD)/crib_$(DEB_VERSION)_$(DEB_ARCH).deb

clean: ## Remove build/
	rm -rf $(BUILD)

deps-demo:
	@integration/deps.sh demo

deps-test:
	@integration/deps.sh test
