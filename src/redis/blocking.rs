//! The client of threads: a pool of connections, each used by one call at a time.
//!
//! A call takes an idle connection, or waits for one as long as it waits for an answer. If there is none, and fewer than the most are
//! open, a thread of its own makes one more, one after another. So a call that gives up does not end an attempt, and a server that is
//! down is tried by one at a time, with a pause after each failure that is doubled; during a pause calls do not wait at all.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ::redis::cluster::{ClusterClient, ClusterConnection};
use ::redis::{Connection, ConnectionLike, RedisError, RedisResult, Value};

use super::call::{BlockingTransport, Call, Reply};
use super::client::{self, CONNECT, PAUSES_NS};
use super::error::{Error, ErrorKind};
use super::limit::Limit;
use super::script::{self, By};
use super::settings::Builder;
use super::slot;
use crate::clock::{Clock, StdClock, saturating_nanos};

/// The most connections of one client.
const MOST: usize = 32;

/// A client of one Redis or Valkey server or of a Cluster, for threads that may wait. For async code there is [`Client`](super::Client).
///
/// Copies share one pool of up to 32 connections, each used by one call at a time. They are made when they are needed, by a thread of
/// its own that ends when one is made. So a client, and limiters, can be made while the server is down. Addresses are as of
/// [`Client`](super::Client); for `rediss://` add `redis = { version = "1.8", features = ["tls-rustls"] }` to your own dependencies.
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
    pool: Arc<Pool>,
}

struct Pool {
    to: To,
    state: Mutex<State>,
    /// Told when a connection is idle, and when an attempt has ended.
    changed: Condvar,
    clock: StdClock,
}

enum To {
    One(::redis::Client),
    Cluster(Box<ClusterClient>),
}

enum Link {
    One(Box<Connection>),
    Cluster(Box<ClusterConnection>),
}

#[derive(Default)]
struct State {
    idle: Vec<Link>,
    /// Idle or in use.
    open: usize,
    connecting: bool,
    /// Grows whenever connections turn out to be lost: older ones are not kept.
    age: u64,
    until_ns: u64,
    pause_ns: u64,
    why: Option<Error>,
}

/// A connection in use; gone, unless it is given back.
struct Taken<'a> {
    pool: &'a Pool,
    /// There until this is dropped.
    link: Option<Link>,
    age: u64,
    healthy: bool,
}

impl Link {
    fn set_timeout(&self, timeout: Duration) -> RedisResult<()> {
        match self {
            Self::One(link) => {
                link.set_read_timeout(Some(timeout))?;
                link.set_write_timeout(Some(timeout))
            }
            Self::Cluster(link) => {
                link.set_read_timeout(Some(timeout))?;
                link.set_write_timeout(Some(timeout))
            }
        }
    }

