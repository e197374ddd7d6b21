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

# The floors of src/design.md: nothing imports from one above its own. Tests and models may.
upward=$(find src -name '*.rs' ! -path src/lib.rs ! -path 'src/bin/*' ! -path 'src/exhaustive*' \
    ! -name 'models.rs' ! -path '*/models/*' ! -name 'tests.rs' | sort | xargs awk '
    FILENAME == "src/design.md" {
        if ($0 ~ /^\| [0-9]+ \|/) {
            split($0, column, "|")
            count = split(column[3], room, /[`, ]+/)
            for (i = 1; i <= count; i++) if (room[i] != "") floor[room[i]] = column[2] + 0
        }
        next
    }
    FNR == 1 {
        tests = 0
        own = substr(FILENAME, 5)
        sub(/\.rs$/, "", own)
        while (!(own in floor) && sub(/\/[^\/]*$/, "", own)) {}
        if (!(own in floor)) print "  " FILENAME ": no floor"
    }
    /^mod tests \{/ { tests = 1 }
    tests || !(own in floor) { next }
    {
        sub(/\/\/.*/, "")
        while (match($0, /crate::[a-z_]+/)) {
            other = substr($0, RSTART + 7, RLENGTH - 7)
            if (other in floor && floor[other] > floor[own]) print "  " FILENAME ":" FNR ": " other
            $0 = substr($0, RSTART + RLENGTH)
        }
    }' src/design.md)
[ -z "$upward" ] || complain 'Imports from a floor above (src/design.md):' "$upward"

[ "$bad" -eq 0 ] && echo 'tidy'
exit "$bad"
