#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Mutation testing of the kernel, or of another package: each small change that no
# test fails for is printed, and is an error unless mutate/accepted.txt gives a
# reason. For the kernel it takes about half an hour of a processor that has nothing
# else to do.
#
#   verify/mutate.sh                     everything
#   verify/mutate.sh -file queue.go      one file
#   verify/mutate.sh -dir keep           another package
#   verify/mutate.sh -names FILE         those that a file names
#   verify/mutate.sh -sample 5%          some of them, at random; -seed N draws them again
#   verify/mutate.sh -jobs 2             two mutants at a time

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOWORK=off
exec go run ./mutate "$@"
