# make build         build ./coordd
# make lint          gofmt, vet, staticcheck, our own rules; no function that only tests call, but in internal/resp
# make vulncheck     known vulnerabilities in what the code calls; needs access to vuln.go.dev
# make test          install what the tests need, run them, list what was skipped; minutes
# make check         the tests that need longer, and those of make test where little is installed; CI runs both
# make fmt           gofmt, and break lines of documents and comments that are too wide
# make precommit     what takes seconds; make hooks: git runs it before each commit
# make quick         go test ./..., and what it skipped; installs nothing
# make flakes        RUNS runs of make test's tests, shuffled, beside BUSY busy loops; what failed
# make times         how long each test takes alone; writes the table of docs/testing.md
# make bench         beside redis-server and etcd; BENCH=-full draws curves
# make fairness      latency of a light client beside 20 heavy ones; four minutes
# make clients       run client libraries against a cluster, and write docs/clients.md
# make guide        run the code of docs/guide
# make page          the page in headless Chromium; writes docs/images
# make differential  2,000,000 random calls on coordd and on redis-server, side by side
# make mutations     plant bugs, and check that tests find them
# make chaos         clusters under pairs of faults; as root, ten minutes
# make attack        hostile clients and peers, and fuzzing of what strangers reach
# make rules         check and test the alert rules with promtool
# make monitoring    rules and dashboard in a real Prometheus, through a failover; two minutes
# make crashpoints   crashes and disk errors at each operation of a node's disk; as root, on Linux
# make simulate      SEEDS simulated clusters, two at a time; see docs/adr/0044-simulation.md
# make costs         random scripts and commands, and what a unit of their charge really takes
# make architectures the same bits on arm64, emulated; some minutes
# make proof         simulations, crash points, laboratory, soak, arm64 and planted bugs; a night
# make soak          the slow tests: more failures, longer fuzzing
# make release       dist/: binaries, deb, rpm, bills of materials and checksums of the commit
# make packages      build a release twice, compare, and install the deb; as root, four minutes
# make containers    render the chart, and run its nodes and those of the compose file as processes
# docs/testing.md describes them.
#
# Random tests always have the same seeds, so that make test and make check fail for a change only.
# These look for faults by chance; COORDD_TEST_SEED repeats one.
differential restores costs simulate crashpoints attack soak chaos: export COORDD_TEST_SEED ?= random

GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
VULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0
DEADCODE = golang.org/x/tools/cmd/deadcode@v0.52.0
# lint vets everything. Each wait has a limit of its own: a package that reaches this one hangs.
TESTFLAGS ?= -vet=off -timeout 10m
# The race detector has each process wait for a second when it ends, also those that tests start.
# What it finds in a dependency, and does no harm, is listed in the file.
export GORACE = atexit_sleep_ms=0 suppressions='$(CURDIR)/internal/tests/detector/suppressions'
ALL = $(patsubst $(shell $(GO) list -m)/%,%,$(shell $(GO) list ./...))
# The race detector watches what has goroutines: not tests of coordd in processes of its own or of
# files, nor packages without concurrency, such as the machine of fsm; of its tests, those of what is
# around it. Where tests are many, those with much data skip themselves under it.
PLAIN = $(filter commands commands/% deploy/% fsm fsm/% internal/ascii internal/libm \
	internal/tests/%,$(ALL))
