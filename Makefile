# make help lists the targets. They need Go and, for what they install by themselves as root on Debian, apt-get.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0

# With a go.work, all of its modules: "work" means those to the go command.
PACKAGES := $(if $(wildcard go.work),work,./...)

# In a nested module, against this checkout of the root module. cmd/uid has no replace directive of its own, because
# "go install" refuses one; the version that it requires may not be published yet.
TIDY = (cd "$$dir" && mod=$$(mktemp -d) && trap 'rm -rf "$$mod"' EXIT && cp go.mod go.sum "$$mod" && \
	go mod edit -replace "github.com/uidplugin/uidplugin=$$root" "$$mod/go.mod" && go mod tidy -diff -modfile="$$mod/go.mod")

# The tests that testkit.SkipWithRace skips with the race detector, and the long form of the tests of hostile writers and
# consumers, who are too slow with it and have many processes.
WITHOUT_RACE := Alloc|TestMatrix|TestAnswers|TestRegions_Replicate|TestModel_
HOSTILES := HostileWriters|HostileConsumers

# Packages that are tested without the race detector as a whole. They compile code, start processes, or send one statement
# after another, which takes several times as long with it. What goroutines share, the tests of workernode, generator
# and the root package show.
PLAIN := $(wildcard ./cmd/uid/ ./generator/capacity/ ./generator/foreign/ ./migrations/ ./publicid/ ./uidprom/ ./uidtest/ $(patsubst %,./examples/%/,node outbox quickstart shards) \
	$(patsubst %,./internal/%/,admin adopt catalog config core functions inspect lookup model narrow partition rounded testkit upsert) \
	$(patsubst %,./integration/%/,adopt docs leases metrics partitions paths registry schemas tables upsert))

# Packages that would take most of the time with it. "make test SLOW=./integration/paths/" tests some of them with it,
# before a release.
SLOW := $(wildcard $(patsubst %,./integration/%/,consume follow lifecycle outage regions segment))

# Processes that are killed. This package is tested alone, because it needs both cores.
CHAOS := ./integration/chaos/

# What only "make test-more" tests, to keep "make test" short: clusters, a promoted replica, the previous build,
# the control of TestChaos, settings of servers such as SQL modes, other plugins of GORM, a browser, and the program of the
# comparison.
MORE_CHAOS := Galera|TestGroup|Promoted|Previous|Control
MORE_SERVERS := TestDoctor_FindsEachSettingOfAServer
MORE := $(wildcard ./benchmarks/ $(patsubst %,./integration/%/,page plugins settings))

# The packages that have tests of a pattern; the others would be compiled for nothing.
HAVE = $(sort $(dir $(shell grep -rlE --include='*_test.go' 'func \w*($(1))' .)))

# The race detector, but not in SQLite, which is C translated to Go: what it does to its own memory is nobody's concern
# here, and with the detector it takes most of the time of many tests. The driver around it is watched.
RACE := -race '-gcflags=modernc.org/...=-race=false'

.PHONY: help test tests more test-short test-more test-vitess minimum wings lint cross vuln bench compare rehearse

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

test: ## most tests, against private MariaDB, MySQL and PostgreSQL servers, with the race detector for what goroutines share
	@command -v gcc >/dev/null || integration/servers.sh install gcc libc6-dev # for -race
	@command -v pgbouncer >/dev/null || { [ -d /run/systemd/system ] && [ "$${CI:-}" != true ]; } || \
		integration/servers.sh install pgbouncer || : # not where that starts a service; TestPgBouncer says so
	integration/servers.sh run -- $(MAKE) --no-print-directory tests

# Hostile tests run one package after the other, because each needs both cores. Then comes what the race detector would
# falsify, or only slow down; with it these are skipped. make lint has vetted everything.
tests:
	for package in $(call HAVE,HostileWriters); do UID_TEST_HOSTILE_FOR=20s go test -vet=off -run HostileWriters "$$package"; done
	for package in $(call HAVE,HostileConsumers); do UID_TEST_HOSTILE_FOR=30s go test -vet=off -run HostileConsumers "$$package"; done
	go test -vet=off -parallel 4 -run '$(WITHOUT_RACE)' $(filter-out $(PLAIN) $(SLOW),$(call HAVE,$(WITHOUT_RACE)))
	go test -vet=off -parallel 4 -shuffle=on -skip '$(MORE_SERVERS)' $(PLAIN)
	go test -vet=off -shuffle=on -timeout 40m -skip '$(HOSTILES)' $(SLOW)
	go test -vet=off -shuffle=on -timeout 40m -skip '$(MORE_CHAOS)' $(CHAOS)
	packages=$$(go list $(PACKAGES) | grep -vxFf <(go list $(PLAIN) $(SLOW) $(CHAOS) $(MORE))) && \
	UID_TEST_WITHOUT_RACE='$(WITHOUT_RACE)' go test -vet=off $(RACE) -shuffle=on -timeout 40m $$packages

test-short: ## the tests that need no server
	go test $(PACKAGES)

test-more: ## the other tests: clusters, settings of servers, other plugins, the page in a browser; installs as "make test" does
	@command -v chromium >/dev/null || integration/servers.sh install chromium
	integration/servers.sh run -- $(MAKE) --no-print-directory more

more:
	go test -vet=off -parallel 1 -run '$(MORE_CHAOS)' -timeout 40m $(CHAOS) -group.for 1s -segment.galera
	go test -vet=off -run '$(MORE_SERVERS)' ./cmd/uid/
	go test -vet=off -parallel 4 $(MORE)

