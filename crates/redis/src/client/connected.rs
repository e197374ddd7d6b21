//! The client for async code.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use tokio::runtime::Handle;
use tollgate::Limit;
use tollgate::internals::sync::Ordering;
use tollgate_protocol::script::{By, CopyStep, StoredStates};
use tollgate_protocol::{Call, Error, ErrorKind, LinkAges, LinkReport, Reply, Transport, script};

use super::cluster::Nodes;
use super::connection::{ServerConnection, address};
use super::options::ConnectionOptions;
use super::runtime::{Blocking, Routed};
use super::sentinel;
use super::settings::{InProgressOptions, LimiterBuilder};
use super::sharded::{Routes, ShardError, Shards};

/// A client of one Redis or Valkey server, of a Cluster, or of [several](Client::sharded) of them, for async code on
/// tokio.
///
/// All clones share one connection (with several servers, or in a Cluster, one connection to each server or node). The client connects on the first call,
/// and connects again when the connection is lost. A client and its limiters can be built while the server is down.
///
/// An address is `redis://user:password@host:6379/0` (every part except the host is optional),
/// `unix:///path/to/socket`, or `redis-sentinel://user:password@host:26379,host:26379/name/0` for the master that
/// Sentinels name. There, user, password and database are those of the master. `?auth=user:password` at the end sets
/// those of the Sentinels. `rediss-sentinel://` uses TLS for all of them. For `rediss://`, enable TLS in the client library, and one provider of cryptography. Add
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
/// use tollgate_redis::{Client, Limit};
///
/// let client = Client::open("redis://127.0.0.1:6379")?; // nothing is sent yet
/// let builder = client.limiter("api", Limit::gcra(Quota::per_second(100)));
/// # let _ = builder;
/// # Ok::<(), tollgate_redis::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    /// In the order of the routes.
    links: Arc<[Topology]>,
    routes: Arc<Routes>,
}

/// One server, or one Cluster.
#[derive(Clone)]
enum Topology {
    One(Arc<ServerConnection>),
    Cluster(Arc<Nodes>),
}

impl Topology {
    /// How its connections are kept up. All nodes of a Cluster share this.
    fn options(&self) -> &ConnectionOptions {
        match self {
            Self::One(connection) => connection.options(),
            Self::Cluster(nodes) => nodes.options(),
        }
    }
}

