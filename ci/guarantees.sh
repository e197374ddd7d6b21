#!/usr/bin/env bash
# Runs the commands of GUARANTEES.md, each once, and says which rows are green: of all rows, or of those named (G12 G40).
# A row is green if every test, model and statistic that it names was seen to pass, and every fuzz target that it names to end well.
# Before a release; the gate runs the same tests anyway. Needs what those need: nightly for fuzzing (SECONDS_EACH, 6 by default) and
# ThreadSanitizer, a redis-server, and the traces. Logs are left in target/guarantees.
set -uo pipefail
cd "$(dirname "$0")/.."
logs="${CARGO_TARGET_DIR:-target}/guarantees"
mkdir -p "$logs"
rm -f "$logs"/*.log
export CARGO_TERM_COLOR=never SECONDS_EACH="${SECONDS_EACH:-6}"

# id <tab> names, and id <tab> commands, of the rows that were asked for.
wanted=" $* "
names="$logs/names" commands="$logs/commands"
awk -v wanted="$wanted" -v names="$names" -v commands="$commands" -F ' [|] ' '
    BEGIN { printf "" > names; printf "" > commands }
    /^[|] G[0-9]/ {
        id = substr($1, 3)
        if (wanted !~ /[^ ]/ || index(wanted, " " id " ")) {
            kind = ""
            n = split($4, part, "`")
            for (i = 1; i <= n; i++) {
                if (i % 2) {
                    if (match(part[i], /(test|model|control|statistic)s? $/)) kind = "test"
                    if (match(part[i], /fuzz $/)) kind = "fuzz"
                } else { sub(/^.*::/, "", part[i]); print id "\t" kind "\t" part[i] > names }
            }
            n = split($5, part, "`")
            for (i = 2; i <= n; i += 2) print id "\t" part[i] > commands
        }
    }' GUARANTEES.md
[ -s "$names" ] || { echo "no such row: $*" >&2; exit 2; }

# Tests that find no server, or no traces, skip and pass: that would not be green.
rows=$(awk 'FNR == NR { wanted[$1]; next } ($2 in wanted)' "$names" GUARANTEES.md)
if grep -qE '`redis::|against_server' <<<"$rows" && ! command -v redis-server >/dev/null; then
    echo 'no redis-server: rows of this room cannot be checked' >&2
    exit 2
fi
if grep -q '`accuracy::traces::' <<<"$rows" && [ ! -d "${TOLLGATE_TRACES:-../shared/traces}" ]; then
    echo 'no traces: say where they are in TOLLGATE_TRACES' >&2
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

# Test programs, each once and all built together.
programs=$(cut -f2 "$commands" | grep '^cargo test --all-features' | grep -oE -- '--(lib|test [a-z_]+)' | sort -u)
if [ -n "$programs" ]; then
    # shellcheck disable=SC2086
    run build cargo test --all-features --no-run $programs
    # shellcheck disable=SC2086
    run tests cargo test --all-features --no-fail-fast $programs
fi
number=0
while IFS= read -r command; do
    number=$((number + 1))
    # shellcheck disable=SC2086
    run "command-$number" $command
done < <(cut -f2 "$commands" | grep -v '^cargo test --all-features' | grep -v '^ci/fuzz.sh' | sort -u)
for target in $(awk -F '\t' '$2 == "fuzz" { print $3 }' "$names" | sort -u); do
    run "fuzz-$target" ci/fuzz.sh "$target"
done

# What became of each function, whatever module it is in: a name that passed in one and failed in another has failed, and one that
# skipped has not passed.
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
        $1 == id && $2 == "test" && seen[$3] != "ok" { print $3 " " (seen[$3] ? seen[$3] : "was not run") }
        $1 == id && $2 == "fuzz" {
            good = 0
            while ((getline line < (logs "/fuzz-" $3 ".log")) > 0) if (line == "exit 0") good = 1
            close(logs "/fuzz-" $3 ".log")
            if (!good) print "fuzz " $3 " failed"
        }' "$logs/seen" "$names")
    if [ -z "$why" ]; then
        printf 'green %s\n' "$id"
    else
        printf 'red   %s: %s\n' "$id" "$(printf '%s' "$why" | paste -sd';')"
        bad=1
    fi
done < <(cut -f1 "$names" | uniq)
exit "$bad"
