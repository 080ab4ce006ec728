# `make` lists the targets. They need only Go, git and make.

GO ?= go
MODULE := github.com/kms-health/kms-health

# v1.2.3 on a tag, v1.2.3-4-gabc after a tag, v0.0.0-gabc before the first tag; -dirty with local changes.
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || \
	echo "v0.0.0-g$$(git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)")

export CGO_ENABLED = 0
# grpcnotrace omits gRPC's trace pages, and so Go's templates, which saves 3 MB.
# nethttpomithttp2 omits net/http's copy of golang.org/x/net/http2, which saves 0.5 MB:
# gRPC and client-go import that package anyway.
TAGS = grpcnotrace,nethttpomithttp2
# v1.0.0 is the version of Go's cryptographic module that has a FIPS 140-3 certificate.
GOFIPS140 = v1.0.0
GO_BUILD = GOFIPS140=$(GOFIPS140) $(GO) build -trimpath -buildvcs=false -tags $(TAGS) -ldflags '-s -w -X $(MODULE)/pkg/version.Version=$(VERSION)'

# More flags for go test, such as TESTFLAGS='-run Watch -v'.
TESTFLAGS ?=
TEST_TIMEOUT ?= 30m
FUZZTIME ?= 30s
.DEFAULT_GOAL := help
.PHONY: help
help: ## List the targets that are used each day
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: help-all
help-all: ## List all targets
	@awk -F ':.*#[#+] ' '/^[a-z0-9-]+:.*#[#+] / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##@ Programs

