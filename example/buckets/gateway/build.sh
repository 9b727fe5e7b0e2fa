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
dir=$cache/reconcile-example-buckets
binary=$dir/versitygw-$version

# progress says after every 50 packages how far the build is, and passes on all else.
progress() {
	local n=0 line
	while IFS= read -r line; do
		case $line in
		*' '*) printf '%s\n' "$line" ;;
		*)
			n=$((n + 1))
			[ $((n % 50)) -ne 0 ] || echo "versitygw: $n of at most $1 packages are built, after $SECONDS s"
			;;
		esac
	done
}

if [ ! -x "$binary" ]; then
	echo "building versitygw $version from its source, once; on two cores that usually takes about two minutes" >&2
	package=github.com/versity/versitygw/cmd/versitygw
	export GOWORK=off GOFLAGS=-mod=readonly
	all=$(go list -modfile=tools.mod -deps $package | wc -l) # fetches the source, and says so
	mkdir -p "$dir"
	temporary=$(mktemp "$dir/build-XXXXXX")
	trap 'rm -f "$temporary"' EXIT
	go build -v -modfile=tools.mod -buildvcs=false -trimpath -ldflags='-s -w' -o "$temporary" $package 2>&1 | progress $((all)) >&2
	chmod 755 "$temporary"
	mv "$temporary" "$binary" # whole or not at all
fi
echo "$binary"
