#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Explores a controller that is not to be had as a module:
#
#   checkout.sh PROGRAM FOLDER [PACKAGE]
#
# PROGRAM is one of checkouts/, such as cronjob; FOLDER has the go.mod of a checkout
# of the controller, and PACKAGE is the folder below it that the program belongs to.
# The checkout is copied, and stays as it is.
#
# Or explores a module that needs a newer Go than this one:
#
#   checkout.sh PROGRAM MODULE@VERSION GO
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
program=$1 from=$2 package=${3:-internal/controller}
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
if [[ $from == *@* ]]; then
	cd "$to"
	export GOWORK=off GOTOOLCHAIN="go$package"
	cp "$here/checkouts/${program}_test.go.txt" found_test.go
	go mod init found
	go mod edit -require="$from" -require=github.com/reconkernel/reconcile@v0.0.0 -replace=github.com/reconkernel/reconcile="$root"
	go test -mod=mod -count=1 -v .
	exit
fi
cp -r "$from/." "$to"
cp "$here/checkouts/${program}_test.go.txt" "$to/$package/explore_${program}_test.go"
# Their own tests need a server, and are not what is explored.
rm -f "$to/$package/suite_test.go" "$to/$package"/*_controller_test.go "$to/$package/controller_test.go"
cd "$to"
export GOWORK=off
for module in "" /adapters/kube /explore/kubesim /explore/kubesim/manager; do
	go mod edit -require=github.com/reconkernel/reconcile$module@v0.0.0 -replace=github.com/reconkernel/reconcile$module="$root$module"
done
# A commit of Kubernetes between releases may be nowhere to be had.
sed -i -E 's#^(\tk8s\.io/(api|apimachinery|client-go|code-generator)) v0\.0\.0-.*#\1 v0.37.2#' go.mod
go mod tidy || exit
go test -count=1 -v -run Explore "./$package"
