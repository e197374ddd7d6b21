//! Where processes share limits: a model of a server, or a server.

use tollgate::ManualClock;
use tollgate_redis::{AtomicLimiter, Blocking, Client, InProcess, Limit};
use tollgate_testing::redis::Server;

use crate::{client, strict};

/// A model of a server, or a server and a client of it.
pub(crate) enum Host {
    Model(Blocking<InProcess>),
    Real(Server, Blocking<Client>),
}

macro_rules! limiter {
    ($client:expr, $name:expr, $limits:expr) => {{
        let limits: &[Limit] = $limits;
        strict($client.limiter($name, limits[0]), &limits[1..]).atomic().unwrap()
    }};
}

impl Host {
    /// Returns the limiter of a process with a client of its own.
    pub(crate) fn process(&self, limits: &[Limit]) -> Blocking<AtomicLimiter> {
        match self {
            Self::Model(model) => limiter!(model, "api", limits),
            Self::Real(server, _) => limiter!(client(server).blocking(), "api", limits),
        }
    }

    /// Returns a limiter with a name.
    pub(crate) fn named(&self, name: &str, limits: &[Limit]) -> Blocking<AtomicLimiter> {
        match self {
            Self::Model(model) => limiter!(model, name, limits),
            Self::Real(_, client) => limiter!(client, name, limits),
        }
    }
}

/// Runs a test on a model of a server, and on a server if there is one.
pub(crate) fn on_each(test: impl Fn(&Host)) {
    test(&Host::Model(InProcess::new(ManualClock::default()).blocking()));
    if let Some(server) = Server::start() {
        let client = client(&server).blocking();
        test(&Host::Real(server, client));
    }
}
