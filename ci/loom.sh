#!/usr/bin/env bash
# Explores the models of the concurrent protocols: every interleaving up to a bound on preemptions.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="${RUSTFLAGS:-} --cfg tollgate_loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
    cargo test --lib --features rules --profile loom models "$@"
