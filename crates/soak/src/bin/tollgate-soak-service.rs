//! The service with all of its endpoints. `tests/hostile` starts it, and lets it have a hostile day.

use std::process::ExitCode;

use tollgate_report::{line, output};
use tollgate_resp::ServeResp;
use tollgate_serve::Program;

fn main() -> ExitCode {
    output::end(tollgate_serve::run(&line::read::<Program<ServeResp>>().command))
}
