#!/usr/bin/env bash
# Builds and runs a program without the standard library; see no_std/src/main.rs.
set -euo pipefail
cd "$(dirname "$0")/.."
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/no_std" \
    cargo run --quiet --release --manifest-path ci/no_std/Cargo.toml
