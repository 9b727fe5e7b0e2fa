# The checks of .ci/run under short names. `make help` lists them.

.DEFAULT_GOAL := help
.PHONY: help test example race lint fuzz api docs modules bench bench-check verify ci picture tools

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## the tests
	.ci/run test

example: ## the main job once, from nothing to in sync
	.ci/run example

race: ## the tests under the race detector, in random order
	.ci/run race

lint: ## format, vet, staticcheck, tidy, imports
	.ci/run format lint tidy deps

fuzz: ## every fuzz target for a while; FUZZTIME=10m for longer
	.ci/run fuzz

api: ## the exported names against api.txt and the last release
	go test -run '^TestAPI$$' ./internal/repocheck
	.ci/run api

docs: ## the claims of README.md and docs: programs, tests, links
	go test -run '^TestDocs' ./internal/repocheck

modules: ## the other modules: bench, verify, adapters
	.ci/run modules

bench: ## measure against the peers: docs/performance.md; a quarter of an hour
	bash bench/run.sh

bench-check: ## allocations and ratios against the figures kept in the repo
	bash bench/check.sh

verify: ## search, schedules, linearizability: what the promises rest on
	bash verify/run.sh

ci: ## everything
	.ci/run

picture: ## draw the README's pictures of the example again
	script -qec 'stty cols 100 rows 24 && go run ./example' /dev/null </dev/null >.picture
	go run ./docs/terminal <.picture >docs/img/example-dark.svg
	go run ./docs/terminal -light <.picture >docs/img/example-light.svg
	rm .picture

tools: ## the pinned tools into bin/
	go build -modfile=.ci/tools.mod -o bin/ tool
