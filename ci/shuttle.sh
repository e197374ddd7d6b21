#!/usr/bin/env bash
# Samples the interleavings of eight threads with shuttle and fixed seeds. The models are larger forms of the loom models. Their
# names contain `many`.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="${RUSTFLAGS:-} --cfg tollgate_loom --cfg tollgate_shuttle" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/shuttle" \
    cargo test -p tollgate -p tollgate-redis --lib --features tollgate/__models --profile shuttle many:: "$@"
