#!/usr/bin/env bash
# Runs the evidence for the rows of GUARANTEES.md, each command once, and prints which rows are green. It checks all rows, or the
# named rows (G12 G40). With --list, it only prints the commands of each row, as id <tab> command; tests/docs compares them with
# tests/evidence.tsv.
#
# A row is green if the logs show that all its tests, models and statistics passed, and that all its fuzz targets ended without a
# failure. This script is for releases; the gate runs the same tests too. It needs nightly for fuzzing (SECONDS_EACH, default: 6)
# and for ThreadSanitizer, a redis-server, and the traces. Logs stay in target/guarantees.
set -uo pipefail
cd "$(dirname "$0")/.."
list=0
[ "${1:-}" != --list ] || { list=1; shift; }

# The commands of all rows that are read, or of each row, after its id. A test's program is the first part of its path.
commands() { # each
    awk -F '\t' -v each="$1" '
        function flush(prefix,   n, i, line) {
            prefix = each ? id "\t" : ""
            if (programs != "") print prefix "cargo test --all-features" programs
            n = split(long_order, order, " ")
            for (i = 1; i <= n; i++) print prefix "cargo test --release --all-features --test " order[i] " -- --ignored" long[order[i]]
            if (models) print prefix "ci/loom.sh"
            if (sanitized) print prefix "ci/tsan.sh -- --include-ignored"
            if (targets != "") print prefix "ci/fuzz.sh" targets
            programs = targets = long_order = ""
            models = sanitized = 0
            split("", seen); split("", long)
        }
        function once(what) { if (what in seen) return 0; seen[what]; return 1 }
        each && $1 != id { if (NR > 1) flush(); id = $1 }
        { name = $3; sub(/^.*::/, "", name); program = $3; sub(/(\/|::).*/, "", program) }
        $2 == "model" || $2 == "lone-model" || $2 == "control" { models = 1 }
        $2 == "sanitized" { sanitized = 1 }
        $2 == "fuzz" && once("fuzz " $3) { targets = targets " " $3 }
        $2 == "test" || $2 == "statistic" {
            flag = program == "src" || program == "crates" ? " --lib" : " --test " program
            if (once(flag)) programs = programs flag
        }
        $2 == "long" && once($3) {
            if (!(program in long)) long_order = long_order " " program
            long[program] = long[program] " " name
        }
        END { if (NR) flush() }'
}

rows() { # the evidence of the rows named, or of all
    awk -F '\t' -v wanted=" $* " '/^G/ && (wanted !~ /[^ ]/ || index(wanted, " " $1 " "))' tests/evidence.tsv
}

evidence=$(rows "$@")
[ -n "$evidence" ] || { echo "no such row: $*" >&2; exit 2; }
if [ "$list" = 1 ]; then
    commands 1 <<<"$evidence"
    exit
fi

logs="${CARGO_TARGET_DIR:-target}/guarantees"
mkdir -p "$logs"
rm -f "$logs"/*.log
# Property tests run all of their cases here.
export TOLLGATE_ALL_CASES=1 CARGO_TERM_COLOR=never SECONDS_EACH="${SECONDS_EACH:-6}"

# Tests that find no server or no traces skip and pass. A skipped test does not make a row green.
if grep -qE $'\tredis::|against_server' <<<"$evidence" && ! command -v redis-server >/dev/null; then
    echo 'there is no redis-server, so the rows about Redis cannot be checked' >&2
    exit 2
fi
if grep -qE $'\t(accuracy|program)::traces::' <<<"$evidence" && [ ! -d "${TOLLGATE_TRACES:-../shared/traces}" ]; then
    echo 'there are no traces: set TOLLGATE_TRACES to their directory' >&2
    exit 2
fi

run() { # log, command…
    local log="$logs/$1.log"
    shift
    printf '=== %s\n' "$*"
    "$@" >"$log" 2>&1
    local code=$?
    printf 'exit %d\n' "$code" >>"$log"
    [ "$code" -eq 0 ] || printf '    failed: %s\n' "$log"
}

number=0
while IFS= read -r command; do
    number=$((number + 1))
    case $command in
        # Each target has its own log, because a target prints no test names.
        'ci/fuzz.sh '*) for target in ${command#ci/fuzz.sh }; do run "fuzz-$target" ci/fuzz.sh "$target"; done ;;
        # shellcheck disable=SC2086
        'cargo test --all-features '*) run "command-$number" $command --no-fail-fast ;;
        # shellcheck disable=SC2086
        *) run "command-$number" $command ;;
    esac
done < <(commands 0 <<<"$evidence")

# Collects the result of each function, by its name without modules. If a name passed in one place and failed in another, it
# failed. A name that skipped has not passed.
awk '/^SKIPPED / { name = $2; sub(/^.*::/, "", name); seen[name] = "skipped" }
    /^test .* [.][.][.] / {
        name = $2; sub(/^.*::/, "", name)
        if (/ [.][.][.] ok$/) { if (!(name in seen)) seen[name] = "ok" } else if (!/ignored/) seen[name] = "failed"
    }
    END { for (name in seen) print name "\t" seen[name] }' "$logs"/*.log >"$logs/seen"

bad=0
while IFS= read -r id; do
    why=$(awk -F '\t' -v id="$id" -v logs="$logs" '
        FNR == NR { seen[$1] = $2; next }
        $1 == id && $2 != "fuzz" { name = $3; sub(/^.*::/, "", name); if (seen[name] != "ok") print name " " (seen[name] ? seen[name] : "was not run") }
        $1 == id && $2 == "fuzz" {
            good = 0
            while ((getline line < (logs "/fuzz-" $3 ".log")) > 0) if (line == "exit 0") good = 1
            close(logs "/fuzz-" $3 ".log")
            if (!good) print "fuzz " $3 " failed"
        }' "$logs/seen" - <<<"$evidence")
    if [ -z "$why" ]; then
        printf 'green %s\n' "$id"
    else
        printf 'red   %s: %s\n' "$id" "$(printf '%s' "$why" | paste -sd';')"
        bad=1
    fi
done < <(cut -f1 <<<"$evidence" | uniq)
exit "$bad"
