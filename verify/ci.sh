#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# What of this module every change has to pass, within a few minutes. The rest,
# that is most schedules, is for run.sh: make verify.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# say prints a command before it runs it.
say() {
	printf '$ %s\n' "$*"
	"$@"
}

# These take one step at a time: there is nothing for the race detector to see.
say go test -short ./search ./interleave
# The tests of other queues, on ours: what runs them runs without the detector.
say go test ./peers
# The pages of statuspage in a real browser.
say bash browser/ci.sh
# All the rest, with the million of changes in chaos.
mapfile -t others < <(go list ./... | grep -v -E '/verify/(search|interleave|browser|peers)(/|$)')
say env CGO_ENABLED=1 go test -race "${others[@]}"
