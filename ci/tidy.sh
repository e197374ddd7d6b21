#!/usr/bin/env bash
# Checks the rules of this repository that no compiler lint checks. docs/design.md describes them.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
complain() { printf '%s\n%s\n' "$1" "$2" >&2; bad=1; }
# Lists the code files, without models and tests.
code() { find "${1:-src}" -name '*.rs' ! -path '*/models/*' ! -name models.rs ! -name tests.rs ! -path '*/tests/*' | sort; }

stray=$(grep -rnE '(std|core|loom)::sync::atomic' src crates/config/src crates/protocol/src crates/redis/src crates/rules/src --include='*.rs' | grep -v '^src/base/sync.rs:' || true)
[ -z "$stray" ] || complain 'Use the atomics of src/base/sync.rs:' "$stray"

# Tags of evidence, such as `// G12`, do not count.
long=$(grep -rcvE '^ *// G[0-9]+(, G[0-9]+)*$' src crates tests benches fuzz/fuzz_targets examples --include='*.rs' | awk -F: '$2 > 700 {print "  " $1 ": " $2}')
[ -z "$long" ] || complain 'Files of more than 700 lines:' "$long"

# Rules and Redis are packages of their own. `redis::Client` of the crate `redis` is not ours.
moved=$({ grep -rnE 'src/edge|`(rules|redis)::' --include='*.rs' --include='*.md' --include='*.sh' src crates tests benches fuzz/fuzz_targets examples docs ci ./*.md \
    | grep -vE '/target/|^(./CHANGELOG.md|ci/tidy.sh):|`redis::Client::build_with_tls'; } || true)
[ -z "$moved" ] || complain 'Names of before the packages tollgate-rules and tollgate-redis:' "$moved"

unfinished=$(grep -rnE '\b(todo|unimplemented|dbg)!\(' src crates tests benches fuzz/fuzz_targets --include='*.rs' || true)
[ -z "$unfinished" ] || complain 'Not finished:' "$unfinished"

# A SeqCst operation must name its partner. Only the shim has such an operation: a fence that pairs with itself.
seqcst=$(grep -rn 'SeqCst' src crates/config/src crates/protocol/src crates/redis/src crates/rules/src --include='*.rs' | grep -vE '/models(/[a-z_]+)?\.rs:|^src/base/sync.rs:' || true)
[ -z "$seqcst" ] || complain 'SeqCst outside the models and the shim:' "$seqcst"

# Imports upwards, circles of modules, and choices with two types.
python3 -B ci/house_test.py 2>/dev/null || complain 'Fails:' '  ci/house_test.py'
python3 -B ci/house.py || bad=1

features=$(grep -rnE 'feature *= *"' src --include='*.rs' | grep -vE '^src/((lib|internals).rs|(calendar|telemetry)/)|feature *= *"(std|tokio)"' || true)
[ -z "$features" ] || complain 'Below src/telemetry and src/calendar only the features std and tokio may be named:' "$features"

layout=$(find src crates -name '*.rs' | while read -r file; do [ ! -d "${file%.rs}" ] || echo "  $file"; done)
[ -z "$layout" ] || complain 'A module with files of its own is x/mod.rs:' "$layout"

# One name for one thing. At most MOST_SHARED_NAMES names may belong to three types or more.
MOST_SHARED_NAMES=3
shared=$({ code src; code crates/cli/src; code crates/config/src; code crates/http/src; code crates/io/src; code crates/protocol/src; code crates/redis/src; code crates/report/src; code crates/resp/src; code crates/rules/src; code crates/serve/src; code crates/tower/src; } | xargs grep -hoE '^ *(pub(\([a-z:_ ]+\))? )?(struct|enum|union|trait) [A-Z][A-Za-z0-9]*' \
    | awk '{ count[$NF]++ } END { for (name in count) if (count[name] > 2) print "  " name ": " count[name] }' | sort)
[ "$(grep -c . <<<"$shared")" -le "$MOST_SHARED_NAMES" ] \
    || complain "More than $MOST_SHARED_NAMES names are those of three types or more:" "$shared"

# Type names that were replaced, because they mean nothing or several things. The glossary in docs/design.md has the new names.
RETIRED='Asks|Away|ByHash|Carries|Errand|Fared|GivenBack|Habits|InForce|Landed|Manner|Narrow|Narrowed|Newcomer|Purse|Together|Unable|Unmade|Verb|Which|Wild'
retired=$(grep -rnE "\b(struct|enum|union|trait|type) ($RETIRED)\b" src crates tests benches fuzz/fuzz_targets examples --include='*.rs' || true)
[ -z "$retired" ] || complain 'Retired names (docs/design.md has the glossary):' "$retired"

# Functions for an operation that has another word: peek, refund, can_refund.
verbs=$(grep -rnE '\bfn (look|looks|undo|undoes|gives_back)\b' src crates/cli crates/config crates/http crates/io crates/protocol crates/redis/src crates/report crates/resp crates/rules/src crates/serve crates/tower --include='*.rs' || true)
[ -z "$verbs" ] || complain 'Say peek, refund, can_refund:' "$verbs"

# Phrases that must not be used again. ci/words.tsv lists them, and what to write instead.
while IFS=$'\t' read -r phrase advice; do
    [[ $phrase != '#'* ]] || continue
    found=$(grep -rniE "(^|[^a-z])(${phrase// /[ _]})([^a-z]|\$)" --include='*.rs' --include='*.md' --include='*.sh' --include='*.py' \
        --include='*.lua' --include='*.toml' README.md CONTRIBUTING.md SECURITY.md GUARANTEES.md BENCHMARKS.md CHANGELOG.md docs src crates tests benches examples fuzz/fuzz_targets ci || true)
    [ -z "$found" ] || complain "Not plain English; write: $advice" "$found"
done <ci/words.tsv

MOST_PROGRAMS=12
programs=$(find tests -maxdepth 1 -name '*.rs'; find tests -mindepth 2 -maxdepth 2 -name main.rs)
[ "$(grep -c . <<<"$programs")" -le "$MOST_PROGRAMS" ] \
    || complain "More than $MOST_PROGRAMS test programs; tests/README.md says where a test goes:" "$programs"

[ "$bad" -eq 0 ] && echo 'tidy'
exit "$bad"
