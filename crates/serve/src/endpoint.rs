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
use crate::connections::{Bounds, Listening, Protocol, ServerContext};
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
pub struct Endpoint {
    /// Its name in the log.
    pub name: &'static str,
    /// Where it listens.
    pub place: Place,
    /// What it speaks. [`Protocol::Pages`] has a thread of its own.
    pub protocol: Protocol,
    /// Its certificates.
    pub tls: Option<Arc<Tls>>,
    /// Its own bounds. Those of the flags are for endpoints that decide.
    pub bounds: Option<Bounds>,
    /// Whether clients ask here for decisions.
    pub decides: bool,
    /// Returns how the built-in example is asked at this address.
    pub example: Option<fn(&Listener) -> String>,
    /// What serves its clients.
    pub service: Box<dyn EndpointService>,
}

/// What serves the clients of an endpoint. A function that starts it is enough.
pub trait EndpointService: Send {
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
}

impl<F> EndpointService for F
where
    F: FnOnce(Listening, &Backend) -> Result<Option<ReadAgain>, Error> + Send,
{
    fn start(self: Box<Self>, listening: Listening, backend: &Backend) -> Result<Option<ReadAgain>, Error> {
        self(listening, backend)
    }
}

impl Endpoint {
    /// Creates an endpoint without TLS that does not decide.
    pub fn new(
        name: &'static str,
        place: Place,
        protocol: Protocol,
        service: impl EndpointService + 'static,
    ) -> Self {
        let service = Box::new(service);
        Self { name, place, protocol, tls: None, bounds: None, decides: false, example: None, service }
    }

    /// Serves the clients of this listener. See [`EndpointService::start`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(
        self,
        listener: Listener,
        context: &ServerContext,
        backend: &Backend,
    ) -> Result<Option<ReadAgain>, Error> {
        let Self { protocol, tls, bounds, service, .. } = self;
        let context = ServerContext { bounds: bounds.unwrap_or(context.bounds), ..context.clone() };
        service.start(Listening { listener, tls, protocol, context }, backend)
    }
}

/// What endpoints use of the service.
#[derive(Clone, Debug)]
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
