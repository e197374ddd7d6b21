//! The connection to one server, which all callers share. It is made on first use, and made again after it is lost.
//!
//! ```text
//!   Idle ──call, pause over──► Connecting ──ok──► Ready ──lost, or no answer to a PING──► Idle
//!    ▲                             │failed: a pause, doubled each time
//!    └─────────────────────────────┘
//! ```
//! *Attempts.* Each attempt to connect is a separate task, and there is at most one at a time. A caller that stops
//! waiting does not end the attempt. Callers wait for an attempt as long as they wait for an answer. During a pause,
//! calls fail immediately.
//!
//! *Eviction.* A server that evicts keys can lose the state of limiters. So each new connection sends `INFO memory`, in
//! parallel with the calls, and again every ten seconds, because the policy can change while the server runs. A server that
//! begins to evict is logged once, and the result appears in [`Health`](crate::edge::redis::guard::Health). If the server
//! refuses the command (the user may not run it), the result does not change, and the connection does not ask again. The
//! result is `false` at first.
//!
//! *No answer.* A call can end without an answer, because its time-out passes or its caller stops waiting. The server
//! may only be slow, so the connection is tested:
//!
//! 1. One task sends PING on that connection.
//! 2. Answers arrive in order. So an answer to the PING, even an error, proves that the connection works.
//! 3. If no answer arrives within a second, the connection is dropped, and the next call connects again.
//!
//! The result does not depend on how long callers wait, or on how many callers there are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ::redis::aio::{ConnectionLike, MultiplexedConnection};
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::lane::Lane;
use super::runtime::OnDrop;
use crate::base::clock::{Clock, StdClock};
use crate::base::sync::{AtomicU64, Ordering};
use crate::edge::redis::protocol::script::{self, By};
use crate::edge::redis::protocol::{Error, ErrorKind};
use crate::edge::telemetry::server_evicts;

/// The longest time that one attempt to connect takes.
const CONNECT: Duration = Duration::from_secs(1);
/// The pause after a failed attempt, and the maximum to which it doubles.
///
/// During a pause all calls fail without an attempt, including probes. So the pause is much shorter than the breaker's.
pub(crate) const PAUSES_NS: [u64; 2] = [20_000_000, 250_000_000];
/// If a PING is not answered within this time, the connection is dropped.
const SILENT: Duration = Duration::from_secs(1);
/// The time between two questions about eviction.
const EVICTION: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(10) };
/// The idle time before the system sends keepalive probes, and the interval between them.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// See the module docs.
pub(crate) struct ServerConnection {
    client: Client,
    state: Mutex<LineState>,
    /// Notified on each change of the state.
    changed: watch::Sender<()>,
    clock: StdClock,
    /// 1 if the server reported that it evicts keys.
    evicts: AtomicU64,
    /// The number of servers of the same client that evict keys.
    evicting: Evicting,
}

/// The number of servers of one client that report that they evict keys.
pub(crate) type Evicting = Arc<AtomicU64>;

struct LineState {
    phase: Phase,
    /// Each connection has a number, so that a failure of one connection does not end its successor.
    number: u64,
    /// Whether a PING is in flight on the current connection.
    is_being_tested: bool,
    /// The length of the pause after the next failed attempt.
    pause_ns: u64,
}

enum Phase {
    Idle { until_ns: u64, why: Option<RedisError> },
    Connecting,
    Ready(Arc<Lane>),
}

impl Phase {
    const IDLE: Self = Self::Idle { until_ns: 0, why: None };
}

impl ServerConnection {
    pub(crate) fn new(client: Client, evicting: Evicting) -> Arc<Self> {
        let state =
            LineState { phase: Phase::IDLE, number: 0, is_being_tested: false, pause_ns: PAUSES_NS[0] };
        Arc::new(Self {
            client,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            clock: StdClock::new(),
            evicts: AtomicU64::new(0),
            evicting,
        })
    }

    /// Creates a connection to the server at this address.
    pub(crate) fn open(url: &str, evicting: &Evicting) -> Result<Arc<Self>, Error> {
        Self::of(&Client::open(url).map_err(|error| address(&error))?, evicting)
    }

