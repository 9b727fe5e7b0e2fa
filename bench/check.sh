#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Compares with the figures kept in figures.json. It fails if something
# allocates more; a ratio to client-go that got worse by more than 15 % is said.
#
#   bash bench/check.sh            both, within a minute
#   bash bench/check.sh -allocs    the allocations alone, in seconds
#   bash bench/check.sh -update    keep what is measured now
set -euo pipefail
cd "$(dirname "$0")"
go run . check "$@"
