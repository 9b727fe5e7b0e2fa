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

# Not for the race detector: search and interleave take one step at a time, peers
# and promises run tests in processes of their own, and linearize and badday would
# have it watch how histories are judged, or a cloud, for ten times as long.
# badday has a real Prometheus try the alerts.
bash ../.ci/need promtool prometheus
say go test -short ./search ./interleave ./peers ./promises ./linearize ./badday
# The pages of statuspage in a real browser.
say bash browser/ci.sh
# All the rest, with the million of changes in chaos.
mapfile -t others < <(go list ./... | grep -v -E '/verify/(search|interleave|browser|peers|promises|linearize|badday)(/|$)')
say env CGO_ENABLED=1 go test -race "${others[@]}"
