#!/usr/bin/env bash
# Runs the stress tests under ThreadSanitizer, two at a time, because each has eight threads. The standard library is not instrumented, because that needs its source. Reports
# about its own code are suppressed in ci/tsan.supp. All code of this crate and of its dependencies is checked.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="--cfg tollgate_tsan -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
RUST_TEST_THREADS="${RUST_TEST_THREADS:-2}" \
TSAN_OPTIONS="suppressions=$PWD/ci/tsan.supp halt_on_error=1" \
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan" CARGO_PROFILE_DEV_DEBUG=line-tables-only \
    cargo +nightly test --target "$target" -p tollgate -p tollgate-rules --features tollgate/tokio --test stress "$@"
