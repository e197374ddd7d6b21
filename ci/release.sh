#!/usr/bin/env bash
# The checks that only a release needs. Run it after the gate, .ci/run, on a machine that does nothing else. It takes hours.
# With the argument `publication`, runs only the steps from `packages` on, in about half an hour. BASELINE names the tag of the last
# release, with which the public interface is compared. Without BASELINE, that is the newest tag that begins with `v`.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
. ci/lib.sh
begin

# The packages that are published.
published() {
    cargo metadata --no-deps --format-version 1 \
        | python3 -c 'import json, sys; print(*(p["name"] for p in json.load(sys.stdin)["packages"] if p["publish"] != []), sep="\n")'
}

# Reports what a person must do before the release. The other steps still run, and the script fails at its end.
faults=0
fault() {
    echo "*** MISSING: $1" >&2
    faults=$((faults + 1))
}

if [ "${1:-}" != publication ]; then

step 'tools'
tools
have cargo-fuzz || cargo install cargo-fuzz --locked --quiet

step 'features: each alone, and each pair'
ci/features.sh --depth 2
cargo clippy --quiet --all-targets -- -D warnings

step 'tests with default features'
cargo test --quiet

step 'loom models at length'
TOLLGATE_ALL_CASES=1 ci/loom.sh --include-ignored

step 'tests that take a minute'
cargo test --quiet --all-features --test redis --test serve -- --ignored minute_ flood::

step 'shared limits over TLS'
cargo test --quiet -p tollgate-tls

step 'ThreadSanitizer at length'
ci/tsan.sh -- --include-ignored

step 'fuzzing at length'
SECONDS_EACH="${SECONDS_EACH:-120}" ci/fuzz.sh

# Here, property tests run all of their cases. A test that skips is no evidence for the promises of GUARANTEES.md.
step 'all cases of all tests, none skipped'
TOLLGATE_ALL_CASES=1 cargo test --quiet --all-features 2>&1 | tee target/all_cases.log
! grep -q '^SKIPPED ' target/all_cases.log || { echo 'tests were skipped' >&2; exit 1; }

step 'accuracy at full scale'
cargo run --quiet --profile bench -p tollgate-soak --bin accuracy
cargo bench --quiet --all-features --bench sketch_accuracy

# All benches have the same features, so that the library is built only once. All rows run, but nothing is measured.
step 'benches, briefly'
cargo test --quiet --release --all-features --bench algorithms --bench cost --bench growth --bench layer --bench limiter --bench peers --bench policies \
    --bench redis --bench redis_lease --bench rules --bench sketch_accuracy --bench sketches >/dev/null

step 'benches of the targets, briefly'
cargo bench --quiet --all-features --bench peers -- --quick

# The service with everything that it does, and everything that goes wrong, at once. The gate runs a minute of it.
step 'service on a hostile day, for half an hour'
TOLLGATE_SOAK_SECONDS=1800 cargo test --quiet --all-features --test hostile -- --ignored --nocapture

step 'soak for an hour'
cargo run --quiet --release -p tollgate-soak -- 60

fi

# Builds each package from its packed files and the packed files of the others, as its users will.
step 'packages'
grep -q '^repository = "https://' Cargo.toml || fault 'the public address is missing: set `repository` in [workspace.package] of Cargo.toml'
# In a new folder, because cargo keeps the files of a registry at a path, and would build an earlier run's packages.
mkdir -p target
packages=$(mktemp -d target/packages.XXXXXX)
cargo publish --workspace --dry-run --target-dir "$packages"
rm -rf "$packages"

step 'documentation, as docs.rs builds it'
for package in $(published); do
    RUSTDOCFLAGS='--cfg docsrs -D warnings' cargo +nightly doc --quiet --no-deps --all-features -p "$package"
done

# The oldest versions of the direct dependencies that the manifests allow, with the oldest compiler that they allow. In a copy,
# because the lock file changes.
step 'oldest dependencies, oldest Rust'
rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if rustup toolchain install --profile minimal "$rust"; then
    copy=$(mktemp -d)
    git archive HEAD | tar -x -C "$copy"
    (
        export CARGO_TARGET_DIR=$PWD/target/oldest
        cd "$copy"
        cargo +nightly update --quiet -Z direct-minimal-versions
        # An old compiler has other lints.
        # shellcheck disable=SC2046
        RUSTFLAGS=--cap-lints=allow cargo +"$rust" check --quiet --all-features $(published | sed 's/^/-p /')
    )
    rm -rf "$copy"
else
    echo "*** SKIPPED: Rust $rust cannot be installed"
fi

# The image needs a static program, and a base that not every machine can fetch. So it is built without its base here.
step 'image'
if have buildah && have musl-gcc && rustup target add x86_64-unknown-linux-musl; then
    CARGO_PROFILE_SERVER_STRIP=true cargo build --quiet --profile server -p tollgate-cli --features serve,otlp --target x86_64-unknown-linux-musl
    ci/packaging.py --image target/x86_64-unknown-linux-musl/server/tollgate
else
    echo '*** SKIPPED: buildah, musl-gcc (musl-tools) or the target x86_64-unknown-linux-musl is missing'
fi

step 'public interface'
BASELINE=${BASELINE:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [ -n "$BASELINE" ]; then
    have cargo-semver-checks || cargo install cargo-semver-checks --locked --quiet
    cargo semver-checks --workspace --baseline-rev "$BASELINE"
else
    echo '*** SKIPPED: no tag v*, so this is the first release: there is no interface to compare with'
fi

# This is the last step, because it needs the advisory database, and some machines cannot reach it.
step 'known faults of dependencies'
ci/deny.sh advisories || fault 'known faults of dependencies: the check failed, or could not fetch the advisory database; see above'

summary
[ "$faults" = 0 ]
