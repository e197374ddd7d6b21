//! The connection to one server, which all callers share. It is made on first use, and made again after it is lost.
//!
//! ```text
//!   Idle ──call, pause over──► Connecting ──ok──► Ready ──lost, or no answer to a PING──► Idle
//!    ▲                             │failed: a pause, doubled each time
//!    └─────────────────────────────┘
//! ```
//! *Attempts.* Each attempt to connect is a separate task, and there is at most one at a time. A caller that stops
//! waiting does not end the attempt. Callers wait for an attempt as long as they wait for an answer, and fail if it
//! fails, however late they run. During a pause, calls fail immediately.
//!
//! *Eviction.* A server that evicts keys can lose the state of limiters. So each new connection sends `INFO memory`, in
//! parallel with the calls, and again every ten seconds, because the policy can change while the server runs. A server that
//! begins to evict is logged once, and the result appears in [`Health`](crate::guard::Health). If the server
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
//!
//! *Renewal.* If the client has an [`ConnectionOptions`], a second part of the task that connected follows the credentials, the age
//! of the connection and the place of its server. Without one, this part does not exist.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ::redis::aio::{ConnectionLike, MultiplexedConnection};
use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{
    AsyncConnectionConfig, BasicAuth, Client, Cmd, ConnectionAddr, ErrorKind as Theirs, RedisError,
    RedisResult, Value,
};
use futures_util::future::{Either, select};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tollgate::internals::sync::{AtomicU64, Ordering};
use tollgate::{Clock, StdClock};
use tollgate_protocol::script::By;
use tollgate_protocol::{Error, ErrorKind, script};

use super::batched::BatchedCalls;
use super::credentials::CredentialStream;
use super::options::{self, ConnectionOptions};
use super::runtime::OnDrop;
use crate::telemetry::server_evicts;

/// The longest time that one attempt to connect takes.
const CONNECT: Duration = Duration::from_secs(1);
/// The pause after a failed attempt, and the maximum to which it doubles.
///
/// During a pause all calls fail without an attempt, including probes. So the pause is much shorter than the breaker's.
pub(crate) const PAUSES_NS: [u64; 2] = [20_000_000, 250_000_000];
/// The time between two looks at the age of a connection, at credentials to send again and at the place of its server.
const RENEWAL_CHECK: Duration = Duration::from_secs(1);
/// If a PING is not answered within this time, the connection is dropped.
const SILENT: Duration = Duration::from_secs(1);
/// The time between two questions about eviction.
const EVICTION: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(10) };
/// The idle time before the system sends keepalive probes, and the interval between them.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// See the module docs.
pub(crate) struct ServerConnection {
    client: Client,
    state: Mutex<ConnectionState>,
    /// Notified on each change of the state.
    changed: watch::Sender<()>,
    clock: StdClock,
    /// 1 if the server reported that it evicts keys.
    evicts: AtomicU64,
    options: ConnectionOptions,
}

/// What renews a connection.
pub(super) struct Renewal {
    /// The address of the connection.
    pub(super) address: ConnectionAddr,
    /// The credentials after those that the connection used.
    pub(super) credentials: Option<CredentialStream>,
    /// When the connection is replaced.
    pub(super) ends: Option<Instant>,
}

struct ConnectionState {
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
    Ready(Arc<BatchedCalls>),
}

impl Phase {
    const IDLE: Self = Self::Idle { until_ns: 0, why: None };
}

impl ServerConnection {
    fn new(client: Client, options: ConnectionOptions) -> Arc<Self> {
        let state =
            ConnectionState { phase: Phase::IDLE, number: 0, is_being_tested: false, pause_ns: PAUSES_NS[0] };
        Arc::new(Self {
            client,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            clock: StdClock::new(),
            evicts: AtomicU64::new(0),
            options,
        })
    }

    /// Creates a connection with the address, user and certificates of a client of the `redis` crate.
    pub(crate) fn of(client: &Client, options: ConnectionOptions) -> Result<Arc<Self>, Error> {
        let tcp = TcpSettings::default().set_nodelay(true);
        let tcp = tcp.set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
        let info = client.get_connection_info().clone().set_tcp_settings(tcp);
        let client = Client::open(info).map_err(|error| address(&error))?;
        Ok(Self::new(client, options))
    }

    /// Creates a connection to the same server, which is kept up in another way.
    pub(crate) fn with(&self, options: ConnectionOptions) -> Arc<Self> {
        Self::new(self.client.clone(), options)
    }

