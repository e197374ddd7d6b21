//! `--state` and `--state-every`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::duration;

/// Where the service keeps what it has counted.
#[derive(Args, Debug)]
#[command(next_help_heading = "State")]
pub struct ServeState {
    /// File from which the next process takes the usage of clients over: written while serving and after the drain, and
    /// read at the start [default: usage is lost at the end]
    ///
    /// It has the usage of the rules. While it is written, the last one is there too, so the folder needs twice the room.
    ///
    /// Each process needs a file of its own. It has keys of clients and secret seeds, so only its owner may read it. Example:
    /// tollgate serve limits.yaml --state /var/lib/tollgate/state
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,

    /// How often the file is written while serving, which is the usage that a crash can lose: 1s or more; 0: only after the
    /// drain
    #[arg(long, default_value = "1m", value_parser = interval, value_name = "TIME")]
    pub state_every: Duration,
}

/// Each write takes a copy of all usage.
fn interval(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        every if every.is_zero() || every >= Duration::from_secs(1) => Ok(every),
        _ => Err(format!("{text} is too often; expected 1s or more, or 0 to write only after the drain")),
    }
}
