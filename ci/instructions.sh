#!/usr/bin/env bash
# Counts the instructions of the hot paths with callgrind. Fails if a count is not within 3 % of benches/instructions.json.
# With --renew, writes that file.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v valgrind >/dev/null; then
    (apt-get install -qy valgrind || { apt-get update -q && apt-get install -qy valgrind; }) >/dev/null
fi
# The paths are compiled in one unit. Otherwise an unrelated change may move functions to other units, and what is inlined changes
# with it: by 20 % on the shortest paths. The counts are for comparisons only; `benches/peers.rs` measures a user's build.
#
# Uses all features, like the other benches, so that the library is built only once.
cargo bench --quiet --config 'profile.bench.package.tollgate-benches.codegen-units=1' --all-features --bench instructions -- --must "$@"
