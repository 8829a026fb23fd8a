# crib: `make` alone lists what can be made.

# The kubelet wants a semantic version, so a commit without a tag is metadata.
VERSION ?= $(or $(patsubst v%,%,$(shell git describe --tags --dirty 2>/dev/null)),0.0.0-dev+$(or $(shell git rev-parse --short HEAD 2>/dev/null),unknown))
GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
GOFMT    = $(shell $(GO) env GOROOT)/bin/gofmt
BUILD   := $(CURDIR)/build

# The same source gives the same binaries: static, no paths of the machine. The
# version comes from here, so that go need not ask git who owns the checkout.
GOBUILD := CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags '-s -w -X main.version=$(VERSION)'

CRICTL_VERSION   := v1.37.0
GOLANGCI_VERSION := v2.15.0

# What make test leaves to the second run, without -race: packages in which
# containerd is compiled in, and those that run built binaries.
SLOW := /sandbox/engine|/cmd/|/integration

# Scripts that build and serve the images of the conformance suite; without them it
# is left out.
TESTIMAGES ?= ../shared/testimages

# Steps are told in the order in which they are to happen.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test minbase critest unit bench microbench verify lint fmt build build-arm64 tools install clean deps-demo deps-test

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
	PATH=$(BUILD)/tools:$$PATH CRIB_BIN=$(BUILD) $(GO) test -timeout 25m \
		$$($(GO) list ./... | grep -E '$(SLOW)')
	@[ ! -e $(TESTIMAGES)/build.sh ] || $(MAKE) --no-print-directory critest

minbase: ## demo and test on a fresh Debian in namespaces of its own, and what they left (root, debootstrap)
	integration/minbase.sh

critest: build $(BUILD)/tools/critest $(BUILD)/tools/crane ## The CRI conformance suite (root, gcc, and TESTIMAGES)
	$(GO) run ./integration/critest --bin $(BUILD) --tools $(BUILD)/tools --images $(TESTIMAGES)

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
	$(GO) test -short -run 'Layers|Imports|Door|Budget|Habit' ./integration

lint: $(BUILD)/tools/golangci-lint-$(GOLANGCI_VERSION) ## golangci-lint: what needs types to be found
	$< run ./...

fmt: ## Format the Go files
	$(GOFMT) -w .

## Build

build: ## Static binaries into build/
	@mkdir -p $(BUILD)
	$(GOBUILD) -o $(BUILD)/ ./cmd/...

build-arm64: ## The same for arm64, into build/arm64/
	@mkdir -p $(BUILD)/arm64
	GOARCH=arm64 $(GOBUILD) -o $(BUILD)/arm64/ ./cmd/...

tools: $(BUILD)/tools/crictl ## Programs that the tests use, into build/tools/

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

# Not in integration/tools: its 200 modules would choose versions for crictl.
$(BUILD)/tools/golangci-lint-$(GOLANGCI_VERSION):
	CGO_ENABLED=0 GOBIN=$(BUILD)/tools $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(BUILD)/tools/golangci-lint $@

install: build ## Binaries and unit file below DESTDIR and PREFIX (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 0755 $(BUILD)/crib $(BUILD)/crib-shim $(BUILD)/crib-init $(DESTDIR)$(PREFIX)/bin/
	sed 's,/usr/local/bin,$(PREFIX)/bin,' cmd/crib/systemd/crib.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/crib.service

clean: ## Remove build/
	rm -rf $(BUILD)

deps-demo:
	@integration/deps.sh demo

deps-test:
	@integration/deps.sh test
