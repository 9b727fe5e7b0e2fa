#!/usr/bin/env bash
# Runs the tests of this module, and its referee for half a minute. They need an
# old nats-server, to see that the feeders work with it, and that the queue
# refuses it: the one that Debian has in the package nats-server. If it is
# missing, this installs it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if ! command -v nats-server >/dev/null; then
	sudo=
	[ "$(id -u)" = 0 ] || sudo=sudo
	$sudo apt-get update -q
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends nats-server
fi
CGO_ENABLED=1 go test -race ./...

# The referee kills and cuts off processes and counts what that does to the
# queue. It ends with an error if a promise is broken, or if it does not catch
# its controls.
go run ./referee -short
