//! The client for async code.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::cluster::Nodes;
use super::connection::{Evicting, ServerConnection};
use super::settings::Builder;
use crate::base::sync::Ordering;
use crate::edge::redis::protocol::script;
use crate::edge::redis::protocol::{Call, Error, ErrorKind, Limit, Reply, Transport};

/// A client of one Redis or Valkey server, or of a Cluster, for async code on tokio.
///
/// All clones share one connection (in a Cluster, one connection to each node). The client connects on the first call,
/// and connects again when the connection is lost. A client and its limiters can be built while the server is down.
///
/// An address is `redis://user:password@host:6379/0` (every part except the host is optional) or
/// `unix:///path/to/socket`. For `rediss://`, enable TLS in the client library, and one provider of cryptography. Add
/// both to your own dependencies:
///
/// ```toml
/// redis = { version = "1.8", default-features = false, features = ["tokio-rustls-comp"] }
/// rustls = { version = "0.23", default-features = false, features = ["ring", "std", "tls12"] }
/// ```
///
/// If the features of rustls enable two providers, call `install_default` of one of them when the program starts. The
/// client trusts the authorities of the system, or those in the file that the environment variable `SSL_CERT_FILE`
/// names. With [`from_redis`](Self::from_redis), it trusts another authority, or sends a client certificate.
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
    /// The number of the client's servers that evict keys.
    evicting: Evicting,
}

#[derive(Clone)]
enum Topology {
    One(Arc<ServerConnection>),
    Cluster(Arc<Nodes>),
}

impl Client {
    /// Creates a client of one server.
    ///
    /// # Errors
    /// Returns an error if the address is invalid. The error does not contain the address, because an address can
    /// contain a password.
    pub fn open(url: &str) -> Result<Self, Error> {
        let evicting = Evicting::default();
        Ok(Self { link: Topology::One(ServerConnection::open(url, &evicting)?), evicting })
    }

    /// Creates a client of a Cluster. `urls` are the addresses of some of its nodes.
    ///
    /// # Errors
    /// Returns an error if an address is invalid, or if `urls` is empty.
    pub fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let evicting = Evicting::default();
        let seeds = urls.into_iter().map(|url| ServerConnection::open(url, &evicting));
        Ok(Self { link: Topology::Cluster(Nodes::open(seeds)?), evicting })
    }

    /// Creates a client of one server from a client of the [`redis`](::redis) crate, and takes its address, user,
    /// password and certificates. The new client makes its own connection.
    ///
    /// Use it for a server that asks for a client certificate. The features that [`Client`] names enable
    /// `redis::Client::build_with_tls`:
    ///
    /// ```text
    /// let client_tls = Some(ClientTlsConfig { client_cert, client_key }); // both in PEM
    /// let certificates = TlsCertificates { client_tls, root_cert: Some(authority) };
    /// let client = Client::from_redis(&redis::Client::build_with_tls("rediss://localhost", certificates)?)?;
    /// ```
    ///
    /// # Errors
    /// Returns an error if the client library does not accept the address.
    ///
    /// # Examples
    /// ```
    /// let theirs = redis::Client::open("redis://127.0.0.1:6379").unwrap();
    /// let client = tollgate::redis::Client::from_redis(&theirs)?; // nothing is sent yet
    /// # let _ = client;
    /// # Ok::<(), tollgate::redis::Error>(())
    /// ```
    pub fn from_redis(client: &::redis::Client) -> Result<Self, Error> {
        let evicting = Evicting::default();
        Ok(Self { link: Topology::One(ServerConnection::of(client, &evicting)?), evicting })
    }

    /// Creates a client of a Cluster from clients of the [`redis`](::redis) crate for some of its nodes, as
    /// [`from_redis`](Self::from_redis) does. The client calls the other nodes with the same user, password and
    /// certificates.
    ///
    /// # Errors
    /// Returns an error if an address is a socket's path, or if `clients` is empty.
    pub fn cluster_from_redis<'a>(
        clients: impl IntoIterator<Item = &'a ::redis::Client>,
    ) -> Result<Self, Error> {
        let evicting = Evicting::default();
        let seeds = clients.into_iter().map(|client| ServerConnection::of(client, &evicting));
        Ok(Self { link: Topology::Cluster(Nodes::open(seeds)?), evicting })
    }

    /// Returns a builder for a limiter with this name. All limiters with the same name, prefix and limits share their
    /// state, in every process.
    pub fn limiter(&self, name: &str, limit: Limit) -> Builder<Self> {
        Builder::new(self.clone(), name, limit)
    }
}

/// The output does not contain the address.
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
        // Ordering: Relaxed. The value is only reported, and publishes no other memory.
        self.evicting.load(Ordering::Relaxed) > 0
    }

    async fn call(&self, call: &Call) -> Result<Reply, Error> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(Error::new(
                ErrorKind::Unreachable,
                "not in a tokio runtime; call the limiter from a tokio task, or use the blocking client",
            ));
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
