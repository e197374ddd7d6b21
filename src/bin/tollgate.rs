//! The `tollgate` program; see `tollgate --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate::cli::main()
}
