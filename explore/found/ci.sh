#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Two of the controllers, and what
# docs/what-it-replaces.md says. The rest is played when its page is written:
# go test ./..., and checkout.sh.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go vet ./...
go test -short ./leaderelection ./cloudprovider
# The cache of go test does not see that the page is another.
go test -count=1 ./routes ./warmpool ./messages
