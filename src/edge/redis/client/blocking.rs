//! The client for threads: an async client, and a thread that runs a runtime for it.

use super::connected::Client;
use super::runtime::OnThread;
use super::settings::{Builder, InProgressBuilder};
use super::sharded::{ShardError, Shards};
use crate::algorithm::Limit;
use crate::edge::redis::protocol::Error;

/// A client of one Redis or Valkey server, or of a Cluster, for threads that may block. For async code, use
/// [`Client`](crate::edge::redis::Client).
///
/// All clones share one connection (in a Cluster, one connection to each node). They also share one thread that carries
/// their calls concurrently. The thread starts with the first call. It ends after the last clone of the client and the
/// last of its limiters are dropped. A client and its limiters can be built while the server is down. Addresses, and
/// the requirements of `rediss://`, are the same as for [`Client`](crate::edge::redis::Client).
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

/// The client shares its settings, and no connection, with the client for async code.
///
/// # Examples
/// ```
/// use tollgate::redis::{BlockingClient, Client, CredentialsFile};
///
/// let file = CredentialsFile::new("/run/secrets/redis");
/// let client = BlockingClient::from(Client::open("redis://127.0.0.1:6379")?.credentials(file));
/// # let _ = client;
/// # Ok::<(), tollgate::redis::Error>(())
/// ```
impl From<Client> for BlockingClient {
    fn from(client: Client) -> Self {
        Self::new(client)
    }
}

impl BlockingClient {
    /// Creates a client of one server.
    ///
    /// # Errors
    /// Returns an error if the address is invalid. The error does not contain the address, because an address can
    /// contain a password.
    pub fn open(url: &str) -> Result<Self, Error> {
        Client::open(url).map(OnThread::new)
    }

    /// Creates a client of a Cluster. `urls` are the addresses of some of its nodes.
    ///
    /// # Errors
    /// Returns an error if an address is invalid, or if `urls` is empty.
    pub fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        Client::cluster(urls).map(OnThread::new)
    }

    /// Creates a client of one server from a client of the [`redis`](https://docs.rs/redis) crate, as
    /// [`Client::from_redis`](crate::edge::redis::Client::from_redis) does.
    ///
    /// # Errors
    /// The errors of [`Client::from_redis`](crate::edge::redis::Client::from_redis).
    pub fn from_redis(client: &::redis::Client) -> Result<Self, Error> {
        Client::from_redis(client).map(OnThread::new)
    }

    /// Creates a client of a Cluster from clients of the [`redis`](https://docs.rs/redis) crate, as
    /// [`Client::cluster_from_redis`](crate::edge::redis::Client::cluster_from_redis) does.
    ///
    /// # Errors
    /// The errors of [`Client::cluster_from_redis`](crate::edge::redis::Client::cluster_from_redis).
    pub fn cluster_from_redis<'a>(
        clients: impl IntoIterator<Item = &'a ::redis::Client>,
    ) -> Result<Self, Error> {
        Client::cluster_from_redis(clients).map(OnThread::new)
    }

    /// Creates a client that spreads keys over several independent servers or Clusters. See [`Client::sharded`].
    ///
    /// # Errors
    /// The errors of [`Client::sharded`].
    pub fn sharded(servers: impl Into<Shards<Client>>) -> Result<Self, ShardError> {
        Client::sharded(servers).map(OnThread::new)
    }

    /// Returns a builder for a limiter with this name. All limiters with the same name, prefix and limits share their
    /// state, in every process.
    pub fn limiter(&self, name: &str, limit: impl Into<Limit>) -> Builder<Self> {
        Builder::new(self.clone(), self.inner.routes(), name, &[limit.into()])
    }

    /// Returns a builder for a limit of `limit` units in progress for each key. All limits with the same name and prefix
    /// share their state, in every process.
    pub fn in_progress(&self, name: &str, limit: u64) -> InProgressBuilder<Self> {
        InProgressBuilder::new(self.clone(), self.inner.routes(), name, limit)
    }
}
