//! The flags for Redis clients.

use std::path::PathBuf;

use clap::Args;
use tollgate::Capacity;

use super::values::{Address, some_count, truth};

/// Where Redis clients ask, and what they may do.
#[derive(Args, Debug)]
#[command(next_help_heading = "Redis clients")]
pub struct ServeResp {
    /// Address for Redis clients, such as 6379 (on loopback) or 0.0.0.0:6379, or off
    ///
    /// Programs in every language can use a limiter by it: redis-cli -p 6379 CL.THROTTLE alice 4 100 60. The commands are
    /// CL.THROTTLE and GCRA, with a limit in each command, and TOLLGATE.CHECK, PEEK, HOLD and COMMIT for the rules. A port alone is on
    /// loopback.
    #[arg(long, env = "TOLLGATE_RESP", default_value = "off", value_parser = loopback, value_name = "ADDRESS")]
    pub resp: Address,

    /// No TLS for Redis clients, although --tls-cert is set
    #[arg(long, env = "TOLLGATE_RESP_PLAIN", value_parser = truth, requires = "tls_cert")]
    pub resp_plain: bool,

    /// Users and passwords of Redis clients: lines such as user shop on >secret +@all ~*; read again when it changes
    ///
    /// The lines have the form of Redis's own files. +cl.throttle permits one command, ~shop one domain of the rules, #HASH is a password
    /// by its SHA-256, and nopass needs none. [default: everyone may do everything]
    #[arg(long, env = "TOLLGATE_RESP_USERS", value_name = "FILE")]
    pub resp_users: Option<PathBuf>,

    /// Different limits in commands of Redis clients: combinations of burst, count and period
    ///
    /// A new one takes the place of the one that was charged least recently, if all keys of that one have their full burst again. While no
    /// other is idle, it is refused. With --resp-users, each user has an equal share of them.
    #[arg(long, env = "TOLLGATE_RESP_QUOTAS", default_value = "256", value_parser = some_count, value_name = "N")]
    pub resp_quotas: usize,

    /// Memory for the keys of each such limit; 1MiB is enough for 87,000 keys that have used some of their burst
    ///
    /// With a burst of more than 33,554,432, such as one of bytes, it is enough for 13,000 keys.
    #[arg(long, env = "TOLLGATE_RESP_QUOTA_MEMORY", default_value = "1MiB", value_name = "SIZE")]
    pub resp_quota_memory: Capacity,
}

/// Parses an address. A port alone is on loopback.
fn loopback(text: &str) -> Result<Address, String> {
    match text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        Ok(port) => Ok(Address::At(([127, 0, 0, 1], port).into())),
        Err(_) => text
            .parse()
            .map_err(|_| format!("{text:?} is no address; expected one such as 6379, 0.0.0.0:6379 or off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_on_loopback() {
        let parsed = |text: &str| loopback(text).map(|address| address.to_string());
        for text in ["6379", ":6379", "127.0.0.1:6379"] {
            assert_eq!(parsed(text), Ok("127.0.0.1:6379".to_owned()), "{text}");
        }
        assert_eq!(parsed("0.0.0.0:6379"), Ok("0.0.0.0:6379".to_owned()));
        assert_eq!(parsed("off"), Ok("off".to_owned()));
        assert!(parsed("66000").is_err() && parsed("").is_err());
    }
}