impl Client {
    /// Creates a client of one server, or of the master that Sentinels name.
    ///
    /// # Errors
    /// Returns an error if the address is invalid. The error does not contain the address, because an address can
    /// contain a password.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::open_with(url, |url| ::redis::Client::open(url))
    }

    /// Creates a client of one server, or of the master that Sentinels name. `build` creates a client of the
    /// [`redis`](https://docs.rs/redis) crate for each address: the address itself, or that of the master and those of
    /// the Sentinels, as `redis://` or `rediss://`.
    ///
    /// Use it for certificates, as in [`from_redis`](Self::from_redis).
    ///
    /// # Errors
    /// Returns an error if the address is invalid, or if `build` fails. The error does not contain the address.
    ///
    /// # Examples
    /// ```
    /// use tollgate_redis::Client;
    ///
    /// let client = Client::open_with("redis-sentinel://10.0.0.1,10.0.0.2,10.0.0.3/mymaster", |url| {
    ///     redis::Client::open(url) // or `redis::Client::build_with_tls(url, certificates.clone())`
    /// })?;
    /// # let _ = client;
    /// # Ok::<(), tollgate_redis::Error>(())
    /// ```
    pub fn open_with(
        url: &str,
        build: impl Fn(&str) -> ::redis::RedisResult<::redis::Client>,
    ) -> Result<Self, Error> {
        Ok(Self::of(Topology::One(sentinel::open(url, build)?)))
    }

    /// Creates a client of a Cluster. `urls` are the addresses of some of its nodes.
    ///
    /// # Errors
    /// Returns an error if an address is invalid, or if `urls` is empty.
    pub fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let open = |url| ::redis::Client::open(url).map_err(|error| address(&error));
        Self::cluster_from_redis(&urls.into_iter().map(open).collect::<Result<Vec<_>, _>>()?)
    }

    /// Creates a client of one server from a client of the [`redis`](https://docs.rs/redis) crate, and takes its
    /// address, user, password and certificates. The new client makes its own connection.
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
    /// let client = tollgate_redis::Client::from_redis(&theirs)?; // nothing is sent yet
    /// # let _ = client;
    /// # Ok::<(), tollgate_redis::Error>(())
    /// ```
    pub fn from_redis(client: &::redis::Client) -> Result<Self, Error> {
        Ok(Self::of(Topology::One(ServerConnection::of(client, ConnectionOptions::default())?)))
    }

    /// Creates a client of a Cluster from clients of the [`redis`](https://docs.rs/redis) crate for some of its
    /// nodes, as [`from_redis`](Self::from_redis) does. The client calls the other nodes with the same user, password and
    /// certificates.
    ///
    /// # Errors
    /// Returns an error if an address is a socket's path, or if `clients` is empty.
    pub fn cluster_from_redis<'a>(
        clients: impl IntoIterator<Item = &'a ::redis::Client>,
    ) -> Result<Self, Error> {
        let options = ConnectionOptions::default();
        let seeds = clients.into_iter().map(|client| ServerConnection::of(client, options.clone()));
        Ok(Self::of(Topology::Cluster(Nodes::open(seeds)?)))
    }

    /// Creates a client that spreads keys over several independent servers or Clusters. Each key is on one of them, and
    /// the configured set alone decides on which.
    ///
    /// Each server has its own connection, breaker, health and metrics. If a server does not answer,
    /// [`OnFailure`](crate::OnFailure) decides its keys; they do not move to another server. All limits of
    /// one limiter apply to the same key, so they are on the same server, and one step decides them. [The
    /// guide](https://docs.rs/crate/tollgate/latest/source/docs/redis.md#several-servers) describes what happens when the set changes.
    ///
    /// # Errors
    /// Returns an error if the set is empty, or if a server has an invalid name, the name of another server or the
    /// weight 0, or is itself a set.
    ///
    /// # Examples
    /// ```
    /// use tollgate_redis::{Client, Shard};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::sharded([
    ///     Shard::new("one", Client::open("redis://127.0.0.1:6379")?),
    ///     Shard::new("two", Client::open("redis://127.0.0.1:6380")?),
    ///     Shard::new("large", Client::cluster(["redis://127.0.0.1:7000"])?).weight(3),
    /// ])?;
    /// # let _ = client;
    /// # Ok(()) }
    /// ```
    pub fn sharded(servers: impl Into<Shards<Self>>) -> Result<Self, ShardError> {
        let single = |client: Self| match &*client.links {
            [link] if client.routes.names().is_empty() => Some(link.clone()),
            _ => None,
        };
        let (links, routes) = servers.into().resolve(single)?;
        Ok(Self { links, routes })
    }

    /// Returns the same client, for threads that block.
    ///
    /// # Examples
    /// ```
    /// use tollgate::Quota;
    /// use tollgate_redis::{Client, Limit};
    ///
    /// let client = Client::open("redis://127.0.0.1:6379")?.blocking(); // nothing is sent yet
    /// let builder = client.limiter("api", Limit::gcra(Quota::per_second(100)));
    /// # let _ = builder;
    /// # Ok::<(), tollgate_redis::Error>(())
    /// ```
    #[must_use]
    pub fn blocking(&self) -> Blocking<Self> {
        Blocking::new(self.clone())
    }

    /// Takes user and password from a provider, instead of from the address. Each connection uses the provider's first
    /// credentials when it is made. It sends later ones with `AUTH` between its calls, so no call waits or fails because
    /// they change.
    ///
    /// A provider is every [`StreamingCredentialsProvider`](crate::StreamingCredentialsProvider) of the
    /// `redis` crate, for example its `EntraIdCredentialsProvider`, or a [`CredentialsFile`](super::CredentialsFile). It
    /// must give its present credentials at the start of each stream. An empty user name stands for the user `default`.
    ///
    /// - If the server refuses new credentials, the connection stays in use with the earlier ones. `AUTH` is sent again
    ///   each second. An error of the provider changes nothing either. [`refused_credentials`](Self::refused_credentials)
    ///   counts both.
    /// - A new connection uses only the present credentials. If they are refused, or if the provider has none within a
    ///   second, the attempt fails, and [`OnFailure`](crate::OnFailure) decides.
    ///
    /// This applies to all servers of the client, and to the nodes of a Cluster. Sentinels keep the password of the
    /// address. Call it before limiters are built; clones that were made before stay as they are.
    ///
    /// # Examples
    /// ```no_run
    /// use std::pin::Pin;
    /// use futures_util::stream::{self, Stream};
    /// use tollgate_redis::{BasicAuth, Client, StreamingCredentialsProvider};
    ///
    /// struct Tokens;
    ///
    /// impl StreamingCredentialsProvider for Tokens {
    ///     fn subscribe(&self) -> Pin<Box<dyn Stream<Item = redis::RedisResult<BasicAuth>> + Send>> {
    ///         // Fetch a token, yield it, wait until it is about to expire, and start again.
    ///         let token = BasicAuth::new("limits".to_owned(), "a token".to_owned());
    ///         Box::pin(stream::iter([Ok(token)]))
    ///     }
    /// }
    ///
    /// let client = Client::open("rediss://limits.example:6380")?.credentials(Tokens);
    /// # let _ = client;
    /// # Ok::<(), tollgate_redis::Error>(())
    /// ```
    #[must_use]
    pub fn credentials(self, provider: impl ::redis::StreamingCredentialsProvider + 'static) -> Self {
        let provider: Arc<dyn ::redis::StreamingCredentialsProvider> = Arc::new(provider);
        self.with(|options| options.credentials = Some(Arc::clone(&provider)))
    }

    /// Sets the age at which a connection is replaced. Default: never.
    ///
    /// Each connection chooses an age between nine tenths of this and all of it, so that many processes do not connect
    /// at once. The new connection is made first. The calls of the old one then get their answers, and it is closed. If
    /// the new one cannot be made, the old one stays, and another attempt follows each second.
    ///
    /// For example, Amazon ElastiCache closes connections that authenticated by IAM after 12 hours; set 11 hours.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate_redis::Client;
    ///
    /// let client = Client::open("redis://10.0.0.1")?.max_connection_age(Duration::from_secs(11 * 3_600));
    /// # let _ = client;
    /// # Ok::<(), tollgate_redis::Error>(())
    /// ```
    #[must_use]
    pub fn max_connection_age(self, age: Duration) -> Self {
        self.with(|options| options.max_age = Some(age))
    }

    /// Sets a function that is called when the server refuses credentials, or when the provider has none, but at most
    /// once in ten seconds. It must not block. The error contains no secret.
    #[must_use]
    pub fn on_refused_credentials(self, tell: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        let tell: Arc<dyn Fn(&Error) + Send + Sync> = Arc::new(tell);
        self.with(|options| options.on_refused = Some(Arc::clone(&tell)))
    }

    /// Returns how often a server refused credentials of the provider, or the provider had none. Each connection counts
    /// each attempt.
    #[must_use]
    pub fn refused_credentials(&self) -> u64 {
        self.links.iter().map(|link| link.options().refusals.count()).fold(0, u64::wrapping_add)
    }

    /// Returns the connection, if the client has one server.
    #[cfg(feature = "rules")]
    pub(super) fn one_server(&self) -> Option<&Arc<ServerConnection>> {
        match &*self.links {
            [Topology::One(connection)] => Some(connection),
            _ => None,
        }
    }

    /// Creates the same client with connections that are kept up in another way.
    fn with(self, change: impl Fn(&mut ConnectionOptions)) -> Self {
        let links = self.links.iter().map(|link| {
            let mut options = link.options().clone();
            change(&mut options);
            match link {
                Topology::One(connection) => Topology::One(connection.with(options)),
                Topology::Cluster(nodes) => Topology::Cluster(nodes.with(&options)),
            }
        });
        Self { links: links.collect(), routes: Arc::clone(&self.routes) }
    }

    fn of(link: Topology) -> Self {
        Self { links: [link].into(), routes: Arc::default() }
    }

    /// Calls a script about the key of a call.
    async fn run_about(&self, call: &Call, command: impl Fn(By) -> Cmd + Sync) -> Result<Value, Error> {
        self.run(call.place.server, &call.tag, command).await
    }

    /// Calls a script at the server that holds the key with this tag.
    async fn run(
        &self,
        server: usize,
        tag: &[u8],
        command: impl Fn(By) -> Cmd + Sync,
    ) -> Result<Value, Error> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(Error::new(
                ErrorKind::Unreachable,
                "not in a tokio runtime; call the limiter from a tokio task, or use the blocking client",
            ));
        };
        let answer = match &self.links[server] {
            Topology::One(connection) => connection.run(&runtime, &command, false).await,
            Topology::Cluster(nodes) => Box::pin(nodes.run(&runtime, tag, &command)).await,
        };
        answer.map_err(|error| script::failure(&error))
    }

    /// Returns a builder for a limiter with this name. All limiters with the same name, prefix and limits share their
    /// state, in every process.
    pub fn limiter(&self, name: &str, limit: impl Into<Limit>) -> LimiterBuilder<Self> {
        LimiterBuilder::new(self.clone(), &self.routes, name, &[limit.into()])
    }

    /// Returns a builder for a limit of `limit` units in progress for each key. All limits with the same name and prefix
    /// share their state, in every process.
    pub fn in_progress(&self, name: &str, limit: u64) -> LimiterBuilder<Self, InProgressOptions> {
        LimiterBuilder::in_progress(self.clone(), &self.routes, name, limit)
    }
}

