//! The service with the endpoint for Redis clients: `tollgate-resp serve --resp 6379`.

use std::process::ExitCode;

use tollgate_report::{line, output};
use tollgate_resp::ServeResp;
use tollgate_serve::Program;

fn main() -> ExitCode {
    output::end(tollgate_serve::run(&line::read::<Program<ServeResp>>().command))
}
