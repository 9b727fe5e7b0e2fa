#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds etcd, kube-apiserver and kubectl of the versions in tools.mod, once, into
# the user's cache folder, where the tests look for them. The first time takes
# some 400 seconds of processor time and 2 GB of Go's build cache; after that,
# nothing.
#
#   build.sh          builds what is missing and prints the folder
#   build.sh -f       builds all of it again
#
# Settings: KUBETEST_BIN (another folder), BUILD_P (packages built at once,
# default 2).

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOWORK=off

version() { # module
	sed -n "s|^\(require\)\{0,1\}[[:space:]]*$1 \(v[^ ]*\).*|\2|p" tools.mod
}
kube=$(version k8s.io/kubernetes)
etcd=$(version go.etcd.io/etcd/server/v3)
[ "$kube" ] && [ "$etcd" ] # or tools.mod no longer names them

# os.UserCacheDir of Go.
case $(uname -s) in
Darwin) cache=$HOME/Library/Caches ;;
*) cache=${XDG_CACHE_HOME:-$HOME/.cache} ;;
esac
dir=${KUBETEST_BIN:-$cache/reconcile-kubetest/kubernetes-$kube-etcd-$etcd}
mkdir -p "$dir"

tmp=
trap '[ -z "$tmp" ] || rm -rf "$tmp"' EXIT
build() { # name, package, linker flags
	[ "${force:-}" ] || ! [ -x "$dir/$1" ] || return 0
	echo "building $1" >&2
	# Into its place only when whole: another run may be looking.
	tmp=$(mktemp -d "$dir/.build.XXXXXX")
	nice -n 10 go build -modfile=tools.mod -p "${BUILD_P:-2}" -buildvcs=false -ldflags "-s -w ${3:-}" -o "$tmp/$1" "$2"
	mv -f "$tmp/$1" "$dir/$1"
	rmdir "$tmp"
	tmp=
}

force=
[ "${1:-}" != -f ] || force=1
stamp="-X k8s.io/component-base/version.gitVersion=$kube"
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "$stamp"
build kubectl k8s.io/kubernetes/cmd/kubectl "$stamp"
echo "$dir"
