#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0

set -euo pipefail
shopt -s inherit_errexit

help() {
	cat <<'END'
Usage: scripts/release.sh VERSION

Makes the commit of a release, such as v0.1.0, and prints the tags for it. All modules
are released together, with the same version. The script

  1. checks that the tree is clean and that VERSION comes after the last release,
  2. sets the version that the modules of this repository require of each other, also in
     the commands of the documents,
  3. writes the heading of VERSION into CHANGELOG.md, above what was under Unreleased,
  4. commits, and runs the gate on this commit,
  5. prints the commands that make the tags and push them. It pushes nothing.

If the gate fails, the commit stays: git reset --hard HEAD^ takes it back.
END
}

fail() {
	printf 'release.sh: %s\n' "$*" >&2
	exit 1
}

case "${1:-}" in
-h | --help) help && exit ;;
esac
[ $# -eq 1 ] || { help >&2 && fail "want one argument, the VERSION, got $#"; }
version=$1
number='(0|[1-9][0-9]*)'
[[ $version =~ ^v[01]\.$number\.$number$ ]] ||
	fail "VERSION is \"$version\", want v and three numbers, such as v0.1.0; from v2 on, the module needs another path"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
module=github.com/reconkernel/reconcile
[ -z "$(git status --porcelain)" ] || fail "the tree is not clean: commit or remove what git status shows"
last=$(git tag -l 'v[0-9]*' | sort -V | tail -n 1)
[ "$(printf '%s\n' "$last" "$version" | sort -V | tail -n 1)" = "$version" ] && [ "$last" != "$version" ] ||
	fail "$version does not come after the last release, $last"
[ -n "$(awk '/^## / { on = $2 == "Unreleased"; next } on' CHANGELOG.md | tr -d '[:space:]')" ] ||
	fail "CHANGELOG.md has no text under the heading \"## Unreleased\""

files=$(git ls-files '*.mod' '*.md')
# shellcheck disable=SC2086 # no file of ours has a blank in its name
sed -i -E "s#($module(/[a-z/]+|\\\$m)?[ @])v[0-9]+\.[0-9]+\.[0-9]+#\1$version#" $files
sed -i "s/^## Unreleased\$/&\n\n## $version, $(date -u +%F)/" CHANGELOG.md
git commit -q -a -m "all: release $version"
.ci/run

tags=$version
for file in $(git ls-files '*/go.mod'); do
	dir=$(dirname "$file")
	case $dir in
	bench | verify | example/* | explore/found) ;; # nobody requires these
	*) tags+=" $dir/$version" ;;
	esac
done
still=$(git grep -n -e 'no release yet' -e 'no tagged release' -- '*.md') || true
[ -z "$still" ] || printf '\nAfter the release these lines are wrong:\n%s\n' "$still"
printf '\nTo publish it:\n\n'
for tag in $tags; do
	printf 'git tag -a -m "%s" %s\n' "$tag" "$tag"
done
printf 'git push --atomic origin HEAD %s\n' "$tags"