RACE = $(filter-out $(PLAIN),$(ALL))
CONCURRENT = [gG]o[( ]func|dapter
PROCESSES = internal/tests/e2e

.PHONY: build test compile-race compile-plain test-processes test-server test-plain test-race check check-locks check-race check-plain check-bare quick flakes times fmt precommit hooks lint vulncheck deps bench soak fuzz clients suites systems guide differential chaos fairness attack page operations mutations release packages containers rules monitoring crashpoints simulate architectures restores costs proof

build:
	$(GO) build -o coordd ./cmd/coordd

deps:
	sh .ci/deps

# Four parts at a time, since much waits; each prints when it has ended. The longest begin. All is
# compiled before, by what shares the processors: each part would compile the same again.
test: deps
	$(MAKE) -j 2 compile-race compile-plain
	$(MAKE) -j 4 -O test-plain test-race test-processes test-server test-cluster-1 test-cluster-2

# What is not about processes and disks writes to memory, and takes one processor: the others have
# the other parts.
test-plain test-race test-cluster-% check-plain check-race: export GOMAXPROCS = 1
test-plain test-race test-cluster-% test-server check-plain check-race: export COORDD_TMP = memory

compile-race:
	$(GO) list -race -test -export -deps $(addprefix ./,$(RACE) fsm) >/dev/null

compile-plain:
	$(GO) list -test -export -deps $(addprefix ./,$(ALL)) >/dev/null

test-processes:
	sh .ci/test $(GO) test $(TESTFLAGS) ./$(PROCESSES)

# Each of the two has every other test.
test-cluster-%:
	PART=$* sh .ci/only . cluster $(GO) test -race $(TESTFLAGS)

test-server:
	sh .ci/test $(GO) test -race $(TESTFLAGS) ./server

test-race:
	sh .ci/test $(GO) test -p 1 -race $(TESTFLAGS) $(addprefix ./,$(filter-out cluster server,$(RACE)))
	sh .ci/only '$(CONCURRENT)' fsm $(GO) test -race $(TESTFLAGS)

test-plain:
	sh .ci/test $(GO) test -p 1 $(TESTFLAGS) $(addprefix ./,$(filter-out $(PROCESSES),$(PLAIN)))
	sh .ci/only 'detector[.]Skip' '$(RACE)' $(GO) test $(TESTFLAGS)

# The tests that call tier.Check or do more if tier.Checking, and what make test does not have the
# race detector watch.
check: deps
	$(MAKE) -j 4 -O check-processes-1 check-processes-2 check-plain check-race check-bare check-locks

check-race: export COORDD_CHECK = 1
check-race:
	sh .ci/only 'tier[.]Check' '$(RACE)' $(GO) test -race $(TESTFLAGS) -timeout 30m
	COORDD_CHECK= sh .ci/only '[gG]o[( ]func|startNode' 'fsm/script commands/keyspace internal/tests/differential' \
		$(GO) test -race $(TESTFLAGS)

check-plain: export COORDD_CHECK = 1
check-plain:
	sh .ci/only 'tier[.]Check' '$(filter-out $(PROCESSES),$(PLAIN))' $(GO) test $(TESTFLAGS) -timeout 30m
	sh .ci/only 'detector[.]Skip' '$(RACE)' $(GO) test $(TESTFLAGS)
	COORDD_CHECK= $(GO) test -tags coordd_trace $(TESTFLAGS) ./cluster

# Much of what processes do is to wait: each of two runs has every other test.
check-processes-%: export COORDD_CHECK = 1
check-processes-%:
	PART=$* sh .ci/only 'tier[.]Check' $(PROCESSES) $(GO) test $(TESTFLAGS) -timeout 30m

# Tests that need a program skip themselves where it is missing.
check-bare:
	sh .ci/bare sh .ci/test $(GO) test $(TESTFLAGS) ./$(PROCESSES) ./cmd/coordd ./commands/...
	sh .ci/bare sh .ci/only 'Redis[(]t' 'fsm server' $(GO) test $(TESTFLAGS)

check-locks:
	$(GO) test -tags coordd_lockorder $(TESTFLAGS) ./internal/lockorder

fmt:
	gofmt -l -w $$(git ls-files --cached --others --exclude-standard '*.go')
	$(GO) run ./testdata/fmt

# What takes seconds; make hooks has git run it before each commit.
precommit:
	@changes=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$changes" || \
		{ echo "$$changes"; echo 'make fmt would change these files'; exit 1; }
	$(GO) run ./testdata/fmt -l
	$(GO) build ./...
	$(GO) test ./internal/tests/docs ./internal/tests/lint ./internal/tests/mutations

hooks:
	git config core.hooksPath .ci/hooks

quick:
	sh .ci/test $(GO) test $(TESTFLAGS) ./$(PROCESSES) ./...

release:
	GO=$(GO) sh deploy/release

packages:
	sh .ci/deps release
	GO=$(GO) sh deploy/check

containers:
	GO=$(GO) sh deploy/check-containers

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'gofmt would change these files'; exit 1; }
	$(GO) vet ./... ./testdata/clients/go/...
	$(GO) vet -C testdata/clients/libraries/go ./...
	$(GO) vet -C testdata/bench ./...
	$(GO) vet -tags coordd_tests ./cmd/coordd
	$(GO) vet -tags coordd_trace ./cluster
	$(GO) vet -tags coordd_sim,coordd_trace ./internal/tests/sim
	$(GO) vet -tags coordd_lockorder ./internal/lockorder ./server ./cluster/... ./internal/node
	$(GO) test ./internal/tests/lint
	$(GO) run $(STATICCHECK) ./...
	@dead=$$($(GO) run $(DEADCODE) ./cmd/... ./testdata/...) && \
		dead=$$(echo "$$dead" | grep -v '^internal/resp/'); \
		test -z "$$dead" || { echo "$$dead"; exit 1; }

vulncheck:
	$(GO) run $(VULNCHECK) ./...

# See testdata/bench/main.go for the flags.
bench:
	sh .ci/deps bench
	$(GO) run -C testdata/bench . $(BENCH)

fairness: deps
	$(GO) run -C testdata/bench . -heavy
	$(GO) run -C testdata/bench . -careless

clients:
	sh .ci/deps clients
	$(GO) run ./testdata/clients/libraries

systems:
	sh .ci/deps systems
	$(GO) run ./testdata/systems

