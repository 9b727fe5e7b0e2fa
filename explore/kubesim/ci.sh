#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# The tests of this module and of manager with the oldest client-go and controller-runtime
# that they allow, and with the newest, which adapters/controllerruntime has.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

go test -tags nightly ./...
cd ../../adapters/controllerruntime
go test -tags nightly github.com/reconkernel/reconcile/explore/kubesim/...
