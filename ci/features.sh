#!/usr/bin/env bash
# Checks the libraries with each feature alone, with no features, and with all features. Warnings are errors. With the argument
# `--depth N`, also checks all sets of N features. Uses cargo-hack, and installs it if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-hack >/dev/null || cargo install cargo-hack --locked --quiet
if [ $# -gt 0 ]; then
    sets=(--feature-powerset "$@")
else
    sets=(--each-feature)
fi
for package in tollgate tollgate-config tollgate-http tollgate-io tollgate-protocol tollgate-redis tollgate-rules tollgate-tower; do
    # cargo-hack passes no `-p` to cargo, which would then check all default members of the workspace.
    CARGO_ALIAS_LIBRARY="clippy --quiet -p $package --lib" \
        cargo hack library -p "$package" "${sets[@]}" --exclude-features default,__models -- -D warnings
done