.PHONY: build
build: ## Build every program of cmd/ into bin/
	@mkdir -p bin
	$(GO_BUILD) -o bin/ $(addprefix ./,$(wildcard cmd/*))

bin/kms-plugin: FORCE
	$(GO_BUILD) -o $@ ./test/kmsplugin/cmd/kms-plugin

bin/%: FORCE
	$(GO_BUILD) -o $@ ./cmd/$*

# go build knows best what is up to date.
.PHONY: FORCE
FORCE:

.PHONY: demo
demo: ## Show the reporter at work: no cluster, no root
	@mkdir -p bin
	$(GO_BUILD) -o bin/ ./cmd/kms-health-reporter ./test/kmsplugin/cmd/kms-plugin
	@test/demo/demo.sh

.PHONY: demo-cluster
demo-cluster: export KUBEBUILDER_ASSETS = $(CURDIR)/$(CLUSTER)
demo-cluster: bin/kms-health-reporter bin/kms-health-operator bin/kubectl-kms_health cluster ## Show the operator at work: a control plane, three nodes, no root (STAY=1: keep it)
	@$(GO) run ./test/demo/cluster $(if $(STAY),--stay)

# --- A real API server, for the integration tests ---

# The versions in the module from which the programs are built.
cluster_version = $(shell sed -n 's,^[[:blank:]]*$(1) \(v[^ ]*\).*,\1,p' test/tools/cluster/go.mod)
KUBERNETES_VERSION := $(call cluster_version,k8s.io/kubernetes)
ETCD_VERSION := $(call cluster_version,go.etcd.io/etcd/server/v3)
CLUSTER := .tools/cluster-$(KUBERNETES_VERSION)-$(ETCD_VERSION)

# To add a program of Kubernetes, add its name here, and a `tool` line in test/tools/cluster/go.mod.
# The goals need different programs.
CLUSTER_PROGRAMS := kubectl \
	$(if $(filter-out release release-check,$(MAKECMDGOALS)),etcd kube-apiserver kube-controller-manager) \
	$(if $(filter test-e2e test-e2e-clocks test-kubeadm cluster-up soak-cluster,$(MAKECMDGOALS)),kube-proxy kube-scheduler kubelet sample-apiserver) \
	$(if $(filter test-e2e test-kubeadm,$(MAKECMDGOALS)),kubeadm)

package_etcd = go.etcd.io/etcd/server/v3
package_sample-apiserver = k8s.io/sample-apiserver
cluster_package = $(or $(package_$(1)),k8s.io/kubernetes/cmd/$(1))

# Without these flags a server's version is v0.0.0, which clients reject.
kubernetes_ldflags = $(addprefix -X k8s.io/component-base/version., \
	gitVersion=$(1) \
	gitMajor=$(patsubst v%,%,$(word 1,$(subst ., ,$(1)))) \
	gitMinor=$(word 2,$(subst ., ,$(1))))

# All missing programs are built in one build. The folder's name has their versions.
cluster_missing = $(filter-out $(notdir $(wildcard $(CLUSTER)/*)),$(CLUSTER_PROGRAMS))

.PHONY: cluster
cluster: #+ Build etcd and the Kubernetes programs that tests run, once, into .tools/
	@$(if $(cluster_missing),test/tools/build.sh $(CLUSTER) test/tools/cluster '$(call kubernetes_ldflags,$(KUBERNETES_VERSION))' \
		'5 to 10 minutes on 2 cores' $(foreach p,$(cluster_missing),$(p)=$(call cluster_package,$(p))),:)

$(CLUSTER)/crane: test/tools/programs/go.mod
	@test/tools/build.sh $(@D) $(<D) '' 'half a minute' crane=github.com/google/go-containerregistry/cmd/crane

##@ Images

# The part of the images' names before /kms-health-PROGRAM, such as registry.example.com/me.
REGISTRY ?= registry.invalid
ARCHITECTURES ?= amd64,arm64,ppc64le,s390x
IMAGES := bin/images

.PHONY: image image-push
image: ## Build both images into bin/images, without a container engine (ARCHITECTURES=amd64: for one only)
	$(GO) run ./test/tools/images --out $(IMAGES) --registry $(REGISTRY) --version $(VERSION) --architectures $(ARCHITECTURES)

image-push: $(CLUSTER)/crane ## Build both images and push them (REGISTRY=registry.example.com/me; credentials: docker's or podman's configuration)
	@if [ "$(REGISTRY)" = registry.invalid ]; then echo "error: make image-push: set REGISTRY, for example REGISTRY=registry.example.com/me" >&2; exit 2; fi
	@$(MAKE) image
	@for program in operator reporter; do \
		$(CLUSTER)/crane push $(IMAGES)/kms-health-$$program $(REGISTRY)/kms-health-$$program:$(VERSION) || exit 1; \
	done
	@echo "then set the images: see manifests/components/images/kustomization.yaml"

##@ Releases

CYCLONEDX := .tools/release/cyclonedx-gomod
$(CYCLONEDX): test/tools/programs/go.mod
	@test/tools/build.sh $(@D) $(<D) '' 'a minute' $(@F)=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

.PHONY: release release-check
release: export KUBEBUILDER_ASSETS = $(CURDIR)/$(CLUSTER)
release: export RELEASE_BUILD = $(GO_BUILD)
release: export TAGS := $(TAGS)
release: cluster $(CYCLONEDX) #+ Make everything that a release has in bin/release, from a tag (REGISTRY=registry.example.com/me; DIRTY=1: with local changes)
	@test/tools/release.sh $(VERSION) $(REGISTRY) $(ARCHITECTURES) $(if $(DIRTY),dirty)

release-check: cluster $(CYCLONEDX) #+ Make a release in two clones, and compare them (ARCHITECTURES=amd64: for one only)
	@test/tools/release-check.sh $(ARCHITECTURES)

##@ Tests

# gotestsum prints the last line of each package, then all output of failed tests, and the totals.
# Tests use the race detector if there is a C compiler. They are not vetted, since `make verify` does
# that. Without debug information and the symbol table, a test binary links in half the time. With
# -trimpath, clones share the build cache. The tags are the programs' tags: otherwise most packages
# would be compiled twice, for the tests and for the programs that tests start (test/harness/program
# has the same flags).
TEST_BUILD = -trimpath -gcflags=all=-dwarf=false
GO_TEST = $(GOTESTSUM) --format standard-quiet --hide-summary skipped -- -vet=off $(TEST_BUILD) -ldflags=-s
RACE = race=$$(test/tools/race.sh) && if [ -n "$$race" ]; then export CGO_ENABLED=1; fi
UNIT = $$race -tags $(TAGS) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

GOTESTSUM := .tools/test/gotestsum
$(GOTESTSUM): test/tools/programs/go.mod
	@test/tools/build.sh $(@D) $(<D) '' 'some seconds' $(@F)=gotest.tools/gotestsum

# The packages that start an API server, the longest first, since a long one that starts last runs alone in the end. They
# wait half of their time, so four more packages than cores run at the same time. The reporter's unit tests mostly wait,
# and run concurrently.
LONG_PACKAGES = $(addprefix ./test/,operator/commands identity operator/delivery operator/process operator/rollup \
	integration operator/... manifests monitoring)
SHORT_PACKAGES = ./test/storedkeys ./test/harness/...
INTEGRATION = $$race -tags integration,$(TAGS) -count 1 -p $(PARALLEL) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(LONG_PACKAGES)
PARALLEL ?= $(shell echo $$(($$(nproc) + 4)))
test test-integration sequences test-e2e cluster-up parity test-languages soak soak-cluster bench bench-writes: export KUBEBUILDER_ASSETS = $(CURDIR)/$(CLUSTER)

# Less garbage collection: more memory, less time. The default is 100. It also applies to the go
# command, and to the programs that the tests start.
test test-unit test-integration sequences verify: export GOGC ?= 400
# How long a program with the race detector sleeps before it ends. The default is a second.
test test-unit test-integration: export GORACE ?= atexit_sleep_ms=100

.PHONY: test
test: $(GOTESTSUM) cluster promtool ## Run all tests: those with a real API server, and the units' with them
	@$(RACE); $(GO_TEST) $(INTEGRATION) ./pkg/reporter/... $(SHORT_PACKAGES) ./...

.PHONY: test-unit
test-unit: $(GOTESTSUM) ## Run the tests that need nothing but Go
	@$(RACE); $(GO_TEST) $(UNIT)

.PHONY: test-integration
test-integration: $(GOTESTSUM) cluster ## Run the tests with a real kube-apiserver and etcd (SEQUENCES=50 SEED=7: more random sequences)
	@$(RACE); $(GO_TEST) $(INTEGRATION) $(SHORT_PACKAGES)

# Each process plays ten sequences on a separate API server, and waits half of its time. It does not use the race
# detector, which takes 50 % more time; `make test` does.
.PHONY: sequences
sequences: cluster #+ Random sequences of changes around the operator, in five processes at once (SEED=1 LAST=200)
	@mkdir -p bin
	@$(GO) test -tags integration,$(TAGS) $(TEST_BUILD) -ldflags=-s -c -o bin/sequences.test ./test/operator/delivery && \
		cd test/operator/delivery && seq $(or $(SEED),1) 10 $(or $(LAST),200) | xargs -P 5 -I FIRST sh -c 'log=$(CURDIR)/bin/sequences-FIRST.log; \
		SEED=FIRST SEQUENCES=10 $(CURDIR)/bin/sequences.test -test.run Random -test.timeout 0 >$$log 2>&1 && \
		echo "ten from seed FIRST: ok" || { cat $$log; false; }'

# Four control planes run concurrently. A rotation takes 4 minutes.
.PHONY: test-agreement
test-agreement: export KUBEBUILDER_ASSETS = $(CURDIR)/$(CLUSTER)
test-agreement: cluster ## Rotate a key at four intervals at once, and compare KMSWriteKeyAgreed with what etcd has (ROTATIONS=12)
	@mkdir -p bin
	@$(GO) test -tags integration,$(TAGS) $(TEST_BUILD) -ldflags=-s -c -o bin/agreement.test ./test/operator/encrypted && \
		cd test/operator/encrypted && printf '%s\n' 1s 5s 10s 30s | xargs -P 4 -I EVERY $(CURDIR)/bin/agreement.test \
		-test.run UnderTheFormerKey -test.v -test.timeout 0 -rotations $(or $(ROTATIONS),12) -interval EVERY

.PHONY: test-silence
test-silence: export KUBEBUILDER_ASSETS = $(CURDIR)/$(CLUSTER)
test-silence: cluster #+ One silent node and one request in 60 lost: how late verdicts on others are (FOR=1h)
	@$(GO) test -tags integration,$(TAGS) $(TEST_BUILD) -ldflags=-s -count 1 -v -timeout 0 ./test/operator/rollup -run LostRequests -silent-for $(or $(FOR),1h)

E2E = -tags e2e,$(TAGS) -count 1 -timeout 180m $(if $(SHORT),-short) $(TESTFLAGS) ./test/e2e/...

.PHONY: test-e2e
test-e2e: e2e-ready $(GOTESTSUM) cluster ## Run the tests on a real cluster with kubelets, as root (SHORT=1: a quarter of the time)
	@$(RACE); $(GO_TEST) $$race $(E2E)

.PHONY: test-kubeadm
test-kubeadm: TESTFLAGS += -run TestKubeadm
test-kubeadm: test-e2e #+ The part of test-e2e on a cluster of kubeadm, as root: docs/quickstart/kubernetes.md as typed

.PHONY: cluster-up
cluster-up: e2e-ready cluster ## Run a real cluster with kms-health on it, as root, until Ctrl-C (NODES=3, BARE=1: without kms-health)
	@mkdir -p bin && echo "building what runs the cluster"
	@$(GO) build -trimpath -buildvcs=false -o bin/e2e-cluster ./test/e2e/cmd/cluster
	@bin/e2e-cluster --nodes $(or $(NODES),1) $(if $(BARE),--bare)

.PHONY: e2e-ready e2e-packages
e2e-ready:
	@test/tools/e2e-packages.sh --check

e2e-packages: ## Install the Debian packages that a real cluster needs, as root
	@test/tools/e2e-packages.sh

# Each other version of kube-apiserver has a separate module file. The etcd is the same.
.tools/parity-%/kube-apiserver: test/tools/cluster/%.mod | cluster
	@GOFLAGS=-modfile=$(abspath $<) test/tools/build.sh $(@D) $(<D) '$(call kubernetes_ldflags,$*)' \
		'5 to 10 minutes on 2 cores' $(@F)=k8s.io/kubernetes/cmd/$(@F)
	@ln -sf $(abspath $(CLUSTER)/etcd) $(@D)/etcd

.PHONY: parity
parity: cluster $(if $(KUBERNETES),.tools/parity-$(KUBERNETES)/kube-apiserver) #+ Compare our verdicts with kube-apiserver's own (KUBERNETES=v1.34.4, v1.37.2: of another version)
	$(if $(KUBERNETES),KUBEBUILDER_ASSETS=$(CURDIR)/.tools/parity-$(KUBERNETES)) $(GO) test -tags integration,$(TAGS) -count 1 -timeout 40m -v ./test/parity -compare

# Some of the programs kube-apiserver, kubelet, reporter and operator have wrong clocks (test/tools/clocks.sh). There is
# no race detector, since it needs another build of package time.
CLOCKS := .tools/clocks-$(KUBERNETES_VERSION)
CLOCKS_FLAGS = GOFLAGS='-toolexec=$(CURDIR)/test/tools/clocks.sh -gcflags=all=-dwarf=false'
$(CLOCKS)/kube-apiserver $(CLOCKS)/kubelet: test/tools/clocks.sh | cluster
	@$(CLOCKS_FLAGS) test/tools/build.sh $(@D) test/tools/cluster '$(call kubernetes_ldflags,$(KUBERNETES_VERSION))' \
		'half a minute' $(@F)=k8s.io/kubernetes/cmd/$(@F)
	@ln -f $(addprefix $(CLUSTER)/,$(filter-out kube-apiserver kubelet,$(CLUSTER_PROGRAMS))) $(@D)

.PHONY: test-clocks
test-clocks: AHEAD ?= 20m,-20m,6h,-6h
test-clocks: $(CLOCKS)/kube-apiserver #+ Nodes whose clocks are wrong, each with an API server, beside one that is right (AHEAD=20m: one)
	KUBEBUILDER_ASSETS=$(CURDIR)/$(CLOCKS) $(CLOCKS_FLAGS) $(GO) test -tags integration,$(TAGS) $(TEST_BUILD) -ldflags=-s -vet=off \
		-count 1 -timeout 60m -v ./test/clocks -ahead=$(AHEAD) $(TESTFLAGS)

.PHONY: test-e2e-clocks
test-e2e-clocks: AHEAD ?= 0s,20m,-3m
test-e2e-clocks: e2e-ready $(CLOCKS)/kube-apiserver $(CLOCKS)/kubelet #+ Three nodes with kubelets, of which two have wrong clocks, as root: no event is an alarm (AHEAD=0s,20m,-3m)
	KUBEBUILDER_ASSETS=$(CURDIR)/$(CLOCKS) $(CLOCKS_FLAGS) $(GO) test -tags e2e,$(TAGS) $(TEST_BUILD) -ldflags=-s -vet=off \
		-count 1 -timeout 90m -v ./test/e2e -run TestWrongClocksOnThreeNodes -ahead=$(AHEAD) $(TESTFLAGS)

# Without the race detector, since k8s.io/kms/pkg/service has a race. TESTFLAGS=-update writes
# test/languages/testdata/verdicts.txt.
.PHONY: test-languages
test-languages: cluster ## Compare verdicts on plugins in Python, Node and Go (Debian; root, where packages are missing)
	@test/tools/languages.sh .tools/languages
	$(GO) test -tags integration,$(TAGS) $(TEST_BUILD) -count 1 -timeout 10m -v ./test/languages -node-modules $(CURDIR)/.tools/languages/node_modules $(TESTFLAGS)

.PHONY: soak
soak: cluster #+ The reporter under faults, restarts, edits and outages drawn at random, with a real API server (SOAK=60m, SEED=7)
	$(GO) test -tags integration,$(TAGS) -count 1 -v -timeout 0 ./test/integration -run TestSoak -soak $(or $(SOAK),10m) -soak-seed $(or $(SEED),1)

.PHONY: soak-cluster
soak-cluster: e2e-ready cluster #+ Chaos on a real cluster of three nodes, drawn at random, and what each part made of it, as root (FOR=1h SEED=1)
	$(GO) test -tags e2e,$(TAGS) -count 1 -v -timeout 0 ./test/e2e -run '^TestSoak$$' -soak $(or $(FOR),1h) -soak-seed $(or $(SEED),1)

# BASE and OPERATOR_BASE are paths of other builds of the reporter and the operator, in the folder bin of their
# checkouts.
BENCH = $(GO) test -v -count 1 -timeout $(1) ./test/bench -measure $(if $(BASE),-base $(abspath $(BASE))) \
	$(if $(OPERATOR_BASE),-operator-base $(abspath $(OPERATOR_BASE)))

.PHONY: bench
bench: bin/kms-health-reporter bin/kms-health-operator bin/bench-floor bin/kms-plugin cluster #+ Run the benchmarks, and measure both programs as processes (BASE=/old/kms-health-reporter TESTFLAGS='-run TestOperator -short')
	$(GO) test -run '^$$' -bench . -benchmem ./pkg/...
	$(call BENCH,60m) $(TESTFLAGS)

.PHONY: bench-writes
bench-writes: bin/kms-health-reporter cluster #+ Compare when faults are reported, and etcd's disk, with another build (BASE=/old/kms-health-reporter FAULTS=20 HEALTH=5m NODES=4)
	@if [ ! -x "$(BASE)" ]; then echo "error: make bench-writes: set BASE, for example BASE=/old/bin/kms-health-reporter" >&2; exit 2; fi
	$(call BENCH,0) -writes -run '^TestWrites$$' -faults $(or $(FAULTS),60) -health $(or $(HEALTH),15m) -nodes $(or $(NODES),16)

bin/bench-floor: FORCE
	$(GO_BUILD) -o $@ ./test/bench/floor

.PHONY: fuzz
fuzz: #+ Run each fuzz target for FUZZTIME (30s)
	@FUZZTIME=$(FUZZTIME) test/tools/fuzz.sh

##@ Source

.PHONY: generate
generate: ## Write the generated files anew
	$(GO) generate ./...

.PHONY: lint
lint: #+ The part of verify that reads Go
	@$(MAKE) verify ONLY='gofmt vet vet-integration staticcheck golangci-lint'

.PHONY: facts
facts: #+ Change facts of pkg/contract in a clone of HEAD, and check that everything that follows is generated
	@TEST_BUILD='$(TEST_BUILD)' TAGS='$(TAGS)' test/tools/facts.sh

# A mutant may allocate memory without end, so each process is limited to 16 GB of address space.
.PHONY: mutations
mutations: PACKAGES ?= $(addprefix pkg/,contract rollup operator/reportercontroller operator/objects operator/encryptionconfig reporter/probe config/v1alpha1)
mutations: #+ Change the code of pure packages, and count what their tests notice (PACKAGES=pkg/rollup SEED=7 MOST=0: all mutants)
	@ulimit -v 16000000; $(GO) run ./test/tools/mutations -tags $(TAGS) -seed $(or $(SEED),1) -most $(or $(MOST),150) $(PACKAGES)

.PHONY: findings
findings: #+ Run the scripts of findings/, which need the internet: what surprised us about other software
	@status=0; for script in findings/*.sh; do echo "== $$script"; $$script || status=1; done; exit $$status

.PHONY: openshift-api
openshift-api: #+ Compare what we rely on in openshift/api's CRDs with its newest version, from the internet (API=commit)
	@$(GO) run ./test/tools/openshiftapi $(API)

.PHONY: update
update: #+ Update the modules of go.mod to their newest minor or patch versions, from the internet; then make generate verify test
	$(GO) get -u -t ./... && $(GO) mod tidy

.PHONY: lines
lines: #+ Count lines by folder, and words of pages
	@test/tools/lines.sh

.PHONY: fmt
fmt: ## Format the Go files
	@git ls-files -co --exclude-standard -z '*.go' | xargs -0r gofmt -s -l -w

.PHONY: verify
verify: export KUBEBUILDER_ASSETS = $(CURDIR)/$(CLUSTER)
verify: export BUILD = $(GO_BUILD)
verify: $(if $(filter-out gofmt shellcheck traces boundaries methods mod-tidy mod-verify vet vet-integration generated,$(or $(ONLY),all)),lint-tools promtool cluster) ## Run every static check, and the README's commands (ONLY='gofmt vet': these alone)
	@test/tools/verify.sh $(ONLY)

LINTERS := .tools/lint/actionlint .tools/lint/golangci-lint .tools/lint/govulncheck .tools/lint/staticcheck
PROMTOOL := .tools/prometheus/promtool

BUNDLE_CHECK := .tools/bundle/bundle

.PHONY: lint-tools promtool
lint-tools: $(LINTERS) $(BUNDLE_CHECK)
promtool: $(PROMTOOL) #+ Build promtool, once, into .tools/

.tools/lint/actionlint: PACKAGE = github.com/rhysd/actionlint/cmd/actionlint
.tools/lint/golangci-lint: PACKAGE = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
.tools/lint/govulncheck: PACKAGE = golang.org/x/vuln/cmd/govulncheck
.tools/lint/staticcheck: PACKAGE = honnef.co/go/tools/cmd/staticcheck
$(LINTERS): test/tools/programs/go.mod
	@test/tools/build.sh $(@D) $(<D) '' 'a minute' $(@F)=$(PACKAGE)

$(BUNDLE_CHECK): test/tools/monitoring/go.mod test/tools/monitoring/bundle/main.go
	@test/tools/build.sh $(@D) $(<D) '' '2 minutes on 2 cores' $(@F)=$(MODULE)/$(<D)/bundle

# Without service discovery of clouds, since the SDKs would take most of the build's time.
$(PROMTOOL): export GOFLAGS = -tags=remove_all_sd

$(PROMTOOL): test/tools/monitoring/go.mod
	@test/tools/build.sh $(@D) $(<D) '' '1 to 3 minutes on 2 cores' $(@F)=github.com/prometheus/prometheus/cmd/promtool

##@ Housekeeping

.PHONY: clean
clean: ## Remove what was built, but for the tools
	rm -rf bin .logs

.PHONY: clean-tools
clean-tools: #+ Remove the built tools: the next `make test` takes minutes again
	rm -rf .tools
