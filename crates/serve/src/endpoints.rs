//! The list of all endpoints, and those that the flags ask for.

use std::sync::Arc;

use tollgate_report::error::Error;

use crate::endpoint::{Endpoint, EndpointFlags};
use crate::flags::ServeArgs;
use crate::stats::Stats;
use crate::tls::Tls;
use crate::variables::Translation;
use crate::{admin, debug, grpc, http, metrics, state};

/// The endpoints of a protocol that the flags ask for. The certificates are those of `--tls-cert`.
type Asked = fn(&ServeArgs, Option<&Arc<Tls>>) -> Result<Vec<Endpoint>, Error>;

/// All protocols of this package, in the order of the line at the start. Those that a program adds follow.
pub const ENDPOINTS: &[Asked] =
    &[grpc::endpoints, http::endpoints, debug::endpoints, metrics::endpoints, admin::endpoints];

/// Returns the endpoints that the flags ask for, and those that the flags of the program add.
///
/// # Errors
/// If no client could ask, if two endpoints have one address or one file, or if the example would be open to others.
pub fn asked(
    args: &ServeArgs,
    added: &dyn EndpointFlags,
    tls: Option<&Arc<Tls>>,
    taken: &Translation,
    stats: &Arc<Stats>,
) -> Result<Vec<Endpoint>, Error> {
    let mut all: Vec<Endpoint> = Vec::new();
    for asked in ENDPOINTS {
        all.extend(asked(args, tls)?);
    }
    all.extend(added.endpoints(args, tls, stats)?);
    if !all.iter().any(|endpoint| endpoint.decides) {
        let mut flags = [&["--grpc", "--http"][..], added.deciding()].concat();
        let last = flags.pop().unwrap_or_default();
        return Err(Error::usage(format!("{} and {last} are off, so no client could ask", flags.join(", "))));
    }
    let ports =
        all.iter().filter_map(|endpoint| Some((format!("--{}", endpoint.name), endpoint.place.addr()?)));
    let ports = Vec::from_iter(ports);
    for (at, (flag, addr)) in ports.iter().enumerate() {
        if args.is_example() && !addr.ip().is_loopback() {
            return Err(Error::usage(format!(
                "without rules, the built-in example listens on loopback only, not on {addr} (from {}); name a file or \
                 folder of rules",
                taken.source(flag)
            )));
        }
        if let Some((other, _)) = ports[..at].iter().find(|(_, other)| other == addr && addr.port() != 0) {
            let (other, flag) = (taken.source(other), taken.source(flag));
            return Err(Error::usage(format!("{other} and {flag} have the same address, {addr}")));
        }
    }
    let states: Vec<_> =
        all.iter().filter_map(|endpoint| Some((endpoint.name, endpoint.service.state()?))).collect();
    state::check_suffixes(states.iter().map(|(name, state)| (*name, state)))?;
    Ok(all)
}
