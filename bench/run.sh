#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures the kernel beside its peers.
#
#   bash bench/run.sh           all of it, about a quarter of an hour: writes docs/performance.md,
#                               docs/img/perf-*.svg and bench/figures.json
#   bash bench/run.sh -quick    less of it, within a minute: prints the table, writes nothing
#   bash bench/run.sh -report   writes the page and the charts again, from the last measurement
set -euo pipefail
cd "$(dirname "$0")"
bin=$(mktemp)
trap 'rm -f "$bin"' EXIT
go build -o "$bin" .

case "${1-}" in
-quick)
	"$bin" run -quick | "$bin" report
	;;
-report)
	"$bin" report -write .. <raw.jsonl
	;;
'')
	"$bin" run >raw.jsonl.new
	mv raw.jsonl.new raw.jsonl
	"$bin" report -write .. <raw.jsonl
	"$bin" report <raw.jsonl
	"$bin" check -update
	;;
*)
	echo "usage: run.sh [-quick | -report]" >&2
	exit 2
	;;
esac
