#!/usr/bin/env bash
# The stress tests under ThreadSanitizer. The standard library is not instrumented (that needs its source), so
# what it alone does is suppressed in ci/tsan.supp; everything of ours and of our dependencies is checked.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="--cfg tollgate_tsan -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
TSAN_OPTIONS="suppressions=$PWD/ci/tsan.supp halt_on_error=1" \
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan" CARGO_PROFILE_DEV_DEBUG=line-tables-only \
    cargo +nightly test --target "$target" --features rules,tokio --test stress "$@"