# MUTATIONS='name …' runs only these.
mutations: deps
	$(GO) run ./testdata/mutations $(MUTATIONS)

RUNS ?= 20
BUSY ?= 6
flakes: deps
	$(GO) run ./testdata/tests flakes -runs $(RUNS) -busy $(BUSY) -race '$(RACE)' -plain '$(PLAIN)'

times: deps
	$(GO) run ./testdata/tests times -race '$(RACE)' -plain '$(PLAIN)'

suites:
	sh .ci/deps suites
	$(GO) run ./testdata/suites

guide:
	sh .ci/deps clients
	COORDD_CHECK=1 COORDD_GUIDE=1 $(GO) test ./internal/tests/e2e -run TestGuide -count 1 -v

operations:
	sh .ci/deps operations
	COORDD_OPERATIONS=1 $(GO) test ./internal/tests/operations -run TestOperations -count 1 -v \
		-timeout 60m

page:
	sh .ci/deps page
	COORDD_PAGE=1 $(GO) test ./internal/tests/e2e -run TestPageInBrowser -count 1 -v

CALLS ?= 2000000
differential: deps
	COORDD_DIFFERENTIAL=$(CALLS) $(GO) test ./internal/tests/differential -count 1 -v -timeout 2h

RESTORES ?= 100000
restores:
	COORDD_RESTORES=$(RESTORES) $(GO) test ./fsm -run TestRestoredMachinesStayEqual -count 1 -v \
		-timeout 24h

COSTS ?= 100
costs:
	COORDD_COSTS=$(COSTS) $(GO) test ./fsm ./fsm/script -run AreChargedForTheirTime -count 1 -v -timeout 24h

SEEDS ?= 10000
simulate:
	COORDD_CHECK=1 COORDD_SIMULATE=$(SEEDS) $(GO) test ./internal/tests/sim -run TestSimulations -count 1 -v -timeout 24h

FUZZTIME ?= 30s
fuzz:
	sh .ci/fuzz $(GO) $(FUZZTIME)

ATTACKS = TestAttacks|TestFleetReconnects|TestHostileInput|TestPathsOfFlags|TestClaimedIDs|TestDialedNodesAreChecked|TestReplay|TestForged|TestRevokedNode|CertificateExpires|CertificatesEnd
ATTACK_FUZZ = ./commands/acl/FuzzRules ./server/FuzzBeforeAuth ./server/FuzzTLSHandshake \
	./server/FuzzStream \
	./cluster/FuzzPeerStranger ./cluster/FuzzPeerMember ./cluster/FuzzPeerTLS \
	./cluster/FuzzRaftMessages ./cluster/FuzzReadFrame ./cluster/FuzzDecodePayloads
attack:
	COORDD_CHECK=1 COORDD_ATTACK=1 $(GO) test -p 1 -count 1 -v -run '$(ATTACKS)' ./internal/tests/e2e ./cluster
	for target in $(ATTACK_FUZZ); do \
		$(GO) test -run '^$$' -fuzz "^$${target##*/}\$$" -fuzztime $(FUZZTIME) $${target%/*} || exit; \
	done

rules:
	sh .ci/deps rules
	$(GO) test ./internal/tests/docs -run TestAlertRules -count 1 -v

monitoring:
	sh .ci/deps rules
	COORDD_MONITORING=1 $(GO) test ./internal/tests/e2e -run TestAlertsInPrometheus -count 1 -v

# CRASHPOINTS: how many operations of each scenario, by chance; or all
CRASHPOINTS ?= all
crashpoints:
	COORDD_CRASHPOINTS=$(CRASHPOINTS) $(GO) test ./internal/tests/crashpoints -count 1 -v -timeout 5h

architectures:
	sh .ci/deps architectures
	sh .ci/architectures $(GO)

proof:
	sh .ci/deps chaos
	$(MAKE) simulate
	$(MAKE) restores
	$(MAKE) costs COSTS=1000
	$(MAKE) crashpoints CRASHPOINTS=all
	COORDD_CHAOS=1 COORDD_LAB_RUNS=300 COORDD_LAB_SECONDS=30 COORDD_LAB_SOAK=60 $(GO) test \
		./internal/tests/lab -run 'TestPairs|TestSoak' -count 1 -v -timeout 10h
	$(GO) test -tags coordd_lockorder ./cluster/... ./server ./internal/node -count 1 -timeout 2h
	$(MAKE) operations
	$(MAKE) architectures
	$(MAKE) mutations

soak: deps
	COORDD_CHECK=1 COORDD_SOAK=1 sh .ci/test $(GO) test -race -timeout 60m ./internal/tests/e2e ./...
	$(MAKE) fuzz FUZZTIME=5m

chaos:
	sh .ci/deps chaos
	COORDD_CHAOS=1 sh .ci/only 'chaos[(]' '$(ALL)' $(GO) test -timeout 60m -count 1
