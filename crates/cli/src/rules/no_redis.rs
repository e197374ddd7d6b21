//! A stand-in for the commands for rules on a server, in a program without the feature `redis`.

pub use self::missing as push;
pub use self::missing as pull;
pub use self::missing as diff;
use tollgate_report::error::Error;
use tollgate_rules::{Config, Problem};

/// Returns nothing: this program has no server that could not count the rules.
pub fn uncountable(_: &[Config]) -> Vec<Problem> {
    Vec::new()
}

/// # Errors
/// Always: the program cannot do this.
pub fn missing<A>(_: &A) -> Result<(), Error> {
    Err(Error::left_out("Redis", "redis"))
}
