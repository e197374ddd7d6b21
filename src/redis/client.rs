//! The client of async code: one connection that all share, made when it is needed and made anew when it is gone.
//!
//! ```text
//!   Idle ──call, pause over──► Connecting ──ok──► Ready ──connection lost, or no answers──► Idle
//!    ▲                             │failed: a pause, doubled each time
//!    └─────────────────────────────┘
//! ```
//! An attempt is a task of its own, so callers that give up do not end it, and there is never more than one. Callers wait for it as
//! long as they wait for an answer; during a pause they do not wait at all.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::aio::{ConnectionLike, MultiplexedConnection};
use ::redis::cluster::ClusterClient;
use ::redis::cluster_async::ClusterConnection;
use ::redis::{AsyncConnectionConfig, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::call::{Call, Reply, Transport};
use super::error::{Error, ErrorKind};
use super::limit::Limit;
use super::script::{self, By};
use super::settings::Builder;
use super::slot;
use crate::clock::{Clock, StdClock};

/// The longest that one attempt to connect takes.
pub(super) const CONNECT: Duration = Duration::from_secs(1);
/// The pause after a failed attempt, and the longest to which it is doubled.
pub(super) const PAUSES_NS: [u64; 2] = [20_000_000, 1_000_000_000];
/// A connection that answers nobody for so long, though asked, is given up.
const SILENT_NS: u64 = 1_000_000_000;

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
    link: Link,
}

#[derive(Clone)]
enum Link {
    One(Arc<Slot<::redis::Client>>),
    Cluster(Arc<Slot<ClusterClient>>),
}

/// What makes connections.
trait Dial: Send + Sync + 'static {
    type Connection: ConnectionLike + Clone + Send + Sync + 'static;

    fn dial(&self) -> impl Future<Output = RedisResult<Self::Connection>> + Send;
}

impl Dial for ::redis::Client {
    type Connection = MultiplexedConnection;

    async fn dial(&self) -> RedisResult<Self::Connection> {
        // Each call has its own time-out.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
        self.get_multiplexed_async_connection_with_config(&config).await
    }
}

impl Dial for ClusterClient {
    type Connection = ClusterConnection;

    async fn dial(&self) -> RedisResult<Self::Connection> {
        self.get_async_connection().await
    }
}

struct Slot<D: Dial> {
    dial: D,
    state: Mutex<State<D::Connection>>,
    /// Told of each change of the state.
    changed: watch::Sender<()>,
    clock: StdClock,
}

struct State<C> {
    link: Stage<C>,
    /// Connections have numbers, so that the failure of one does not end its successor.
    number: u64,
    /// When the present connection last answered.
    answered_ns: u64,
    /// Of the pause after the next failed attempt.
    pause_ns: u64,
}

enum Stage<C> {
    Idle { until_ns: u64, why: Option<Error> },
    Connecting,
    Ready(C),
}

/// Ends an attempt, whatever becomes of it: a runtime that is shut down drops its tasks.
struct Attempt<D: Dial>(Arc<Slot<D>>, Option<RedisResult<D::Connection>>);

impl<D: Dial> Attempt<D> {
    async fn run(mut self) {
        let result = tokio::time::timeout(CONNECT, self.0.dial.dial()).await;
        let late = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        self.1 = Some(result.unwrap_or_else(late));
    }
}

impl<D: Dial> Drop for Attempt<D> {
    fn drop(&mut self) {
        let slot = &self.0;
        let now_ns = slot.clock.now().as_nanos();
        let mut state = slot.state();
        state.link = match self.1.take() {
            Some(Ok(connection)) => {
                state.number += 1;
                state.answered_ns = now_ns;
                state.pause_ns = PAUSES_NS[0];
                Stage::Ready(connection)
            }
            Some(Err(error)) => {
                let until_ns = now_ns.saturating_add(state.pause_ns);
                state.pause_ns = (state.pause_ns * 2).min(PAUSES_NS[1]);
                Stage::Idle { until_ns, why: Some(script::failure(&error)) }
            }
            None => Stage::Idle { until_ns: 0, why: None },
        };
        drop(state);
        slot.changed.send_replace(());
    }
}

