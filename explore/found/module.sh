#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Explores a program of a module that needs a newer Go than this one:
#
#   module.sh NAME MODULE@VERSION GO
#
# The test is NAME_test.go.txt beside this file.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
name=$1 module=$2
export GOWORK=off GOTOOLCHAIN="go$3"
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
cd "$to"
cp "$here/${name}_test.go.txt" found_test.go
go mod init found
go mod edit -require="$module" -require=github.com/reconkernel/reconcile@v0.0.0 -replace=github.com/reconkernel/reconcile="$root"
go test -mod=mod -count=1 -v .
