#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# The checks of this module.
#
#   verify/ci.sh       of each change: decided by the commit alone, about a minute
#   verify/ci.sh -l    the packages whose tests these are
#   verify/ci.sh all   of each night: all schedules and all breaks, the real clock, a
#                      Prometheus, a browser

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOWORK=off

# say prints a command before it runs it.
say() {
	printf '$ %s\n' "$*"
	"$@"
}

gate="./plant ./mutate ./guarantees ./interleave ./simulate"

case "${1:-}" in
"")
	# go test keeps results of tests whose files, below the root, have changed. The
	# packages are words.
	# shellcheck disable=SC2086
	say go test -count=1 -short $gate
	;;
-l)
	echo "$gate"
	;;
all)
	# These take one step at a time, run tests in processes of their own, or play a
	# day of a cloud: there is nothing for the race detector, or too much.
	steps='/verify/(mutate|guarantees|interleave|badday)$'
	bash ../.ci/need promtool prometheus
	mapfile -t alone < <(go list ./... | grep -E "$steps")
	say go test -count=1 -timeout 30m "${alone[@]}"
	mapfile -t others < <(go list ./... | grep -v -E "$steps|/verify/browser(/|\$)")
	say env CGO_ENABLED=1 go test -count=1 -timeout 30m -race "${others[@]}"
	say bash browser/ci.sh
	;;
*)
	echo "verify/ci.sh: no such argument: \"$1\"; there are: -l, all" >&2
	exit 2
	;;
esac
