#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# What of this module every change has to pass, within a few minutes. The rest,
# that is most schedules, is for run.sh.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# say prints a command before it runs it.
say() {
	printf '$ %s\n' "$*"
	"$@"
}

# These take one step at a time: there is nothing for the race detector to see.
say go test -short ./search ./interleave
# These run tests in processes of their own, without the detector: those of other
# queues on ours, and those that promises name on a kernel that breaks them.
say go test -short ./peers ./promises
# The pages of statuspage in a real browser.
say bash browser/ci.sh
# All the rest, with the million of changes in chaos.
mapfile -t others < <(go list ./... | grep -v -E '/verify/(search|interleave|browser|peers|promises)(/|$)')
say env CGO_ENABLED=1 go test -race "${others[@]}"
