#!/usr/bin/env bash
# Checks the library with each feature alone, with none, and with all, warnings as errors. With an argument, `--depth 2` or so, with all
# sets of so many features too. Takes cargo-hack, and installs it if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-hack >/dev/null || cargo install cargo-hack --locked --quiet
if [ $# -gt 0 ]; then
    sets=(--feature-powerset "$@")
else
    sets=(--each-feature)
fi
cargo hack clippy --quiet --lib "${sets[@]}" --exclude-features default -- -D warnings
