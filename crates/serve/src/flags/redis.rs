//! The flags for users, passwords and keys on the Redis server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::duration;

/// How the service connects to the Redis server, and the names of its keys.
#[derive(Args, Debug)]
#[command(next_help_heading = "Rules on a Redis server")]
pub struct ServeRedis {
    /// File with the password of the Redis server: one line, or the user in the first line and the password in the second
    ///
    /// The file is read again each second. If its content changes, open connections authenticate again, without a pause.
    /// If the server refuses the new password, they stay in use. Example: --redis-password-file /run/secrets/redis
    #[arg(long, requires = "redis", value_name = "FILE")]
    pub redis_password_file: Option<PathBuf>,

    /// User of a password file of one line [default: the user default]
    #[arg(long, requires = "redis_password_file", value_name = "USER")]
    pub redis_user: Option<String>,

    /// Age at which a connection to the Redis server is replaced, up to 10 % less, for servers that close connections at an
    /// age; 0 is never. Example for Amazon ElastiCache with IAM: --redis-connection-age 11h
    #[arg(long, default_value = "0", value_parser = duration::parse, value_name = "TIME")]
    pub redis_connection_age: Duration,

    /// Prefix of the keys on the Redis server; only processes with the same prefix share counters. Example: --redis-prefix
    /// shop [default: tollgate]
    #[arg(long, requires = "redis", value_name = "PREFIX")]
    pub redis_prefix: Option<String>,
}
