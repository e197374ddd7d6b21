//! The service alone: `tollgate-serve serve` and `tollgate-serve ctl`, as `tollgate` has them, without the endpoint for Redis clients.

use std::process::ExitCode;

use tollgate_report::{line, output};
use tollgate_serve::Program;

fn main() -> ExitCode {
    output::end(tollgate_serve::run(&line::read::<Program>().command))
}
