//! The `tollgate` program. See `tollgate --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_cli::run()
}
