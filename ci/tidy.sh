#!/usr/bin/env bash
# What no compiler lint holds: atomics come from the shim, files read in one sitting, nothing names one machine.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
complain() { printf '%s\n%s\n' "$1" "$2" >&2; bad=1; }

stray=$(grep -rnE '(std|core|loom)::sync::atomic' src --include='*.rs' | grep -v '^src/sync.rs:' || true)
[ -z "$stray" ] || complain 'Atomics named outside the shim, src/sync.rs:' "$stray"

long=$(find src tests benches fuzz/fuzz_targets examples -name '*.rs' -exec wc -l {} + | awk '$2 != "total" && $1 > 700 {print "  " $2 ": " $1}')
[ -z "$long" ] || complain 'Files above 700 lines:' "$long"

unfinished=$(grep -rnE '\b(todo|unimplemented|dbg)!\(' src tests benches fuzz/fuzz_targets --include='*.rs' || true)
[ -z "$unfinished" ] || complain 'Unfinished:' "$unfinished"

# An ordering that is not Relaxed, Acquire, Release or AcqRel needs its partner named; the one there is, a fence that pairs
# with itself, is in the shim.
seqcst=$(grep -rn 'SeqCst' src --include='*.rs' | grep -vE '/models(/many)?.rs:|^src/sync.rs:' || true)
[ -z "$seqcst" ] || complain 'SeqCst outside the models and the shim:' "$seqcst"

[ "$bad" -eq 0 ] && echo 'tidy'
exit "$bad"
