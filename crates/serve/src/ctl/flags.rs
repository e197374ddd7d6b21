//! The command line of `tollgate ctl`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::duration;
use tollgate_report::descriptor::RequestArgs;

/// The examples of the help.
pub const EXAMPLES: &str = "\
Examples:
  A service with a socket for operators:
    tollgate serve limits.yaml --admin unix:/run/tollgate/admin
  What alice has used:
    tollgate ctl inspect shop user=alice --at unix:/run/tollgate/admin
  The same, with the place in a variable for all commands:
    export TOLLGATE_AT=unix:/run/tollgate/admin
    tollgate ctl inspect shop user=alice
  50 of her used requests back, or all of them:
    tollgate ctl grant 50 shop user=alice --why 'ticket 4711' \\
      --at unix:/run/tollgate/admin
    tollgate ctl reset shop user=alice --why 'ticket 4711' \\
      --at unix:/run/tollgate/admin
  An address blocked for two hours, and free again; the rule has a block:
    tollgate ctl block 2h edge ip=192.0.2.1 --why attack --at https://tg:6071 \\
      --ca ca.crt --token-file token
    tollgate ctl unblock edge ip=192.0.2.1 --why mistake --at https://tg:6071 \\
      --ca ca.crt --token-file token

Exit codes: 0 all rules did it, 1 a rule or the service refused, or no rule
applies, 2 the command line is wrong.";

/// What an operator wants.
#[derive(Subcommand, Debug)]
pub enum CtlCommand {
    /// Show the rules that apply to a key, and what they have counted
    #[command(after_help = EXAMPLES)]
    Inspect(KeyArgs),
    /// Forget what a key has used, and its block; units that requests hold stay
    #[command(after_help = EXAMPLES)]
    Reset(ActionArgs),
    /// Give used units of a key back: at most those that are used, so the key never gets more than its limit
    #[command(after_help = EXAMPLES)]
    Grant {
        /// Units to give back
        #[arg(value_name = "N")]
        units: u64,

        /// The key.
        #[command(flatten)]
        action: ActionArgs,
    },
    /// Block a key for a time: at most for the longest block of its rule
    #[command(after_help = EXAMPLES)]
    Block {
        /// How long, such as 10m or 2h
        #[arg(value_name = "TIME", value_parser = duration::parse)]
        length: Duration,

        /// The key.
        #[command(flatten)]
        action: ActionArgs,
    },
    /// End the block of a key: reset it if it is in a block, and otherwise change nothing
    #[command(after_help = EXAMPLES)]
    Unblock(ActionArgs),
}

/// A key, the reason for a change, and where the service is.
#[derive(Args, Debug)]
pub struct ActionArgs {
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,

    /// Reason for the change, for the log of the service
    #[arg(long, value_name = "TEXT")]
    pub why: String,
}

/// A key, and where the service is.
#[derive(Args, Debug)]
pub struct KeyArgs {
    /// The request whose key it is.
    #[command(flatten)]
    pub request: RequestArgs,

    /// Only the rule with this name or identity [default: all rules that apply]
    #[arg(long, value_name = "NAME")]
    pub rule: Option<String>,

    /// Where the service's --admin is: unix:PATH, https://HOST:PORT, or http://HOST:PORT on this machine
    #[arg(long, env = "TOLLGATE_AT", value_name = "PLACE")]
    pub at: String,

    /// File with the operator's token, as TOKEN or as NAME:TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Authority of the service's certificate, as PEM; https:// needs it
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// Certificate of the operator, as PEM
    #[arg(long, requires = "key", value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// Key of that certificate
    #[arg(long, requires = "cert", value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Print the answer of the service, which is JSON, instead of a table
    ///
    /// New fields may be added; these fields keep their names and meaning. Durations are in nanoseconds.
    #[arg(long)]
    pub json: bool,
}
