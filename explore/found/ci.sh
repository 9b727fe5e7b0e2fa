#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# The tests of this module that run each night. The rest is played when docs/what-it-found.md
# is written: go test ./..., and module.sh.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go vet ./...
go test -short ./certmagic ./litefs ./virtualkubelet ./leaderelection ./routes ./warmpool ./rpc
