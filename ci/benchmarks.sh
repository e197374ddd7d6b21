#!/usr/bin/env bash
# Runs the benches, stores the results in benches/results, fills the tables of BENCHMARKS.md and README.md, and draws the charts.
# Figures are reliable only on a machine that does nothing else. --quick tests all steps, with few and short rounds.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=''
case "${1:-}" in
    '') ;;
    --quick) quick='--quick' ;;
    *) echo "usage: ci/benchmarks.sh [--quick]" >&2; exit 2 ;;
esac
out="$PWD/target/benchmarks"
rm -rf "$out" && mkdir -p "$out"

# If the system permits it, a real-time priority keeps other programs off the processors.
front='' priority='the usual one'
if command -v chrt >/dev/null && chrt -f 1 true 2>/dev/null; then
    front='chrt -f 1' priority='real-time (chrt -f 1), except for the scenarios by threads, whose threads take turns, and for Redis, whose server works at the same time'
fi
echo 'building'
cargo bench --quiet --no-run --all-features --bench peers --bench sketches --bench policies --bench rules --bench layer --bench redis \
    --bench cost --bench sketch_accuracy
cargo bench --quiet --no-run --all-features --profile server --bench peers
cargo build --quiet --profile bench -p tollgate-soak --bin accuracy

commands=()
run() {
    commands+=("${*//"$PWD"/\$PWD}")
    echo "+ $* ($SECONDS s)"
    "$@" >"$out/log" 2>&1 || { tail -n 30 "$out/log" >&2; exit 1; }
}
SECONDS=0
bench() {
    # Cargo runs a bench in benches/, so the path is absolute.
    local name=$1 json=$2
    shift 2
    run $front_now cargo bench --quiet --all-features $profile --bench "$name" -- $quick "$@" --json "$out/$json.json"
}
profile=''
front_now=$front
bench peers peers --charts --scenario '!threads,!theirs'
front_now=''
bench peers peers-threads --charts --scenario threads
front_now=$front
bench peers theirs --charts --scenario theirs
# The build that servers should use. The figures of the targets come from this build.
profile='--profile server'
bench peers peers_server --charts --scenario '!threads,!theirs,!denials,!100m,!memory,!pieces,!ip-,!idle,!strings,!1m-denied,!eviction'
# The same build, one thread, beside a load on the other core.
bench peers peers_beside --beside --scenario '=hot,=hot-denied,=word,=word-denied,=100k,=1m,=strings-1m,=first-sight,=first-sight-idle'
profile=''
bench sketches sketches
bench policies policies
bench rules rules
bench layer layer
bench cost cost --parts keys,rules,calls
front_now=''
bench cost cost-threads --parts threads
# At the usual priority: otherwise the client keeps the server waiting. Without a redis-server this bench prints a note and has no
# figures.
bench redis redis
# Without h2load this bench prints a note and has no figures.
run ci/serve_bench.py $quick --json "$out/serve.json"
# Without redis-benchmark this bench prints a note and has no figures; without throttlecrab-server its rows are left out.
run ci/serve_bench.py --resp $quick --json "$out/resp.json"
scale=1
[ -z "$quick" ] || scale=16
run cargo run --quiet --profile bench -p tollgate-soak --bin accuracy -- --json target/benchmarks/accuracy.json "$scale"
run cargo bench --quiet --all-features --bench sketch_accuracy -- --json "$out/sketch_accuracy.json" "$scale"

PRIORITY="$priority" QUICK="$quick" TOOK="$SECONDS" python3 - "$out/run.json" "${commands[@]}" <<'PYTHON'
import datetime, json, os, shlex, sys
run = {"date": datetime.date.today().isoformat(), "quick": bool(os.environ["QUICK"]), "seconds": int(os.environ["TOOK"]),
       "priority": os.environ["PRIORITY"], "commands": sys.argv[2:]}
json.dump(run, open(sys.argv[1], "w"))
PYTHON
# The sentences of the page are by hand, so read them after a run. This also says which missed targets have no reason there.
status=0
ci/benchmarks.py take "$out" || status=$?
cargo run --quiet -p tollgate-soak --bin charts
exit "$status"
