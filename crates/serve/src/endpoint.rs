//! What an endpoint is: a protocol at an address. With the names of this module, a package or a program adds an endpoint of its own.
//!
//! | to | names |
//! |---|---|
//! | add flags and endpoints | [`EndpointFlags`], [`ShortHelp`], [`Endpoint`], [`Place`], [`ServeArgs`], [`Address`], [`Tls`] |
//! | start, and answer by the rules | [`EndpointService`], [`Backend`], [`Listening`], [`Listener`], [`Protocol`] |
//! | serve a connection, and end it with the server | [`Io`], [`ServerPhase`], [`is_closing`], [`patience`], [`linger`], [`HANDSHAKE`] |
//! | keep something for the next process | [`StateFile`], [`EndpointState`] |
//! | read files again | [`ReadAgain`], [`ReadTwice`], [`is_same`] |
//! | count | [`Stats`], [`Count`]; requests by [`Answerer::method`] |
//!
//! The module [`log`](crate::log) writes log lines, and [`answer`](crate::answer) has the requests and answers of the rules.
//!
//! # An endpoint of your own
//! Flags that implement [`EndpointFlags`] return their [`Endpoint`]s, and a program passes their type to [`Program`](crate::Program) or to
//! [`Command`](crate::Command). The package `tollgate-resp` is such an endpoint. The example `lines` is a short one:
//!
#![doc = concat!("```no_run\n", include_str!("../examples/lines.rs"), "```")]
//!
//! # An endpoint of this package
//! It has a folder of its own, with its flags and its [`Endpoint`]. It needs a few lines elsewhere: its module in `lib.rs`, its flags in
//! `flags/mod.rs` (in `ServeArgs` and in `ServeArgs::split`), its line in [`ENDPOINTS`](super::endpoints::ENDPOINTS), and its line in the short help.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tollgate_report::error::Error;
use tollgate_rules::Rules;

use crate::answer::Answerer;
pub use crate::connections::{
    Bounds, HANDSHAKE, Listening, Protocol, ServerContext, ServerPhase, is_closing, linger, patience,
};
pub use crate::flags::{Address, NoFlags, ServeArgs};
use crate::health::Health;
pub use crate::listen::{Io, Listener};
pub use crate::process::ReadAgain;
pub use crate::read_twice::ReadTwice;
pub use crate::secret::is_same;
pub use crate::state::{EndpointState, StateFile};
pub use crate::stats::{Count, Stats};
pub use crate::tls::Tls;
use crate::traces::Traces;

/// The flags of endpoints that a program adds to the service, and the endpoints that they ask for.
///
/// The flags are those of [`clap::Args`]. `tollgate serve` has them after those of the metrics, and each has a variable, as all flags:
/// `TOLLGATE_LINES` for `--lines`. The name of a field is the name of its flag, because variables follow from it. To add the endpoints of
/// several packages, flatten their flags in one type, and return the endpoints of all.
pub trait EndpointFlags: fmt::Debug {
    /// Returns the endpoints that the flags ask for. They do not listen yet, because `--check` calls this, too. `tls` has the certificates
    /// of `--tls-cert`, and `stats` registers counts.
    ///
    /// # Errors
    /// If a flag or a file cannot be used.
    fn endpoints(
        &self,
        args: &ServeArgs,
        tls: Option<&Arc<Tls>>,
        stats: &Arc<Stats>,
    ) -> Result<Vec<Endpoint>, Error>;

    /// Returns the flags of addresses where clients ask for decisions, such as `--resp`. A service without any such address does not start,
    /// and names these flags.
    fn deciding(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the lines of these flags in the short help, `-h`.
    fn short_help() -> ShortHelp
    where
        Self: Sized,
    {
        ShortHelp::default()
    }
}

impl EndpointFlags for NoFlags {
    fn endpoints(&self, _: &ServeArgs, _: Option<&Arc<Tls>>, _: &Arc<Stats>) -> Result<Vec<Endpoint>, Error> {
        Ok(Vec::new())
    }
}

/// Lines of the short help. Each begins with two spaces and ends with a line feed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ShortHelp {
    /// Addresses, under the title "Endpoints".
    pub endpoints: &'static str,
    /// Users and certificates, under the title "Security".
    pub security: &'static str,
}

/// An endpoint that the flags ask for. It does not listen yet.
pub struct Endpoint {
    /// Its name in the log, which is also that of the flag with its address.
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
    /// Does what comes before the rules are loaded and before the first port opens, such as [`StateFile::restore`]. It may take a second,
    /// and a gateway that connects is answered. Without `--state`, there is no file.
    ///
    /// # Errors
    /// If the service must not start.
    fn prepare(&mut self, _: Option<&StateFile>) -> Result<(), Error> {
        Ok(())
    }

    /// Returns what the endpoint keeps for the next process.
    fn state(&self) -> Option<Arc<dyn EndpointState>> {
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

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("name", &self.name)
            .field("place", &self.place)
            .finish_non_exhaustive()
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
    pub(crate) fn start(
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
    pub(crate) health: Health,
    /// Sends spans.
    pub(crate) traces: Traces,
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
    pub(crate) async fn listen(&self, name: &str) -> Result<Listener, Error> {
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
