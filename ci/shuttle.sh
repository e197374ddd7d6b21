#!/usr/bin/env bash
# Samples the interleavings of eight threads: by shuttle, with fixed seeds. The models are loom's, made larger; their names
# hold `many`.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="${RUSTFLAGS:-} --cfg tollgate_loom --cfg tollgate_shuttle" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/shuttle" \
    cargo test --lib --profile shuttle many:: "$@"
