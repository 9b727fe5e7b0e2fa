#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of this package. They need Chromium and nginx, which Debian has in the
# packages chromium and nginx-light; what is missing, this installs.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../../.ci/need chromium chromium fonts-dejavu-core
bash ../../.ci/need nginx nginx-light
go test -tags nightly .
