#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Explores a program that needs another Go or another client-go than this module:
#
#   module.sh NAME GO MODULE@VERSION...
#
# The test is NAME_test.go.txt beside this file. It has the files of the first module in
# the folder "module".
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ $# -lt 3 ]; then
	echo "module.sh NAME GO MODULE@VERSION..., got $# arguments" >&2
	exit 1
fi
if [ ! -f "$here/$1_test.go.txt" ]; then
	echo "module.sh: there is no $1_test.go.txt; there are:" "$(cd "$here" && echo *_test.go.txt)" >&2
	exit 1
fi
if ! [[ $2 =~ ^1\.[0-9]+ ]]; then
	echo "module.sh: the second argument is a version of Go, such as 1.26.0, got \"$2\"" >&2
	exit 1
fi
name=$1
export GOWORK=off GOTOOLCHAIN="go$2"
shift 2
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
cd "$to"
cp "$here/${name}_test.go.txt" found_test.go
go mod init found
for module; do
	go mod edit -require="$module"
done
for ours in "" /explore/kubesim /explore/kubesim/manager; do
	go mod edit -replace="github.com/reconkernel/reconcile$ours=$root$ours"
done
go mod tidy
ln -s "$(go list -m -f '{{.Dir}}' "${1%@*}")" module
go test -count=1 -v .
