#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0

set -euo pipefail

roots="batch explore gate keep lanes reconciletest refs statuspage supervise tracker"
adapters="adapters/kube adapters/nats adapters/otel adapters/postgres adapters/prometheus"

help() {
	cat <<'END'
Usage: scripts/vendor.sh [--update] [--tests] [--force] DEST [PACKAGE…]

Copies the kernel of reconcile into the folder DEST of your module, with its
licence. PACKAGE is one of batch, explore, gate, keep, lanes, reconciletest, refs,
statuspage, supervise and tracker, or of adapters/kube, adapters/nats, adapters/otel,
adapters/postgres and adapters/prometheus; it becomes a folder in DEST, with what it needs of the others.
What imports what is changed to where it then is: in a module example.org/app, a
DEST of internal/reconcile is imported as example.org/app/internal/reconcile. The
file DEST/VENDORED says what was copied from which commit.

  --update  copies what VENDORED names anew, and PACKAGE besides
  --tests   copies the tests too, except those of adapters, which need the clone;
            they need github.com/google/go-cmp
  --force   loses what was edited in an older copy, and its other packages

An older copy in DEST is replaced as a whole. Nothing is copied if that would lose
something: a file that was edited, a package that is not named again, or any other
file.

Run it in your module, by its path in a clone of reconcile. It needs Go, and git
to know the commit; it needs no network.
END
}

fail() {
	printf 'vendor.sh: %s\n' "$*" >&2
	exit 1
}

update= tests= force= dest= named=
for arg; do
	case $arg in
	-h | --help) help && exit ;;
	--update) update=yes ;;
	--tests) tests=yes ;;
	--force) force=yes ;;
	-*) fail "no flag $arg; there are --update, --tests, --force and -h" ;;
	*) if [ -z "$dest" ]; then dest=$arg; else named+=" ${arg%/}"; fi ;;
	esac
done
[ -n "$dest" ] || { help >&2 && fail "DEST is missing, the folder for the copy"; }

clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
module=github.com/reconkernel/reconcile

hash_of() { sha256sum <"$1" | cut -c 1-64; }

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
go_mod() { awk -v word="$2" '$1 == word { gsub(/["`]/, "", $2); print $2; exit }' "$1/go.mod"; }
theirs=$(go_mod "$home" module)
# It becomes part of a program for sed.
(LC_ALL=C && [[ $theirs =~ ^[A-Za-z0-9._~+/-]+$ ]]) ||
	fail "$home/go.mod says module $theirs, which is no module path: it has ASCII letters, digits, and / - . _ ~ + alone"
[ "$theirs" != $module ] || fail "$dest is in $module itself"
needed=$(go_mod "$clone" go) has=$(go_mod "$home" go)
[ "$(printf '%s\n' "$needed" "${has:=1.16}" | sort -V | head -n 1)" = "$needed" ] ||
	fail "$theirs says go $has, the copy needs $needed or newer: go mod edit -go=$needed"

