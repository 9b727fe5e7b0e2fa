#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of this package. They need Chromium, which Debian has in the package
# chromium; if it is missing, this installs it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../../.ci/need chromium chromium fonts-dejavu-core
go test -tags nightly .
