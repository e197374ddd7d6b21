#!/usr/bin/env bash
# Explores the models of the concurrent protocols: every interleaving up to a bound on preemptions. Arguments that begin with `-` are
# for the test harness. The others are parts of names: only these models run.
#
# A few models take a minute or more. They run with one preemption less, unless TOLLGATE_ALL_CASES=1 is set.
set -euo pipefail
cd "$(dirname "$0")/.."
names=() options=()
for argument; do
    case $argument in
        --) ;;
        -*) options+=("$argument") ;;
        *) names+=("$argument") ;;
    esac
done
[ ${#names[@]} -gt 0 ] || names=(models)
RUSTFLAGS="${RUSTFLAGS:-} --cfg tollgate_loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
    cargo test -p tollgate -p tollgate-rules -p tollgate-redis --lib --features tollgate/__models --profile loom -- "${names[@]}" "${options[@]}"