# Go refuses some import paths, and with one of them a whole module does not build.
path=$theirs${to#"$home"}
while IFS= read -r element; do
	if ! (LC_ALL=C && [[ $element =~ ^[A-Za-z0-9][A-Za-z0-9._~+-]*$ && $element != *. && $element != vendor && $element != testdata ]]); then
		fail "$dest would be imported as $path, and \"$element\" is no name for a folder with a package: it has ASCII letters, digits, and - . _ ~ + after the first, and is not vendor or testdata"
	fi
done <<<"$(tr / '\n' <<<"${to#"$home"/}")"

# What is there already: all of it must be of a copy, as it was copied.
had=
if [ -d "$to" ] && [ -n "$(ls -A "$to")" ]; then
	edited=
	while IFS= read -r f; do
		[ "$f" != VENDORED ] || continue
		copied=$(awk -v f="$f" '$1 == "file" && length($2) == 64 && substr($0, 71) == f { print $2 }' "$to/VENDORED" 2>/dev/null) || true
		[ -n "$copied" ] && [ -f "$to/$f" ] && [ ! -L "$to/$f" ] ||
			fail "$dest has $f, which is not of a copy made by this script: move it, or choose another folder"
		[ "$copied" = "$(hash_of "$to/$f")" ] || edited+=" $f"
	done <<<"$(cd "$to" && find . ! -type d | sed 's|^\./||' | LC_ALL=C sort)"
	[ -z "$edited" ] || [ -n "$force" ] ||
		fail "in $dest these were edited since they were copied:$edited; keep a patch of them, and say --force"
	had=$(sed -n 's/^packages //p' "$to/VENDORED")
elif [ -n "$update" ]; then
	fail "$dest has no copy to update"
fi

if [ -n "$update" ]; then
	named+=" $had"
	if grep -qx 'tests yes' "$to/VENDORED"; then tests=yes; fi
fi
packages=$(printf '%s\n' . $named | LC_ALL=C sort -u)
for p in $packages; do
	[[ " . $roots $adapters " == *" $p "* ]] || fail "no package $p; there are ${roots// /, }, ${adapters// /, }"
done
for p in $had; do
	[ -n "$force" ] || grep -qxF -e "$p" <<<"$packages" ||
		fail "$dest has $p too: name it, say --update to keep what is there, or --force to lose it"
done

# The files of the packages and of what they need of this module, for all systems.
cd "$clone"
export GOWORK=off GOFLAGS= GOPROXY=off
template='{{$dir := .Dir}}'
for field in GoFiles IgnoredGoFiles EmbedFiles ${tests:+TestGoFiles XTestGoFiles TestEmbedFiles XTestEmbedFiles}; do
	template+="{{range .$field}}{{\$dir}}/{{.}}{{\"\\n\"}}{{end}}"
done
list() { # [flag…] package… of the module in this folder; what others it needs may be missing
	go list -e -f "{{if and .Module (ne .Name \"main\")}}{{if .Module.Main}}$template{{end}}{{end}}" "$@"
}
files= wanted=
for p in $packages; do
	case $p in
	adapters/*) # a module of its own, whose needs of this one its imports say
		own=$(cd "$p" && list -find ./... | grep -v -e /internal/natstest/ -e /internal/pgtest/) # which are for tests
		files+=$'\n'$own
		# shellcheck disable=SC2086 # no file of ours has a blank in its name
		wanted+=" $(grep -oh "\"$module[a-z/]*\"" $own | sed "s|\"$module/*\(.*\)\"|./\1|" | grep -v '^\./adapters/' | sort -u | paste -sd ' ' -)"
		;;
	*) wanted+=" ./$p" ;;
	esac
done
# shellcheck disable=SC2086
files+=$'\n'$(list -deps ${tests:+-test} $wanted)
files=$(sed "s|^$clone/||" <<<"$files" | grep -v -e '^/' -e '^$' -e "^${tests:+adapters/}.*_test\.go\$" | LC_ALL=C sort -u)
if [ -n "$tests" ]; then
	# shellcheck disable=SC2086
	for dir in $(dirname $files | grep -v '^adapters/' | sort -u); do
		[ ! -d "$dir/testdata" ] || files+=$'\n'$(find "${dir#./}/testdata" -type f | sed 's|^\./||')
	done
fi
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
for f in $files; do
	mkdir -p "$new/$(dirname "$f")"
	case $f in
	*.go) sed "s|\([\"[]\)$module\([]\"/]\)|\1$path\2|g" "$f" >"$new/$f" ;;
	*) cat "$f" >"$new/$f" ;;
	esac
done
"$(go env GOROOT)/bin/gofmt" -w "$new" # sorts the imports again
{
	printf 'module %s\ncommit %s\npackages %s\n' $module "$commit" "$(paste -sd ' ' - <<<"$packages")"
	[ -z "$tests" ] || echo 'tests yes'
	for f in $files; do
		printf 'file %s %s\n' "$(hash_of "$new/$f")" "$f"
	done
} >"$new/VENDORED"
rm -rf "$to"
mv "$new" "$to"
trap - EXIT
echo "vendored in $dest, to be imported as $path"
for p in $packages; do
	[[ $p != adapters/* ]] ||
		echo "$p needs other modules, which go mod tidy finds; it is tested with$(awk '$2 ~ /^v[0-9]/ && !/\/\/ indirect/ { print " " $1 "@" $2 }' "$clone/$p/go.mod" | grep -v " $module" | tr -d '\n')"
done
