#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds versitygw, a real S3 gateway over a folder, and prints where it is.
#
# The version is that of tools.mod; tools.sum says what its source has to be. It
# comes from the Go module proxy. The program is kept in the cache folder of the user,
# under its version, so that this takes a moment from the second time on.

set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")"

version=$(sed -n 's/^.*github\.com\/versity\/versitygw \(v[^ ]*\).*$/\1/p' tools.mod)
[ -n "$version" ] || { echo "gateway/tools.mod does not name a version of versitygw" >&2; exit 1; }

case "$(uname -s)" in
Darwin) cache=$HOME/Library/Caches ;;
*) cache=${XDG_CACHE_HOME:-$HOME/.cache} ;;
esac
dir=$cache/reconcile-example-s3
binary=$dir/versitygw-$version

if [ ! -x "$binary" ]; then
	echo "building versitygw $version, once; this takes a few minutes" >&2
	mkdir -p "$dir"
	temporary=$(mktemp "$dir/build-XXXXXX")
	trap 'rm -f "$temporary"' EXIT
	GOWORK=off GOFLAGS=-mod=readonly go build -modfile=tools.mod -buildvcs=false -trimpath -ldflags='-s -w' -o "$temporary" github.com/versity/versitygw/cmd/versitygw
	chmod 755 "$temporary"
	mv "$temporary" "$binary" # whole or not at all
fi
echo "$binary"
