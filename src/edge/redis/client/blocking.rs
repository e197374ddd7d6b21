//! The client of threads: the client of async code, and a thread with a runtime for it.

use super::connected::Client;
use super::runtime::OnThread;
use super::settings::Builder;
use crate::edge::redis::protocol::{Error, Limit};

/// A client of one Redis or Valkey server or of a Cluster, for threads that may wait. For async code there is [`Client`](crate::edge::redis::Client).
///
/// Copies share one connection (in a Cluster, one to each node) and one thread that carries their calls, all at once; it starts with the
/// first call and ends when the last copy, and the last limiter of one, is dropped. So a client, and limiters, can be made while the server is down. Addresses, and
/// what `rediss://` needs, are as of [`Client`](crate::edge::redis::Client).
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::redis::{BlockingClient, Limit};
///
/// let client = BlockingClient::open("redis://127.0.0.1:6379")?; // nothing is sent yet
/// let builder = client.limiter("api", Limit::gcra(Quota::per_second(100)));
/// # let _ = builder;
/// # Ok::<(), tollgate::redis::Error>(())
/// ```
pub type BlockingClient = OnThread<Client>;

impl BlockingClient {
    /// A client of one server.
    ///
    /// # Errors
    /// If the address is none. The error does not repeat it, for there may be a password in it.
    pub fn open(url: &str) -> Result<Self, Error> {
        Client::open(url).map(OnThread::new)
    }

    /// A client of a Cluster, of which these are some of the nodes.
    ///
    /// # Errors
    /// If one of the addresses is none, or there is none.
    pub fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        Client::cluster(urls).map(OnThread::new)
    }

    /// A limiter of this name. All that have the same name, prefix and limits, in whatever process, share their states.
    pub fn limiter(&self, name: &str, limit: Limit) -> Builder<Self> {
        Builder::new(self.clone(), name, limit)
    }
}
