#!/usr/bin/env bash
# Counts the instructions of the hot paths with callgrind. Fails if a count is not within 3 % of benches/instructions.json.
# With --renew, writes that file.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v valgrind >/dev/null; then
    (apt-get install -qy valgrind || { apt-get update -q && apt-get install -qy valgrind; }) >/dev/null
fi
# Uses all features, like the other benches, so that the library is built only once.
cargo bench --quiet --all-features --bench instructions -- --must "$@"