impl Routed for Client {
    fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }
}

/// The output does not contain the address.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Client");
        text.field("cluster", &self.in_parts());
        if !self.routes.names().is_empty() {
            text.field("routes", &self.routes);
        }
        text.finish_non_exhaustive()
    }
}

impl Transport for Client {
    type States = StoredStates;

    fn in_parts(&self) -> bool {
        self.links.iter().any(|link| matches!(link, Topology::Cluster(_)))
    }

    fn evicts(&self, server: usize) -> bool {
        // Ordering: Relaxed. The value is only reported, and publishes no other memory.
        self.links[server].options().evicting.load(Ordering::Relaxed) > 0
    }

    fn address(&self, server: usize) -> String {
        match &self.links[server] {
            Topology::One(connection) => match &connection.options().locate {
                Some(locate) => locate.address(),
                None => connection.address().to_string(),
            },
            Topology::Cluster(nodes) => nodes.address(),
        }
    }

    async fn call(&self, call: &Call) -> Result<Reply, Error> {
        script::reply(call, &self.run_about(call, |by| script::command(call, by)).await?)
    }

    async fn has_states(&self, call: &Call) -> Result<bool, Error> {
        let found = self.run_about(call, |by| script::copy(call, CopyStep::Find, by)).await?;
        Ok(found == Value::Int(1))
    }

    async fn read_states(&self, call: &Call) -> Result<StoredStates, Error> {
        script::states(call, self.run_about(call, |by| script::copy(call, CopyStep::Read, by)).await?)
    }

    async fn write_states(&self, call: &Call, states: &StoredStates) -> Result<(), Error> {
        self.run_about(call, |by| script::copy(call, CopyStep::Write(states), by)).await.map(drop)
    }

    fn is_one_server(&self) -> bool {
        matches!(&*self.links, [Topology::One(_)])
    }

    async fn report_links(&self, report: &LinkReport) -> Result<Vec<LinkAges>, Error> {
        let answer = self.run(0, &report.name, |by| script::links(report, None, by)).await?;
        script::link_ages(report, &answer)
    }

    fn part(&self, call: &Call) -> usize {
        match &self.links[call.place.server] {
            Topology::One(_) => 0,
            Topology::Cluster(nodes) => nodes.part(&call.tag),
        }
    }
}
