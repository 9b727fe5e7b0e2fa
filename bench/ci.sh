#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# The tests of this module, without the race detector: thousands of files of our
# peers would be built a second time for it. Those in kube need the servers of
# adapters/kube, which are built if they are not in the cache.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../adapters/kube/testserver/build.sh
# Some of them build programs with a good part of Kubernetes in them.
go test -tags nightly -timeout 30m ./...
