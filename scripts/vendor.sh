#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0

set -euo pipefail

help() {
	cat <<'END'
Usage: scripts/vendor.sh DEST [PACKAGE…]

Copies the kernel of reconcile, without its tests, into the folder DEST of your
module, with its licence. PACKAGE is one of tracker, remember, statuspage and
reconciletest, and becomes a folder in DEST. What imports what is changed to where
it then is: in a module example.org/app, a DEST of internal/reconcile is imported
as example.org/app/internal/reconcile. The file DEST/VENDORED says what was copied
from which commit.

An older copy in DEST is replaced as a whole, with what you changed in it. Any
other file there is left alone: then nothing is copied.

Run it in your module, by its path in a clone of reconcile. It needs Go, and git
to know the commit; it needs no network.
END
}

fail() {
	printf 'vendor.sh: %s\n' "$*" >&2
	exit 1
}

case ${1-} in
-h | --help) help && exit ;;
-*) fail "no flag $1; there is -h" ;;
'') help >&2 && fail "DEST is missing, the folder for the copy" ;;
esac

clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
module=github.com/reconkernel/reconcile
dest=$1
shift
packages=$(printf '%s\n' . "$@" | LC_ALL=C sort -u)
for p in $packages; do
	case $p in
	. | tracker | remember | statuspage | reconciletest) ;;
	*) fail "no package $p; there are remember, reconciletest, statuspage, tracker" ;;
	esac
done

# The module that DEST is in, though it may not be there yet.
[ -d "$dest" ] || [ ! -e "$dest" ] || fail "$dest is a file; DEST is a folder"
to=$dest rest=
while [ ! -d "$to" ]; do
	rest=/$(basename "$to")$rest
	to=$(dirname "$to")
done
to=$(cd "$to" && pwd -P)$rest
home=$to
while [ ! -f "$home/go.mod" ]; do
	[ "$home" != / ] || fail "$dest is in no Go module: no go.mod in it or above"
	home=$(dirname "$home")
done
[ "$home" != "$to" ] || fail "$dest is the root of a module; the copy needs a folder of its own, such as internal/reconcile"
# go_mod prints what a go.mod says for a word.
go_mod() { awk -v word="$2" '$1 == word { gsub(/"/, "", $2); print $2; exit }' "$1/go.mod"; }
theirs=$(go_mod "$home" module)
[ "$theirs" != $module ] || fail "$dest is in $module itself"
needed=$(go_mod "$clone" go) has=$(go_mod "$home" go)
[ "$(printf '%s\n' "$needed" "${has:=1.16}" | sort -V | head -n 1)" = "$needed" ] ||
	fail "$theirs says go $has, the copy needs $needed or newer: go mod edit -go=$needed"

# What is in DEST and not listed by the VENDORED of an older copy.
if [ -d "$to" ]; then
	other=$(cd "$to" && find . ! -type d | sed 's|^\./||' | while IFS= read -r f; do
		grep -qxF -e "file $f" VENDORED 2>/dev/null || [ "$f" = VENDORED ] || printf '%s\n' "$f"
	done | head -n 1)
	[ -z "$other" ] || fail "$dest has $other, which is not of a copy made by this script: move it, or choose another folder"
fi

# The files of the packages and of what they need of this module, for all systems.
cd "$clone"
# shellcheck disable=SC2086 # the packages are words
files=$(GOWORK=off GOFLAGS= go list -deps -f '
	{{- if .Module}}{{$dir := .Dir}}
	{{- range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}
	{{- range .IgnoredGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}
	{{- range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}
	{{- end}}' $(printf './%s\n' $packages) | sed "s|^$clone/||" | grep -v -e '_test\.go$' -e '^$' | sort)
files=LICENSE$'\n'$files
commit=unknown
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$clone" ]; then
	commit=$(git rev-parse HEAD)
	# shellcheck disable=SC2086
	[ -z "$(git status --porcelain -- $files)" ] || commit=$commit-dirty
fi

# It appears at once, with all that is in it.
mkdir -p "$(dirname "$to")"
new=$(mktemp -d "$(dirname "$to")/.vendor.XXXXXX")
trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
path=$theirs${to#"$home"}
for f in $files; do
	mkdir -p "$new/$(dirname "$f")"
	case $f in
	*.go) sed "s|\([\"[]\)$module\([]\"/]\)|\1$path\2|g" "$f" >"$new/$f" ;;
	*) cat "$f" >"$new/$f" ;;
	esac
done
"$(go env GOROOT)/bin/gofmt" -w "$new" # sorts the imports again
{
	printf 'module %s\ncommit %s\npackages %s\n' $module "$commit" "$(printf '%s\n' $packages | paste -sd ' ' -)"
	printf 'file %s\n' $files
} >"$new/VENDORED"
rm -rf "$to"
mv "$new" "$to"
trap - EXIT
echo "vendored in $dest, to be imported as $path"
