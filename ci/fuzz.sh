#!/usr/bin/env bash
# Runs every fuzz target, or those named, for SECONDS_EACH seconds each (20 by default). Needs nightly and cargo-fuzz.
# Their build is quick rather than their runs: for hours of fuzzing, `cargo +nightly fuzz run TARGET`.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in ${*:-$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^tollgate-fuzz$')}; do
    echo "fuzz $target"
    cargo +nightly fuzz run --dev "$target" -- -max_total_time="${SECONDS_EACH:-20}" -print_final_stats=0 -verbosity=0 -print_funcs=0 -close_fd_mask=1
done
