//! The client of async code.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::cluster::Nodes;
use super::connection::{Evicting, ServerConnection};
use super::settings::Builder;
use crate::base::sync::Ordering;
use crate::edge::redis::protocol::script;
use crate::edge::redis::protocol::{Call, Error, ErrorKind, Limit, Reply, Transport};

/// A client of one Redis or Valkey server or of a Cluster, for async code by tokio.
///
/// Copies share one connection (in a Cluster, one to each node), which is made when it is first needed, and made anew whenever it is
/// lost. So a client, and limiters, can be made while the server is down.
///
/// Addresses are `redis://user:password@host:6379/0` (all but the host can be left out) or `unix:///path/to/socket`. For
/// `rediss://`, enable TLS in the client library: add `redis = { version = "1.8", features = ["tokio-rustls-comp"] }` to your own
/// dependencies.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::redis::{Client, Limit};
///
/// let client = Client::open("redis://127.0.0.1:6379")?; // nothing is sent yet
/// let builder = client.limiter("api", Limit::gcra(Quota::per_second(100)));
/// # let _ = builder;
/// # Ok::<(), tollgate::redis::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    link: Topology,
    /// How many of its servers evict keys.
    evicting: Evicting,
}

#[derive(Clone)]
enum Topology {
    One(Arc<ServerConnection>),
    Cluster(Arc<Nodes>),
}

impl Client {
    /// A client of one server.
    ///
    /// # Errors
    /// If the address is none. The error does not repeat it, for there may be a password in it.
    pub fn open(url: &str) -> Result<Self, Error> {
        let evicting = Evicting::default();
        Ok(Self { link: Topology::One(ServerConnection::open(url, &evicting)?), evicting })
    }

    /// A client of a Cluster, of which these are some of the nodes.
    ///
    /// # Errors
    /// If one of the addresses is none, or there is none.
    pub fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let evicting = Evicting::default();
        Ok(Self { link: Topology::Cluster(Nodes::open(urls, &evicting)?), evicting })
    }

    /// A limiter of this name. All that have the same name, prefix and limits, in whatever process, share their states.
    pub fn limiter(&self, name: &str, limit: Limit) -> Builder<Self> {
        Builder::new(self.clone(), name, limit)
    }
}

/// Without the address.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("cluster", &matches!(self.link, Topology::Cluster(_)))
            .finish_non_exhaustive()
    }
}

impl Transport for Client {
    fn in_parts(&self) -> bool {
        matches!(self.link, Topology::Cluster(_))
    }

    fn evicts(&self) -> bool {
        // Ordering: Relaxed. A figure that is shown.
        self.evicting.load(Ordering::Relaxed) > 0
    }

    async fn call(&self, call: &Call) -> Result<Reply, Error> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(Error::new(ErrorKind::Unreachable, "this is no task of a tokio runtime"));
        };
        let answer = match &self.link {
            Topology::One(line) => line.call(&runtime, call, false).await,
            Topology::Cluster(nodes) => nodes.call(&runtime, call).await,
        };
        script::reply(call, &answer.map_err(|error| script::failure(&error))?)
    }

    fn part(&self, call: &Call) -> usize {
        match &self.link {
            Topology::One(_) => 0,
            Topology::Cluster(nodes) => nodes.part(&call.tag),
        }
    }
}
