//! The command line of the commands for rules on a server.

use std::path::PathBuf;

use clap::Args;

/// The examples of `push`, `pull` and `diff`.
pub const EXAMPLES: &str = "\
Examples:
  tollgate rules diff limits.yaml --to redis://127.0.0.1:6379
  tollgate rules push limits.yaml --to redis://127.0.0.1:6379 --name api
  TOLLGATE_REDIS_URL=redis://deploy:secret@redis.example:6379 \\
    tollgate rules push limits.yaml
  tollgate rules pull --from redis://127.0.0.1:6379 > limits.yaml

Roll back to version 7:
  tollgate rules pull --version 7 > old.yaml
  tollgate rules push old.yaml

Exit codes: 0 done, 1 the rules or the server cannot be used, 2 the command line
is wrong.";

/// `tollgate rules push`.
#[derive(Args, Debug)]
pub struct PushArgs {
    /// File of rules, whose name ends in .yaml, .yml, .json or .toml; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The server.
    #[command(flatten)]
    pub to: ToArgs,

    /// Version that you compared with; if the server has another version, nothing is written [default: the version
    /// that the server has when the command starts; 0: no rules]
    #[arg(long, value_name = "VERSION")]
    pub seen: Option<u64>,

    /// Write over any version, also over one that is damaged; the file is checked all the same
    #[arg(long, conflicts_with = "seen")]
    pub force: bool,

    /// Write although a domain loses all its rules
    ///
    /// A running process in which the domain is in use refuses the new version, unless it was built to allow removals. A
    /// new process starts with it, and then limits no request of the domain.
    #[arg(long)]
    pub allow_removals: bool,

    /// Who pushes, for people who read it later [default: the user's name]
    #[arg(long, value_name = "WHO")]
    pub by: Option<String>,
}

/// `tollgate rules diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// File of rules, whose name ends in .yaml, .yml, .json or .toml; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The server.
    #[command(flatten)]
    pub to: ToArgs,
}

/// `tollgate rules pull`.
#[derive(Args, Debug)]
pub struct PullArgs {
    /// Address of the Redis or Valkey server [default: the variable `TOLLGATE_REDIS_URL`, which hides a password from
    /// other users of this machine]
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,

    /// Name of the rules on the server
    #[arg(long, default_value = "default")]
    pub name: String,

    /// Version to print: the present one, or one of the last five before it [default: the present one]
    #[arg(long, value_name = "VERSION")]
    pub version: Option<u64>,
}

/// Rules on a server.
#[derive(Args, Debug)]
pub struct ToArgs {
    /// Address of the Redis or Valkey server [default: the variable `TOLLGATE_REDIS_URL`, which hides a password from
    /// other users of this machine]
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,

    /// Name of the rules on the server
    #[arg(long, default_value = "default")]
    pub name: String,
}
