//! A stand-in for the commands for rules on a server, in a program without the feature `redis`.

pub use self::missing as push;
pub use self::missing as pull;
pub use self::missing as diff;
use tollgate_report::error::Error;

/// # Errors
/// Always: the program cannot do this.
pub fn missing<A>(_: &A) -> Result<(), Error> {
    Err(Error::left_out("Redis", "redis"))
}
