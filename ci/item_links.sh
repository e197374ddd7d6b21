#!/usr/bin/env bash
# Checks that each link to an item of the libraries on docs.rs leads to a page, and to a place in it, of the documentation that
# `cargo doc --all-features` has built. So a guide cannot link an item that was renamed or removed.
set -euo pipefail
cd "$(dirname "$0")/.."
built="${CARGO_TARGET_DIR:-target}/doc"
links=$(grep -rhoE 'https://docs\.rs/tollgate(-[a-z]+)?/latest/[^])> `"]*' --include='*.md' . --exclude-dir=target | sort -u)
[ "$(grep -c . <<<"$links")" -gt 200 ] || { echo 'the search found too few links' >&2; exit 1; }
bad=0
while IFS='#' read -r page place; do
    file="$built/${page#https://docs.rs/*/latest/}"
    [ -f "$file" ] && { [ -z "$place" ] || grep -qF "id=\"$place\"" "$file"; } && continue
    echo "no such item: $page${place:+#$place}" >&2
    bad=1
done <<<"$links"
exit "$bad"