    fn ask(&mut self, call: &Call, by: By) -> RedisResult<Value> {
        let command = script::command(call, by);
        let value = match self {
            Self::One(link) => link.req_command(&command),
            Self::Cluster(link) => link.req_command(&command),
        };
        value.and_then(Value::extract_error)
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn take(self: &Arc<Self>, until_ns: u64) -> Result<Taken<'_>, Error> {
        let mut state = self.state();
        loop {
            if let Some(link) = state.idle.pop() {
                return Ok(Taken { pool: self, link: Some(link), age: state.age, healthy: false });
            }
            let now_ns = self.now_ns();
            let is_pause = state.open == 0 && now_ns < state.until_ns;
            if let (true, Some(why)) = (is_pause, &state.why) {
                return Err(why.clone());
            }
            if !state.connecting && state.open < MOST && now_ns >= state.until_ns {
                state.connecting = true;
                let pool = Arc::clone(self);
                let attempt = move || pool.connect();
                if thread::Builder::new().name("tollgate-connect".to_owned()).spawn(attempt).is_err() {
                    state.connecting = false;
                    return Err(Error::new(ErrorKind::Unreachable, "no thread can be started to connect"));
                }
            }
            let left_ns = until_ns.saturating_sub(now_ns);
            if left_ns == 0 {
                return Err(Error::new(ErrorKind::Timeout, "no connection was free in time"));
            }
            let waited = self.changed.wait_timeout(state, Duration::from_nanos(left_ns));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes one more connection.
    fn connect(&self) {
        let link = match &self.to {
            To::One(client) => {
                client.get_connection_with_timeout(CONNECT).map(|link| Link::One(Box::new(link)))
            }
            To::Cluster(client) => client.get_connection().map(|link| Link::Cluster(Box::new(link))),
        };
        let mut state = self.state();
        state.connecting = false;
        match link {
            Ok(link) => {
                state.open += 1;
                state.idle.push(link);
                (state.pause_ns, state.until_ns, state.why) = (0, 0, None);
            }
            Err(error) => {
                state.pause_ns = (state.pause_ns * 2).clamp(PAUSES_NS[0], PAUSES_NS[1]);
                state.until_ns = self.now_ns().saturating_add(state.pause_ns);
                state.why = Some(script::failure(&error));
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn call(self: &Arc<Self>, call: &Call, timeout: Duration) -> Result<Reply, Error> {
        let until_ns = self.now_ns().saturating_add(saturating_nanos(timeout));
        let mut taken = self.take(until_ns)?;
        let mut ask = |by| {
            let left_ns = until_ns.saturating_sub(self.now_ns());
            let Some(link) = &mut taken.link else {
                return Err(std::io::Error::from(std::io::ErrorKind::NotConnected).into());
            };
            link.set_timeout(Duration::from_nanos(left_ns.max(1_000)))?;
            link.ask(call, by)
        };
        let value = match ask(By::Hash) {
            Err(error) if script::is_unknown(&error) => ask(By::Text),
            other => other,
        };
        taken.healthy = match &value {
            Ok(_) => true,
            Err(error) => !script::is_lost(error),
        };
        if value.as_ref().is_err_and(|error| script::is_lost(error) && !error.is_timeout()) {
            // The others lead to the same server, and idle ones are not told.
            self.forget();
        }
        let value = value.map_err(|error: RedisError| script::failure(&error))?;
        script::reply(call, &value)
    }

    fn forget(&self) {
        let mut state = self.state();
        state.age += 1;
        state.open -= state.idle.len();
        let old = std::mem::take(&mut state.idle);
        drop(state);
        drop(old);
    }
}

/// Gives the connection back, or ends it.
impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        if self.healthy && self.age == state.age {
            state.idle.extend(self.link.take());
        } else {
            state.open -= 1;
        }
        drop(state);
        self.pool.changed.notify_one();
    }
}

impl BlockingClient {
    /// A client of one server.
    ///
    /// # Errors
    /// If the address is none. The error does not repeat it, for there may be a password in it.
    pub fn open(url: &str) -> Result<Self, Error> {
        Ok(Self::to(To::One(client::one(url)?)))
    }

    /// A client of a Cluster, of which these are some of the nodes.
    ///
    /// # Errors
    /// If one of the addresses is none, or there is none.
    pub fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        Ok(Self::to(To::Cluster(Box::new(client::cluster(urls)?))))
    }

    fn to(to: To) -> Self {
        let pool = Pool { to, state: Mutex::default(), changed: Condvar::new(), clock: StdClock::new() };
        Self { pool: Arc::new(pool) }
    }

    /// A limiter of this name. All that have the same name, prefix and limits, in whatever process, share their states.
    pub fn limiter(&self, name: &str, limit: Limit) -> Builder<Self> {
        Builder::new(self.clone(), name, limit)
    }
}

/// Without the address.
impl fmt::Debug for BlockingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingClient")
            .field("cluster", &matches!(self.pool.to, To::Cluster(_)))
            .field("open", &self.pool.state().open)
            .finish_non_exhaustive()
    }
}

impl BlockingTransport for BlockingClient {
    fn call(&self, call: &Call, timeout: Duration) -> Result<Reply, Error> {
        self.pool.call(call, timeout)
    }

    fn part(&self, call: &Call) -> usize {
        match &self.pool.to {
            To::One(_) => 0,
            To::Cluster(_) => slot::part(&call.tag),
        }
    }
}
