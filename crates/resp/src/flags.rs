//! The flags for Redis clients.

use std::path::PathBuf;

use clap::Args;
use tollgate::Capacity;
use tollgate_serve::flags::values::{Address, some_count, truth};

/// Where Redis clients ask, and what they may do.
#[derive(Args, Debug)]
#[command(next_help_heading = "Redis clients")]
pub struct ServeResp {
    /// Address for Redis clients, such as 6379, or off
    ///
    /// Programs in every language can use a limiter by it: redis-cli -p 6379 CL.THROTTLE alice 4 100 60. The commands are
    /// CL.THROTTLE and GCRA, with a limit in each command, and TOLLGATE.CHECK, PEEK, HOLD and COMMIT for the
    /// rules. On an address that other machines reach, set --resp-users, or --client-ca with TLS.
    ///
    /// A connection takes at most 80 KiB if its client does not read, and 160 KiB with TLS: the 10,000 of --max-connections take at most
    /// 800 MB, and 1.6 GB with TLS. All of them together take at most 256 MiB more for long commands, long transactions and their answers.
    #[arg(long, default_value = "off", value_name = "ADDRESS")]
    pub resp: Address,

    /// No TLS for Redis clients, although --tls-cert is set
    #[arg(long, value_parser = truth, requires = "tls_cert")]
    pub resp_plain: bool,

    /// Users and passwords of Redis clients: lines such as user shop on >secret +@all ~*; read again when it changes
    ///
    /// The lines have the form of Redis's own files. +cl.throttle permits one command, ~shop one domain of the rules, #HASH is a password
    /// by its SHA-256, and nopass needs none. [default: everyone may do everything]
    #[arg(long, value_name = "FILE")]
    pub resp_users: Option<PathBuf>,

    /// Different limits in commands of Redis clients: combinations of burst, count and period
    ///
    /// A limit is idle when all of its keys have their full burst again. Beyond this number, a new limit replaces the idle one that was
    /// charged least recently, and is refused if none is idle. With --resp-users, each user has an equal share of the number. The memory of
    /// a limit is freed a minute after it became idle. All together take at most this number times --resp-quota-memory, 256 MiB by default.
    #[arg(long, default_value = "256", value_parser = some_count, value_name = "N")]
    pub resp_quotas: usize,

    /// Memory for the keys of each such limit; 1MiB is enough for 87,000 keys that have used some of their burst
    ///
    /// With a burst of more than 33,554,432, such as one of bytes, it is enough for 13,000 keys. A limit of few keys takes little memory:
    /// up to 4 KiB for each, until it has all of it.
    ///
    /// With --state FILE, the usage of these limits is in FILE.resp, which takes at most 3.5 times --resp-quotas times this memory, 900 MiB by
    /// default, and twice that while it is written. Meanwhile, the copy of one limit takes 12 times this memory.
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    pub resp_quota_memory: Capacity,
}