impl<D: Dial> Slot<D> {
    fn new(dial: D) -> Arc<Self> {
        let link = Stage::Idle { until_ns: 0, why: None };
        let state = State { link, number: 0, answered_ns: 0, pause_ns: PAUSES_NS[0] };
        Arc::new(Self {
            dial,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            clock: StdClock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State<D::Connection>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection and its number.
    async fn connection(self: &Arc<Self>, runtime: &Handle) -> Result<(D::Connection, u64), Error> {
        let mut changes = self.changed.subscribe();
        loop {
            {
                let mut state = self.state();
                match &state.link {
                    Stage::Ready(connection) => return Ok((connection.clone(), state.number)),
                    Stage::Connecting => {}
                    Stage::Idle { until_ns, why: Some(why) } if self.clock.now().as_nanos() < *until_ns => {
                        return Err(why.clone());
                    }
                    Stage::Idle { .. } => {
                        state.link = Stage::Connecting;
                        drop(state);
                        // Here already, so that the attempt ends even if the task never runs.
                        let attempt = Attempt(Arc::clone(self), None);
                        runtime.spawn(attempt.run());
                    }
                }
            }
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
    }

    /// The connection failed: the next call makes another.
    fn lost(&self, number: u64) {
        let mut state = self.state();
        if state.number == number && matches!(state.link, Stage::Ready(_)) {
            state.link = Stage::Idle { until_ns: 0, why: None };
        }
    }

    fn answered(&self) {
        let now_ns = self.clock.now().as_nanos();
        self.state().answered_ns = now_ns;
    }

    /// No answer came: if none has come for long, the connection is taken for lost.
    fn silent(&self) {
        let now_ns = self.clock.now().as_nanos();
        let mut state = self.state();
        if matches!(state.link, Stage::Ready(_)) && now_ns.saturating_sub(state.answered_ns) > SILENT_NS {
            state.link = Stage::Idle { until_ns: 0, why: None };
        }
    }

    async fn call(self: &Arc<Self>, call: &Call, timeout: Duration) -> Result<Reply, Error> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(Error::new(ErrorKind::Unreachable, "this is no task of a tokio runtime"));
        };
        let ask = async {
            let (mut connection, number) = self.connection(&runtime).await?;
            let value = match self.ask(&mut connection, number, call, By::Hash).await {
                Err(error) if script::is_unknown(&error) => {
                    self.ask(&mut connection, number, call, By::Text).await
                }
                other => other,
            };
            script::reply(call, &value.map_err(|error| script::failure(&error))?)
        };
        let Some(deadline) = tokio::time::Instant::now().checked_add(timeout) else {
            return ask.await;
        };
        timeout_at(deadline, ask).await.unwrap_or_else(|_| {
            self.silent();
            Err(Error::new(ErrorKind::Timeout, format!("no answer within {timeout:?}")))
        })
    }

    async fn ask(
        &self,
        connection: &mut D::Connection,
        number: u64,
        call: &Call,
        by: By,
    ) -> Result<Value, RedisError> {
        let command = script::command(call, by);
        let result = connection.req_packed_command(&command).await.and_then(Value::extract_error);
        match &result {
            Err(error) if script::is_lost(error) => self.lost(number),
            _ => self.answered(),
        }
        result
    }
}

impl Client {
    /// A client of one server.
    ///
    /// # Errors
    /// If the address is none. The error does not repeat it, for there may be a password in it.
    pub fn open(url: &str) -> Result<Self, Error> {
        Ok(Self { link: Link::One(Slot::new(one(url)?)) })
    }

    /// A client of a Cluster, of which these are some of the nodes.
    ///
    /// # Errors
    /// If one of the addresses is none, or there is none.
    pub fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        Ok(Self { link: Link::Cluster(Slot::new(cluster(urls)?)) })
    }

    /// A limiter of this name. All that have the same name, prefix and limits, in whatever process, share their states.
    pub fn limiter(&self, name: &str, limit: Limit) -> Builder<Self> {
        Builder::new(self.clone(), name, limit)
    }
}

pub(super) fn one(url: &str) -> Result<::redis::Client, Error> {
    ::redis::Client::open(url).map_err(|error| address(&error))
}

pub(super) fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<ClusterClient, Error> {
    // Few retries: a call has little time, and the failure of one is dealt with.
    ClusterClient::builder(urls)
        .connection_timeout(CONNECT)
        .response_timeout(CONNECT)
        .overall_response_timeout(None)
        .retries(2)
        .min_retry_wait(1)
        .max_retry_wait(20)
        .build()
        .map_err(|error| address(&error))
}

fn address(error: &RedisError) -> Error {
    let what = if error.kind() == ::redis::ErrorKind::InvalidClientConfig && error.to_string().contains("TLS")
    {
        "rediss:// needs the feature of the redis crate for TLS"
    } else {
        "expected redis://[[user]:password@]host[:port][/database] or unix:///path"
    };
    Error::new(ErrorKind::Address, what)
}

/// Without the address.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("cluster", &matches!(self.link, Link::Cluster(_)))
            .finish_non_exhaustive()
    }
}

impl Transport for Client {
    async fn call(&self, call: &Call, timeout: Duration) -> Result<Reply, Error> {
        match &self.link {
            Link::One(slot) => slot.call(call, timeout).await,
            Link::Cluster(slot) => slot.call(call, timeout).await,
        }
    }

    fn part(&self, call: &Call) -> usize {
        match &self.link {
            Link::One(_) => 0,
            Link::Cluster(_) => slot::part(&call.tag),
        }
    }
}
