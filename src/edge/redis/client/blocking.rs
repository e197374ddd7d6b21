//! The client of threads: one thread of its own carries the calls of all.
//!
//! That thread runs the client of async code. So many calls share a connection, none waits for another's answer, and whoever asks waits
//! no longer than its time-out, whatever the network and the client library do.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::connected::Client;
use super::settings::Builder;
use crate::edge::redis::protocol::Limit;
use crate::edge::redis::protocol::{BlockingTransport, Call, Reply, Transport};
use crate::edge::redis::protocol::{Error, ErrorKind};

/// A client of one Redis or Valkey server or of a Cluster, for threads that may wait. For async code there is [`Client`](crate::edge::redis::Client).
///
/// Copies share one connection (in a Cluster, one to each node) and one thread that carries their calls, all at once; it starts with the
/// first call and ends when the last copy is dropped. So a client, and limiters, can be made while the server is down. Addresses, and
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
#[derive(Clone)]
pub struct BlockingClient {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    /// To the thread; `None` if none can be started.
    thread: OnceLock<Option<UnboundedSender<Job>>>,
}

/// A call, and who asks.
struct Job {
    call: Call,
    /// When nobody waits any more; `None` is never.
    until: Option<Instant>,
    timeout: Duration,
    tell: SyncSender<Result<Reply, Error>>,
}

impl Job {
    async fn run(self, client: Client) {
        let left = self.until.map_or(self.timeout, |until| until.saturating_duration_since(Instant::now()));
        if !left.is_zero() {
            // Whoever asked may have gone.
            let _ = self.tell.send(client.call(&self.call, left).await);
        }
    }
}

/// What the thread does, until there is no client any more.
async fn carry(client: Client, mut jobs: UnboundedReceiver<Job>) {
    while let Some(job) = jobs.recv().await {
        tokio::spawn(job.run(client.clone()));
    }
}

impl Shared {
    fn thread(&self) -> Option<&UnboundedSender<Job>> {
        let start = || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
            let (sender, jobs) = unbounded_channel();
            let client = self.client.clone();
            let run = move || runtime.block_on(carry(client, jobs));
            thread::Builder::new().name("tollgate-redis".to_owned()).spawn(run).ok()?;
            Some(sender)
        };
        self.thread.get_or_init(start).as_ref()
    }
}

impl BlockingClient {
    /// A client of one server.
    ///
    /// # Errors
    /// If the address is none. The error does not repeat it, for there may be a password in it.
    pub fn open(url: &str) -> Result<Self, Error> {
        Client::open(url).map(Self::new)
    }

    /// A client of a Cluster, of which these are some of the nodes.
    ///
    /// # Errors
    /// If one of the addresses is none, or there is none.
    pub fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        Client::cluster(urls).map(Self::new)
    }

    fn new(client: Client) -> Self {
        Self { shared: Arc::new(Shared { client, thread: OnceLock::new() }) }
    }

    /// A limiter of this name. All that have the same name, prefix and limits, in whatever process, share their states.
    pub fn limiter(&self, name: &str, limit: Limit) -> Builder<Self> {
        Builder::new(self.clone(), name, limit)
    }
}

/// Without the address.
impl fmt::Debug for BlockingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingClient").field("client", &self.shared.client).finish_non_exhaustive()
    }
}

impl BlockingTransport for BlockingClient {
    fn in_parts(&self) -> bool {
        self.shared.client.in_parts()
    }

    fn evicts(&self) -> bool {
        self.shared.client.evicts()
    }

    fn call(&self, call: &Call, timeout: Duration) -> Result<Reply, Error> {
        let (tell, told) = sync_channel(1);
        let job = Job { call: call.clone(), until: Instant::now().checked_add(timeout), timeout, tell };
        let sent = self.shared.thread().is_some_and(|thread| thread.send(job).is_ok());
        let answer = if sent { told.recv_timeout(timeout) } else { Err(RecvTimeoutError::Disconnected) };
        answer.unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => {
                    Error::new(ErrorKind::Timeout, format!("no answer within {timeout:?}"))
                }
                RecvTimeoutError::Disconnected => {
                    Error::new(ErrorKind::Unreachable, "there is no thread to carry calls")
                }
            })
        })
    }

    fn part(&self, call: &Call) -> usize {
        self.shared.client.part(call)
    }
}
