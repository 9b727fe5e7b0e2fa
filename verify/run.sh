#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Everything that docs/verification.md says was checked, once more. It prints
# the figures of that page and fails at the first thing that does not hold.
# It needs Go, gcc (for the race detector) and the Go module proxy.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOWORK=off
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"

module=github.com/reconkernel/reconcile/verify
# These take one step at a time: there is nothing for the race detector to see.
steps="$module/search $module/interleave"
# These run tests in processes of their own, most without the detector.
steps+=" $module/peers $module/promises"
# This would take ten times as long under the detector.
steps+=" $module/badday"
# What is tested in browser and otlp are packages around the kernel.
others=$(go list ./... | grep -v -E "^$module/(search|interleave|browser|otlp|peers|promises|badday)(/|\$)")

# run prints what the tests log, without the lines that only say who runs.
run() {
	printf '$ %s\n' "$*"
	"$@" 2>&1 | { grep -v -E '^ *=== |^ *--- PASS|\[no test files\]' || true; }
}

began=$SECONDS
# shellcheck disable=SC2086
run go test -count=1 -timeout 15m -v $steps
# shellcheck disable=SC2086
run go test -count=1 -timeout 15m -v -race $others
printf 'verified in %d s\n' $((SECONDS - began))