    /// Creates a connection with the address, user and certificates of a client of the `redis` crate.
    pub(crate) fn of(client: &Client, evicting: &Evicting) -> Result<Arc<Self>, Error> {
        let tcp = TcpSettings::default().set_nodelay(true);
        let tcp = tcp.set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
        let info = client.get_connection_info().clone().set_tcp_settings(tcp);
        Ok(Self::new(Client::open(info).map_err(|error| address(&error))?, Arc::clone(evicting)))
    }

    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// Creates a connection to another server, with the same settings.
    pub(crate) fn sibling(&self, address: ConnectionAddr) -> Option<Arc<Self>> {
        let info = self.client.get_connection_info().clone().set_addr(address);
        Client::open(info).ok().map(|client| Self::new(client, Arc::clone(&self.evicting)))
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks whether the server evicts keys, until this connection is no longer the current one. Does not keep the
    /// connection alive.
    async fn watch_eviction(line: Weak<Self>, number: u64) {
        loop {
            let Some(line) = line.upgrade() else { return };
            let connection = match &*line.state() {
                LineState { phase: Phase::Ready(lane), number: current, .. } if *current == number => {
                    lane.connection()
                }
                _ => return,
            };
            if !line.learn_eviction(connection).await {
                return;
            }
            drop(line);
            sleep(EVICTION).await;
        }
    }

    /// Returns whether to ask again later.
    async fn learn_eviction(&self, mut connection: MultiplexedConnection) -> bool {
        let mut info = ::redis::cmd("INFO");
        info.arg("memory");
        let text = match timeout(SILENT, connection.req_packed_command(&info)).await {
            Ok(Ok(Value::BulkString(text))) => String::from_utf8(text).unwrap_or_default(),
            Ok(Ok(Value::VerbatimString { text, .. })) => text,
            Err(_) => return true,
            Ok(_) => return false,
        };
        let policy = eviction(&text);
        if self.set_evicts(policy.is_some())
            && let Some(policy) = policy
        {
            server_evicts(policy);
        }
        true
    }

    /// Returns whether the value changed.
    fn set_evicts(&self, evicts: bool) -> bool {
        let now = u64::from(evicts);
        // Ordering: Relaxed, here and where it is read. The value is only reported, and publishes no other memory.
        let before = self.evicts.swap(now, Ordering::Relaxed);
        self.evicting.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        now != before
    }

    /// Returns the current connection and its number.
    fn current(&self) -> Option<(Arc<Lane>, u64)> {
        match &*self.state() {
            LineState { phase: Phase::Ready(lane), number, .. } => Some((Arc::clone(lane), *number)),
            _ => None,
        }
    }

    /// Returns the current connection and its number, or waits for the next connection.
    async fn ready(self: &Arc<Self>, runtime: &Handle) -> RedisResult<(Arc<Lane>, u64)> {
        let mut changes = self.changed.subscribe();
        loop {
            {
                let mut state = self.state();
                match &state.phase {
                    Phase::Ready(lane) => return Ok((Arc::clone(lane), state.number)),
                    Phase::Connecting => {}
                    Phase::Idle { until_ns, why: Some(why) } if self.clock.now().as_nanos() < *until_ns => {
                        return Err(why.clone());
                    }
                    Phase::Idle { .. } => {
                        state.phase = Phase::Connecting;
                        drop(state);
                        self.connect(runtime);
                    }
                }
            }
            // The sender is in `self`, so it is not closed.
            let _ = changes.changed().await;
        }
    }

    /// Starts an attempt to connect.
    fn connect(self: &Arc<Self>, runtime: &Handle) {
        let (line, own) = (Arc::clone(self), Arc::clone(self));
        // Created here, so that the attempt ends even if the task never runs: a runtime that shuts down drops its
        // tasks. An attempt that panics fails, so that a pause follows.
        let dropped = OnDrop::new(move || {
            own.connected(thread::panicking().then(|| Err(panicked())));
        });
        runtime.spawn(async move {
            // Each call has its own time-out.
            let config =
                AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
            let dial = line.client.get_multiplexed_async_connection_with_config(&config);
            let result = timeout(CONNECT, dial).await.unwrap_or_else(|_| Err(timed_out()));
            let result = result.map_err(|error| line.name_tls(error));
            dropped.cancel();
            // Waiting calls continue from here.
            if let Some(number) = line.connected(Some(result)) {
                let weak = Arc::downgrade(&line);
                drop(line);
                Self::watch_eviction(weak, number).await;
            }
        });
    }

    /// Names TLS in the error of an attempt, if TLS may be the reason.
    fn name_tls(&self, error: RedisError) -> RedisError {
        let is_tls = matches!(self.address(), ConnectionAddr::TcpTls { .. });
        let is_other = error.is_timeout() || error.is_connection_refusal() || !error.is_io_error();
        if is_tls && !is_other { script::no_tls() } else { error }
    }

    /// Ends an attempt: with its result, or with `None` if its task was dropped. Returns the number of the new connection.
    fn connected(&self, result: Option<RedisResult<MultiplexedConnection>>) -> Option<u64> {
        let is_connected = matches!(result, Some(Ok(_)));
        let mut state = self.state();
        state.phase = match result {
            Some(Ok(connection)) => {
                state.number += 1;
                state.is_being_tested = false;
                state.pause_ns = PAUSES_NS[0];
                Phase::Ready(Lane::new(connection))
            }
            Some(Err(error)) => {
                let until_ns = self.clock.now().as_nanos().saturating_add(state.pause_ns);
                state.pause_ns = (state.pause_ns * 2).min(PAUSES_NS[1]);
                Phase::Idle { until_ns, why: Some(error) }
            }
            None => Phase::IDLE,
        };
        let number = is_connected.then_some(state.number);
        drop(state);
        self.changed.send_replace(());
        number
    }

    /// Sends PING on a connection on which a call got no answer. Ends the connection if the PING is not answered.
    fn test_with_ping(self: &Arc<Self>, runtime: &Handle, number: u64) {
        let mut state = self.state();
        let Phase::Ready(lane) = &state.phase else { return };
        if state.number != number || state.is_being_tested {
            return;
        }
        let mut connection = lane.connection();
        state.is_being_tested = true;
        drop(state);
        let (line, own) = (Arc::clone(self), Arc::clone(self));
        let dropped = OnDrop::new(move || own.judge(number, false));
        runtime.spawn(async move {
            let ping = ::redis::cmd("PING");
            // An error from the server is an answer too.
            let is_dead = match timeout(SILENT, connection.req_packed_command(&ping)).await {
                Ok(Ok(_)) => false,
                Ok(Err(error)) => script::is_lost(&error),
                Err(_) => true,
            };
            dropped.cancel();
            line.judge(number, is_dead);
        });
    }

    /// Ends the test of a connection. A dead connection is dropped, and the next call makes a new one.
    fn judge(&self, number: u64, is_dead: bool) {
        let mut state = self.state();
        if state.number == number {
            state.is_being_tested = false;
            if is_dead && matches!(state.phase, Phase::Ready(_)) {
                state.phase = Phase::IDLE;
            }
        }
    }

    /// Sends a command. If it ends without an answer, tests the connection. `asking` is set after a redirection by ASK.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        runtime: &Handle,
        command: Cmd,
        asking: bool,
    ) -> RedisResult<Value> {
        let (lane, number) = match self.current() {
            Some(current) => current,
            None => Box::pin(self.ready(runtime)).await?,
        };
        let unanswered = OnDrop::new(|| self.test_with_ping(runtime, number));
        let answer = if asking {
            let mut both = ::redis::pipe();
            both.cmd("ASKING").add_command(command);
            let answers = lane.connection().req_packed_commands(&both, 1, 1).await;
            answers.and_then(|mut answers| answers.pop().unwrap_or_default().extract_error())
        } else {
            lane.call(runtime, command).await.and_then(Value::extract_error)
        };
        unanswered.cancel();
        if answer.as_ref().is_err_and(script::is_lost) {
            self.judge(number, true);
        }
        answer
    }