    pub(crate) fn options(&self) -> &ConnectionOptions {
        &self.options
    }

    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// Creates a connection to another server, with the same settings.
    pub(crate) fn sibling(&self, address: ConnectionAddr) -> Option<Arc<Self>> {
        let info = self.client.get_connection_info().clone().set_addr(address);
        let client = Client::open(info).ok()?;
        Some(Self::new(client, self.options.clone()))
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks whether the server evicts keys, until this connection is no longer the current one. Does not keep the
    /// connection alive.
    async fn watch_eviction(server: Weak<Self>, number: u64) {
        loop {
            let Some(server) = server.upgrade() else { return };
            let current = server.current().filter(|(_, current)| *current == number);
            let Some(connection) = current.map(|(calls, _)| calls.connection()) else { return };
            if !server.learn_eviction(connection).await {
                return;
            }
            drop(server);
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
        self.options.evicting.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        now != before
    }

    /// Returns the current connection and its number.
    fn current(&self) -> Option<(Arc<BatchedCalls>, u64)> {
        match &*self.state() {
            ConnectionState { phase: Phase::Ready(calls), number, .. } => Some((Arc::clone(calls), *number)),
            _ => None,
        }
    }

    /// Returns the current connection and its number, or waits for the next connection.
    async fn ready(self: &Arc<Self>, runtime: &Handle) -> RedisResult<(Arc<BatchedCalls>, u64)> {
        let mut changes = self.changed.subscribe();
        let mut has_waited = false;
        loop {
            {
                let mut state = self.state();
                match &state.phase {
                    Phase::Ready(calls) => return Ok((Arc::clone(calls), state.number)),
                    Phase::Connecting => {}
                    // The pause may be over before a caller that waited runs again. Its attempt has failed anyway.
                    Phase::Idle { until_ns, why: Some(why) }
                        if has_waited || self.clock.now().as_nanos() < *until_ns =>
                    {
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
            has_waited = true;
        }
    }

    /// Starts an attempt to connect.
    fn connect(self: &Arc<Self>, runtime: &Handle) {
        let (server, own, handle) = (Arc::clone(self), Arc::clone(self), runtime.clone());
        // Created here, so that the attempt ends even if the task never runs: a runtime that shuts down drops its
        // tasks. An attempt that panics fails, so that a pause follows.
        let dropped = OnDrop::new(move || {
            own.connected(thread::panicking().then(|| Err(panicked())));
        });
        runtime.spawn(async move {
            let (result, mut renewal) = match server.dial(&handle).await {
                Ok((connection, renewal)) => (Ok(connection), renewal),
                Err(error) => (Err(error), None),
            };
            dropped.cancel();
            // Waiting calls continue from here.
            let mut number = server.connected(Some(result));
            let weak = Arc::downgrade(&server);
            drop(server);
            while let Some(current) = number {
                let watch = Self::watch_eviction(weak.clone(), current);
                let Some(mut own) = renewal.take() else { return watch.await };
                let keep = Self::keep_up(&weak, &handle, current, &mut own);
                number = match select(pin!(watch), pin!(keep)).await {
                    Either::Left(((), keep)) => keep.await,
                    Either::Right((number, _)) => number,
                };
                renewal = Some(own);
            }
        });
    }

    /// Makes a connection.
    async fn dial(&self, runtime: &Handle) -> RedisResult<(MultiplexedConnection, Option<Renewal>)> {
        let dial = async {
            let (client, renewal) = self.prepare(runtime).await?;
            // Each call has its own time-out.
            let config =
                AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connecting.await.inspect_err(|error| self.note_refusal(error))?;
            if self.options.locate.is_some() {
                check_role(&mut connection).await?;
            }
            Ok((connection, renewal))
        };
        let fresh = timeout(CONNECT, dial).await.unwrap_or_else(|_| Err(timed_out()));
        fresh.map_err(|error| self.name_tls(error))
    }

    /// Reports that the server refused the provider's credentials, if that is the error.
    fn note_refusal(&self, error: &RedisError) {
        if self.options.credentials.is_some() && error.kind() == Theirs::AuthenticationFailed {
            self.options.refused(error);
        }
    }

    /// Returns the library's client for a new connection: with the present place of the server, and the present
    /// credentials.
    pub(super) async fn prepare(&self, runtime: &Handle) -> RedisResult<(Client, Option<Renewal>)> {
        let ConnectionOptions { locate, credentials, .. } = &self.options;
        if self.options.is_empty() {
            return Ok((self.client.clone(), None));
        }
        let mut info = self.client.get_connection_info().clone();
        if let Some(locate) = locate {
            info = info.set_addr(locate.locate(runtime, self.address()).await?.0);
        }
        let mut later = credentials.as_ref().map(|provider| provider.subscribe());
        if let Some(later) = &mut later {
            let present = options::first(later).await.inspect_err(|error| self.options.missing(error))?;
            let mut settings = info.redis_settings().clone().set_password(present.password());
            if !present.username().is_empty() {
                settings = settings.set_username(present.username());
            }
            info = info.set_redis_settings(settings);
        }
        let renewal = Renewal { address: info.addr().clone(), credentials: later, ends: self.options.ends() };
        Ok((Client::open(info)?, Some(renewal)))
    }

    /// Keeps a connection up until it is lost or replaced. Returns the number of the connection that replaced it, whose
    /// renewal is then in `own`.
    async fn keep_up(server: &Weak<Self>, runtime: &Handle, number: u64, own: &mut Renewal) -> Option<u64> {
        let mut unsent: Option<BasicAuth> = None;
        loop {
            let changed =
                match select(pin!(options::next(&mut own.credentials)), pin!(sleep(RENEWAL_CHECK))).await {
                    Either::Left((changed, _)) => Some(changed),
                    Either::Right(_) => None,
                };
            let server = server.upgrade()?;
            let (calls, current) = server.current()?;
            if current != number {
                return None;
            }
            match changed {
                Some(Ok(credentials)) => unsent = Some(credentials),
                Some(Err(error)) => server.options.missing(&error),
                None => {}
            }
            if let Some(credentials) = &unsent {
                match authenticate(&calls, credentials).await {
                    Ok(()) => unsent = None,
                    Err(error) if script::is_lost(&error) => server.judge(number, true),
                    Err(error) => server.options.refused(&error),
                }
            }
            if server.has_moved(runtime, &own.address).await {
                server.judge(number, true);
            }
            if own.ends.is_some_and(|ends| ends <= Instant::now())
                && let Ok((connection, Some(renewal))) = server.dial(runtime).await
                && server.current().is_some_and(|(_, current)| current == number)
            {
                *own = renewal;
                return server.connected(Some(Ok(connection)));
            }
        }
    }

    /// Returns whether the server is certainly no longer at this address.
    async fn has_moved(&self, runtime: &Handle, from: &ConnectionAddr) -> bool {
        let Some(locate) = &self.options.locate else { return false };
        let place = locate.locate(runtime, self.address()).await;
        place.is_ok_and(|(address, is_certain)| is_certain && address != *from)
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
                Phase::Ready(BatchedCalls::new(connection))
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
        let Phase::Ready(calls) = &state.phase else { return };
        if state.number != number || state.is_being_tested {
            return;
        }
        let mut connection = calls.connection();
        state.is_being_tested = true;
        drop(state);
        let (server, own) = (Arc::clone(self), Arc::clone(self));
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
            server.judge(number, is_dead);
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
        let (calls, number) = match self.current() {
            Some(current) => current,
            None => Box::pin(self.ready(runtime)).await?,
        };
        let unanswered = OnDrop::new(|| self.test_with_ping(runtime, number));
        let answer = if asking {
            let mut both = ::redis::pipe();
            both.cmd("ASKING").add_command(command);
            let answers = calls.connection().req_packed_commands(&both, 1, 1).await;
            answers.and_then(|mut answers| answers.pop().unwrap_or_default().extract_error())
        } else {
            calls.call(runtime, command).await.and_then(Value::extract_error)
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

/// Sends credentials on a connection. If the server refuses them, the connection stays as it was.
async fn authenticate(calls: &BatchedCalls, credentials: &BasicAuth) -> RedisResult<()> {
    let mut command = ::redis::cmd("AUTH");
    if !credentials.username().is_empty() {
        command.arg(credentials.username());
    }
    command.arg(credentials.password());
    let answer = timeout(SILENT, calls.connection().req_packed_command(&command)).await;
    answer.unwrap_or_else(|_| Err(timed_out()))?.extract_error().map(drop)
}

/// Checks that a server says that it is a master. A user that may not ask passes: a replica refuses writes anyway.
async fn check_role(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let answer = connection.req_packed_command(&::redis::cmd("ROLE")).await;
    let is_master = match answer.and_then(Value::extract_error) {
        Ok(Value::Array(parts)) => {
            matches!(parts.first(), Some(Value::BulkString(role)) if role == b"master")
        }
        Err(error) if script::is_lost(&error) => return Err(error),
        _ => true,
    };
    let replica = "the server that the Sentinels name is a replica";
    if is_master { Ok(()) } else { Err((Theirs::Client, replica).into()) }
}

/// Returns the address of another server with the same settings.
pub(crate) fn address_like(like: &ConnectionAddr, host: &str, port: u16) -> ConnectionAddr {
    match like {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    }
}

/// The client library panics if the program lacks something. The panic's own message, which the library prints, names
/// it.
fn panicked() -> RedisError {
    (::redis::ErrorKind::InvalidClientConfig, "the attempt to connect panicked").into()
}

pub(crate) fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

pub(crate) fn address(error: &RedisError) -> Error {
    let what = if error.kind() == ::redis::ErrorKind::InvalidClientConfig && error.to_string().contains("TLS")
    {
        "rediss:// needs TLS; enable a TLS feature of the redis crate, such as tokio-rustls-comp"
    } else {
        "expected redis://[[user]:password@]host[:port][/database], redis-sentinel://[[user]:password@]host[:port],…/name or \
         unix:///path"
    };
    Error::new(ErrorKind::Address, what)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Cause: a caller that waited for an attempt began another one if it ran again after the pause. Trigger: a busy
    /// machine. Symptom: one call made several attempts.
    #[test]
    fn caller_fails_with_its_attempt_although_the_pause_is_over() {
        let client = Client::open("redis://127.0.0.1:1").unwrap();
        let server = ServerConnection::of(&client, ConnectionOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        server.state().phase = Phase::Connecting;
        let mut waits = pin!(server.ready(runtime.handle()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        server.state().phase = Phase::Idle { until_ns: 0, why: Some(timed_out()) };
        server.changed.send_replace(());
        assert!(matches!(waits.as_mut().poll(&mut context), Poll::Ready(Err(_))));
        assert!(matches!(server.state().phase, Phase::Idle { .. }), "no other attempt began");
    }
}
