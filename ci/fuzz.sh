#!/usr/bin/env bash
# Runs all fuzz targets, or the named targets, for SECONDS_EACH seconds each (default: 20). Needs nightly and cargo-fuzz.
# This build compiles quickly but runs slowly. To fuzz for hours, use `cargo +nightly fuzz run TARGET`.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in ${*:-$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^tollgate-fuzz$')}; do
    echo "fuzz $target"
    cargo +nightly fuzz run --dev "$target" -- -max_total_time="${SECONDS_EACH:-20}" -print_final_stats=0 -verbosity=0 -print_funcs=0 -close_fd_mask=1
done