    /// Calls a script. If the server does not know the script, sends its text.
    pub(crate) async fn run(
        self: &Arc<Self>,
        runtime: &Handle,
        command: &impl Fn(By) -> Cmd,
        asking: bool,
    ) -> RedisResult<Value> {
        match self.ask(runtime, command(By::Hash), asking).await {
            Err(error) if script::is_unknown(&error) => {
                Box::pin(self.ask(runtime, command(By::Text), asking)).await
            }
            other => other,
        }
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.set_evicts(false);
    }
}

/// Returns the eviction policy in the reply of `INFO memory`, if it can evict the keys of limiters. All these keys have
/// an expiry time, so every policy except one evicts them.
fn eviction(info: &str) -> Option<&str> {
    let field = |name| info.lines().find_map(|line: &str| line.strip_prefix(name)?.strip_prefix(':'));
    let policy = field("maxmemory_policy")?;
    (policy != "noeviction" && field("maxmemory")? != "0").then_some(policy)
}

/// The client library panics if the program lacks something. The panic's own message, which the library prints, names
/// it.
fn panicked() -> RedisError {
    (::redis::ErrorKind::InvalidClientConfig, "the attempt to connect panicked").into()
}

pub(crate) fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

fn address(error: &RedisError) -> Error {
    let what = if error.kind() == ::redis::ErrorKind::InvalidClientConfig && error.to_string().contains("TLS")
    {
        "rediss:// needs TLS; enable a TLS feature of the redis crate, such as tokio-rustls-comp"
    } else {
        "expected redis://[[user]:password@]host[:port][/database] or unix:///path"
    };
    Error::new(ErrorKind::Address, what)
}
