#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures the kernel beside its peers, and prints the tables from which docs/performance.md
# and the targets of bench/README.md are taken.
#
#   bash bench/run.sh           all of it, about a quarter of an hour
#   bash bench/run.sh -quick    less of it, within a minute
set -euo pipefail
cd "$(dirname "$0")"
bin=$(mktemp)
trap 'rm -f "$bin"' EXIT
go build -o "$bin" .
"$bin" run "$@" | "$bin" report
