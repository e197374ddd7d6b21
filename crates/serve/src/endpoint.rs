//! What an endpoint is: a protocol at an address.
//!
//! A new endpoint has a folder of its own, with its flags and its [`Endpoint`]. It needs four lines elsewhere: its module in `lib.rs`, its
//! flags in `flags/mod.rs`, its line in [`ENDPOINTS`](super::endpoints::ENDPOINTS), and its line in the short help.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tollgate_report::error::Error;
use tollgate_rules::Rules;

use crate::answer::Answerer;
use crate::connections::{Bounds, Listening, Protocol};
use crate::flags::{Address, ServeArgs};
use crate::health::Health;
use crate::listen::Listener;
use crate::process::ReadAgain;
use crate::resp::quotas::Quotas;
use crate::state::StateFile;
use crate::stats::Stats;
use crate::tls::Tls;
use crate::traces::Traces;

/// An endpoint that the flags ask for. It does not listen yet.
pub trait Endpoint: Send {
    /// Returns its name in the log.
    fn name(&self) -> &'static str;

    /// Returns where it listens.
    fn place(&self) -> Place;

    /// Returns what it speaks. [`Protocol::Pages`] has a thread of its own.
    fn protocol(&self) -> Protocol;

    /// Returns its certificates.
    fn tls(&self) -> Option<Arc<Tls>> {
        None
    }

    /// Returns its bounds. Those of the flags are for endpoints that decide.
    fn bounds(&self, of_flags: Bounds) -> Bounds {
        of_flags
    }

    /// Whether clients ask here for decisions.
    fn decides(&self) -> bool {
        false
    }

    /// Does what comes before the rules are loaded and before the first port opens. It may take a second, and a gateway that connects is
    /// answered.
    ///
    /// # Errors
    /// If the service must not start.
    fn prepare(&mut self, _: Option<&StateFile>) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the limits that clients send here, which the state keeps.
    fn quotas(&self) -> Option<Arc<Quotas>> {
        None
    }

    /// Serves clients in a task of this runtime. Returns what reads its files again, if it has any.
    ///
    /// # Errors
    /// If it cannot be started.
    fn start(self: Box<Self>, listening: Listening, backend: &Backend) -> Result<Option<ReadAgain>, Error>;

    /// Returns how the built-in example is asked at this address.
    fn example(&self, _: &Listener) -> Option<String> {
        None
    }
}

/// What endpoints use of the service.
#[derive(Clone)]
pub struct Backend {
    /// The rules.
    pub rules: Arc<Rules>,
    /// Answers requests by the rules.
    pub answerer: Arc<Answerer>,
    /// The counts.
    pub stats: Arc<Stats>,
    /// Whether the service wants requests.
    pub health: Health,
    /// Sends spans.
    pub traces: Traces,
}

/// Where an endpoint listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A TCP port.
    Port(SocketAddr),
    /// A Unix socket with these permissions, and its flag.
    Socket(PathBuf, u32, &'static str),
}

impl Place {
    /// Returns the TCP port.
    pub const fn addr(&self) -> Option<SocketAddr> {
        if let Self::Port(addr) = self { Some(*addr) } else { None }
    }

    /// Listens.
    ///
    /// # Errors
    /// Returns an error that names the endpoint and the remedy.
    pub async fn listen(&self, name: &str) -> Result<Listener, Error> {
        match self {
            Self::Port(addr) => Listener::tcp(name, *addr).await,
            Self::Socket(path, mode, flag) => Listener::unix(path, *mode, flag).await,
        }
    }
}

/// Returns where an endpoint listens without its flag. The example is for this machine only.
pub fn default_address(args: &ServeArgs, port: u16) -> Address {
    let host: [u8; 4] = if args.is_example() { [127, 0, 0, 1] } else { [0; 4] };
    Address::At(SocketAddr::from((host, port)))
}
