#!/usr/bin/env bash
# Builds the Debian package of the program into target/debian/. Needs cargo-deb (`cargo install cargo-deb --locked`). Its metadata is in
# crates/cli/Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -p tollgate-cli --features serve,otlp
program=${CARGO_TARGET_DIR:-target}/release/tollgate
rm -rf target/deb
mkdir -p target/deb/man target/deb/completions
"$program" man target/deb/man
gzip -9n target/deb/man/*.1
"$program" completions bash >target/deb/completions/tollgate
"$program" completions zsh >target/deb/completions/_tollgate
"$program" completions fish >target/deb/completions/tollgate.fish
cargo deb -p tollgate-cli --no-build
