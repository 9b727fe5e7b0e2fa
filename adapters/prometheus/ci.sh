#!/usr/bin/env bash
# Runs the tests of this module. They need prometheus and promtool, which Debian
# has in the package prometheus; if they are missing, this installs it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then
	sudo=
	[ "$(id -u)" = 0 ] || sudo=sudo
	$sudo apt-get update -q
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends prometheus
fi
CGO_ENABLED=1 go test -race ./...
