#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of this package. They need Chromium, which Debian has in the
# package chromium; if it is missing, this installs it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if ! command -v chromium >/dev/null; then
	sudo=
	[ "$(id -u)" = 0 ] || sudo=sudo
	$sudo apt-get update -q
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core
fi
go test .
