//! How many instructions does a check execute? callgrind counts them, and each count must be within 3 % of
//! `instructions.json`.
//!
//! ```text
//! ci/instructions.sh                 counts, and fails if a path differs
//! ci/instructions.sh --renew         writes the new counts to benches/instructions.json
//! ```
//! * This program runs itself under `valgrind --tool=callgrind`, once for all paths. Each path is its own function. It
//!   makes the same check [`CALLS`](paths::CALLS) times, on a warm store and with given times. The program reads the
//!   function's *inclusive* count from callgrind's output and divides it by the number of calls. The count does not
//!   include building and warming up.
//! * The counts depend on the code and not on the machine: neither load nor caches nor the clock change them. Limiters
//!   that take a hasher get a fixed seed. Rules choose their own seed.
//! * Counts are not times. A cache miss takes as long as two hundred instructions and counts as one. `peers.rs`
//!   measures times. The purpose of this bench is to detect that a path has grown.
//! * Another compiler generates other code. The file names the compiler of its counts, and a failure reports if the
//!   compiler has changed.
//! * A decrease fails too. After a speed-up, renew the counts, so that a later slowdown is detected.
//! * The program calls callgrind directly instead of through a framework. gungraun-runner 0.20 takes minutes and a
//!   hundred crates to compile, and would replace forty lines of this program.

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
    // Cargo passes `--bench` for a bench run. Without it (as in `cargo test --benches`), all paths run once and nothing
    // is counted.
    if support::has(COUNTED) || !support::has("--bench") {
        paths::run();
        return ExitCode::SUCCESS;
    }
    let counts = match callgrind::count(COUNTED) {
        Ok(counts) => counts,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !support::has("--must") => {
            println!("counted nothing: valgrind is not installed; install it to count");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("valgrind failed: {error}");
            return ExitCode::FAILURE;
        }
    };
    if support::has("--renew") { baseline::renew(&counts) } else { baseline::compare(&counts) }
}
