#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs all tests of this module; go test ./... runs those in memory. They need versitygw, which takes some minutes to
# build for the first time, and a moment after that; those in kube need the
# servers of adapters/kube as well.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash gateway/build.sh
bash ../../adapters/kube/testserver/build.sh
list=$(go list ./... | grep -v '/s3/kube$')
mapfile -t others <<<"$list"
CGO_ENABLED=1 go test -race -tags nightly "${others[@]}"
# Without the race detector: all of client-go would be built a second time for it,
# for one file of ours.
go test -tags nightly ./kube