# A module of its own, and no part of go.work, because Vitess needs a newer Go than this library and takes minutes to build.
# VITESS_FLAGS='-run Killed -vitess.for 10m' is the long form.
test-vitess: export GOWORK := off
test-vitess: ## build Vitess, and test on a vtgate with two shards and a mysqld
	@bin=$$(mktemp -d); trap 'rm -rf "$$bin"' EXIT; cd integration/vitess; \
	go build -o "$$bin/" tool; \
	export UID_TEST_VITESS=$$bin; ../servers.sh run --engines mysql -- go test -v -count 1 -timeout 0 . $(VITESS_FLAGS)

# go.work takes the highest version that any of its modules requires. An application may have the lowest. The packages
# whose tests meet GORM or a driver most are tested again; the others are compiled.
minimum: export GOWORK := off
minimum: export CI :=
minimum: ## build and test the root module alone, on SQLite, with the versions that its go.mod requires
	go list -export ./... >/dev/null # compiles everything, and links nothing
	go test -vet=off -short . ./follow ./inspector ./segment ./publicid ./integration/{paths,upsert} \
		./internal/{admin,adopt,catalog,fill,lookup,narrow,sqldb,upsert}

wings: ## take each feature that can be left out of a copy, and build and test the rest
	integration/wings.sh follow publicid segment inspector partitions

lint: ## gofmt, go vet, staticcheck, go mod tidy
	@bad=$$(git ls-files -z '*.go' | xargs -0r gofmt -l); [ -z "$$bad" ] || { printf 'not gofmt-ed:\n%s\n' "$$bad" >&2; exit 1; }
	go vet $(PACKAGES)
	go run $(STATICCHECK) $(PACKAGES)
	@root=$$PWD; go list -m -f '{{.Dir}}' | while read -r dir; do echo "go mod tidy -diff # $$dir"; \
		if [ "$$dir" = "$$root" ]; then go mod tidy -diff; else $(TIDY); fi; done

# A 32-bit program runs on a 64-bit kernel, as long as it is without C.
cross: export GOARCH := 386
cross: export CGO_ENABLED := 0
cross: ## build what applications import for 32 bits, and test there what computes with bits
	go build $$(go list ./... | grep -vE '/(examples|integration|internal/(testkit|plugintest))(/|$$)')
	@bin=$$(mktemp -d); trap 'rm -rf "$$bin"' EXIT; go test -c -vet=off -o "$$bin/" ./ringbuffer/; \
	"$$bin/ringbuffer.test" -test.list '^$$' >/dev/null 2>&1 || { echo 'cross: NOT TESTED, this kernel runs no 32-bit programs' >&2; exit 0; }; \
	go test -vet=off -short ./generator/ ./ringbuffer/

# Installed, not "go run", which hides the exit code: 3 is a finding. Its database being out of reach says nothing
# about this code; everything else that goes wrong does.
vuln: ## govulncheck
	@bin=$$(mktemp -d); trap 'rm -rf "$$bin"' EXIT; \
	GOBIN=$$bin go install $(GOVULNCHECK); \
	code=0; "$$bin/govulncheck" $(GOVULNCHECK_FLAGS) $(PACKAGES) >"$$bin/out" 2>&1 || code=$$?; \
	if [ $$code != 0 ] && [ $$code != 3 ] && grep -q 'fetching vulnerabilities' "$$bin/out"; then \
		echo 'vuln: NOT CHECKED, the vulnerability database cannot be reached' >&2; exit 0; \
	fi; \
	cat "$$bin/out"; exit $$code

# COMPARE_FLAGS="-run order" measures one part; go run ./benchmarks -h lists all flags.
compare: ## uidplugin against its peers, into docs, 1 h; with SHORT=1 into benchmarks/short, 10 min
	go run ./benchmarks $(if $(SHORT),-short) $(COMPARE_FLAGS)

bench: ## the benchmarks
	go test -run '^$$' -bench . -benchmem ./generator/ .

# The tags of the release that cmd/uid requires, at HEAD, in a copy of the repository that git takes for the public one.
# Nothing is published. The module cache is a temporary one, because the real one must not have a version of this copy.
rehearse: RELEASE := $(shell sed -n 's|^\tgithub.com/uidplugin/uidplugin ||p' cmd/uid/go.mod)
rehearse: MODULE := github.com/uidplugin/uidplugin
rehearse: export GOWORK := off
rehearse: ## install HEAD as users will install the next release, before its tags are pushed
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	git clone -q --bare . "$$dir/git"; \
	for tag in $(RELEASE) cmd/uid/$(RELEASE) uidprom/$(RELEASE); do git -C "$$dir/git" tag -f "$$tag" HEAD >/dev/null; done; \
	export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.$$dir/git.insteadOf" GIT_CONFIG_VALUE_0=https://$(MODULE); \
	export GOPROXY="file://$$(go env GOMODCACHE)/cache/download,$$(go env GOPROXY)" GONOPROXY=$(MODULE) GONOSUMDB=$(MODULE); \
	export GOMODCACHE="$$dir/mod" GOBIN="$$dir" GOFLAGS=-modcacherw; \
	cd "$$dir"; \
	go install $(MODULE)/cmd/uid@$(RELEASE); \
	./uid version | tee /dev/stderr | grep -q "^uid $(RELEASE), "; \
	go run $(MODULE)/examples/quickstart@$(RELEASE) >quickstart.out; \
	go mod init example.com/app; \
	go get $(MODULE)@$(RELEASE) $(MODULE)/uidprom@$(RELEASE); \
	go build $(MODULE)/uidprom
