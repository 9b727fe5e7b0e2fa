#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# What of this module every change must pass: three services, four of the controllers, and the connection of gRPC.
# The rest is played when docs/what-it-found.md is written: go test ./..., and checkout.sh.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go vet ./...
go test -short ./certmagic ./litefs ./virtualkubelet ./leaderelection ./cloudprovider ./routes ./warmpool ./rpc
