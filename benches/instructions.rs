//! How many instructions does a check execute? Counted by callgrind, and held against `instructions.json` within 3 %.
//!
//! ```text
//! ci/instructions.sh                 counts, and fails if a path differs
//! ci/instructions.sh --renew         writes what was counted to benches/instructions.json
//! ```
//! * This program runs itself under `valgrind --tool=callgrind`, once for all paths. Each path is a function of its own, which does
//!   the same check [`CALLS`](paths::CALLS) times on a store that is warm and with a time that is given; its *inclusive* count is read
//!   from callgrind's output and divided. What comes before, building and warming up, is not in it.
//! * Counts are those of the code, not of the machine: neither load nor caches nor the clock change them. Seeds are fixed where a
//!   limiter takes a hasher; rules choose their own.
//! * They are no times: a miss of the cache costs two hundred instructions' time and is one instruction here. Times are in
//!   `peers.rs`. What this is for is to notice that a path has grown.
//! * Another compiler makes other code: the file says by which its counts were made, and a failure says if it was another.
//! * Both directions fail: after a speed-up, renew the counts, so that the speed-up stays.
//! * Callgrind directly rather than through a framework: gungraun-runner 0.20 takes minutes to compile, and a hundred crates, for
//!   what is forty lines here.

#[path = "instructions/baseline.rs"]
mod baseline;
#[path = "instructions/callgrind.rs"]
mod callgrind;
#[path = "instructions/paths.rs"]
mod paths;
mod support;

use std::process::ExitCode;

const COUNTED: &str = "--counted";

fn main() -> ExitCode {
    // Cargo passes `--bench` when benching; without it (`cargo test --benches`) this only shows that all paths run.
    if support::has(COUNTED) || !support::has("--bench") {
        paths::run();
        return ExitCode::SUCCESS;
    }
    let counts = match callgrind::count(COUNTED) {
        Ok(counts) => counts,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !support::has("--must") => {
            println!("nothing counted: valgrind is not installed");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("counting by valgrind: {error}");
            return ExitCode::FAILURE;
        }
    };
    if support::has("--renew") { baseline::renew(&counts) } else { baseline::compare(&counts) }
}
