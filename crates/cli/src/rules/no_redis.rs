//! Stand-ins for the commands for rules on a server, in a program without the feature `redis`.

use crate::args::shared::{DiffArgs, PullArgs, PushArgs};
use crate::error::Error;

fn missing() -> Result<(), Error> {
    Err(Error::usage(
        "this program was built without Redis; build it with `cargo install --path crates/cli --features redis`",
    ))
}

/// # Errors
/// Always: the program cannot do this.
pub fn push(_: &PushArgs) -> Result<(), Error> {
    missing()
}

/// # Errors
/// Always: the program cannot do this.
pub fn diff(_: &DiffArgs) -> Result<(), Error> {
    missing()
}

/// # Errors
/// Always: the program cannot do this.
pub fn pull(_: &PullArgs) -> Result<(), Error> {
    missing()
}
