#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures the kernel beside its peers.
#
#   bash bench/run.sh           all of it, about a quarter of an hour: writes docs/performance.md,
#                               docs/img/perf-*.svg and bench/figures.json
#   bash bench/run.sh -quick    less of it, within a minute: prints the table, writes nothing
#   bash bench/run.sh -page     writes the page and the pictures again, from bench/figures.json
set -euo pipefail
cd "$(dirname "$0")"
bin=$(mktemp)
trap 'rm -f "$bin"' EXIT
go build -o "$bin" .

case "${1-}" in
-quick)
	"$bin" run -quick | "$bin" report
	;;
-page)
	"$bin" page -write ..
	;;
'')
	"$bin" run >raw.jsonl.new
	mv raw.jsonl.new raw.jsonl
	"$bin" report -keep <raw.jsonl
	"$bin" check -update
	"$bin" page -write ..
	;;
*)
	echo "usage: run.sh [-quick | -page]" >&2
	exit 2
	;;
esac
