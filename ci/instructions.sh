#!/usr/bin/env bash
# Counts the instructions of the hot paths by callgrind, and fails where they are not within 3 % of benches/instructions.json.
# --renew writes that file.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v valgrind >/dev/null; then
    (apt-get install -qy valgrind || { apt-get update -q && apt-get install -qy valgrind; }) >/dev/null
fi
# All features, as for the other benches, so that the library is built once.
cargo bench --quiet --all-features --bench instructions -- --must "$@"
