//! The start of the endpoint, and a connection from its first byte to its last.
//!
//! ```text
//! read what has come ─► answer all whole commands ─► write all answers ─┐
//!   ▲                                                                   │
//!   └───────────────────────────────────────────────────────────────────┘
//! the drain: what is on its way is answered, until the client pauses ─► the end of the stream
//! ```
//! The connection of a client that sends no password, only a part of a command, or no end of a long transaction, is closed after
//! [`HANDSHAKE`]. The connection of a client that does not take its answers is closed after [`SLOW`]. Otherwise a connection may be idle for ever: clients keep some in a pool. The system closes those whose client has
//! disappeared. There is no longest age, because the protocol cannot tell a client that a connection ends, and the next command would be
//! lost.

use std::future::pending;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};
use tollgate::{Clock, DefaultClock};

use super::answer::{RespShared, Session, Step};
use super::counts::RespCounts;
use super::flags::ServeResp;
use super::quotas::Quotas;
use super::read::Limits;
use super::users::Users;
use tollgate_report::error::Error;
use tollgate_report::human;
use tollgate_serve::endpoint::{
    Backend, Count, Endpoint, EndpointFlags, EndpointService, EndpointState, HANDSHAKE, Io, Listening, Place,
    Protocol, ReadAgain, ServeArgs, ServerPhase, ShortHelp, StateFile, Stats, Tls, is_closing, linger,
    patience,
};
use tollgate_serve::log;

/// How long a client may take to read its answers.
const SLOW: Duration = Duration::from_secs(10);

/// A client that sends nothing for this long during the drain has no command on its way.
const PAUSE: Duration = Duration::from_millis(20);

/// The room for what is read at once: at first, and at most.
const ROOM: usize = 4 << 10;
const MOST_ROOM: usize = 16 << 10;

/// How many times [`MOST_ROOM`] all connections together may hold for commands that have arrived in part, beyond one for each: 64 MiB.
const LONG: usize = 4_096;

/// The most texts of a command.
const MOST_ARGS: usize = 1_024;

/// The error that a client receives if all connections are in use.
const NO_PLACE: &[u8] = b"-ERR max number of clients reached\r\n";

/// The end of the name of the file that has the limits of clients.
const SUFFIX: &str = ".resp";

struct Resp {
    users: Option<Users>,
    /// The address, if everyone in the network may ask there.
    open_at: Option<SocketAddr>,
    quotas: Arc<Quotas>,
    limits: Limits,
    deadline: Duration,
}

impl EndpointFlags for ServeResp {
    fn endpoints(
        &self,
        args: &ServeArgs,
        tls: Option<&Arc<Tls>>,
        stats: &Arc<Stats>,
    ) -> Result<Vec<Endpoint>, Error> {
        // The counts are on the pages without an endpoint, too.
        RespCounts::of(stats);
        let users = self.resp_users.as_deref().map(Users::load).transpose()?;
        let Some(addr) = self.resp.addr() else { return Ok(Vec::new()) };
        let tls = tls.filter(|_| !self.resp_plain).cloned();
        // Without one of these, the flags name no client.
        let has_lock = users.is_some() || args.tls.client_ca.is_some() && tls.is_some();
        let open_at = Some(addr).filter(|addr| !has_lock && !addr.ip().is_loopback());
        let quotas = Quotas::new(DefaultClock::default(), self.resp_quotas, self.resp_quota_memory);
        let limits = Limits { args: MOST_ARGS, bytes: args.bounds.max_message };
        let deadline = args.bounds.deadline;
        let resp = Resp { users, open_at, quotas: Arc::new(quotas), limits, deadline };
        let endpoint = Endpoint::new("resp", Place::Port(addr), Protocol::Stream { full: NO_PLACE }, resp);
        Ok(vec![Endpoint { tls, decides: true, ..endpoint }])
    }

    fn deciding(&self) -> &'static [&'static str] {
        &["--resp"]
    }

    fn short_help() -> ShortHelp {
        ShortHelp {
            endpoints: "  --resp ADDRESS     Redis clients: CL.THROTTLE, GCRA, ... [default: off]\n",
            security: "  --resp-users FILE                Users and passwords of Redis clients\n  \
                       --resp-plain                     No TLS for Redis clients beside --tls-cert\n",
        }
    }
}

impl EndpointState for Quotas {
    fn suffix(&self) -> &'static str {
        SUFFIX
    }

    fn save(&self, mut to: &mut dyn Write) -> io::Result<()> {
        Self::save(self, &mut to)
    }
}

impl EndpointService for Resp {
    /// Takes over the usage of the last process.
    fn prepare(&mut self, state: Option<&StateFile>) -> Result<(), Error> {
        let Some(state) = state else { return Ok(()) };
        let quotas = Arc::get_mut(&mut self.quotas);
        let quotas = quotas
            .ok_or_else(|| Error::run("the limits of Redis clients are in use before their state is read"))?;
        state.restore(SUFFIX, "limits of Redis clients", |mut from| {
            let limits = human::counted(quotas.restore(&mut from)? as u64, "limit");
            Ok(format!("{limits} of Redis clients"))
        })
    }

    fn state(&self) -> Option<Arc<dyn EndpointState>> {
        Some(Arc::<Quotas>::clone(&self.quotas))
    }

    fn start(self: Box<Self>, listening: Listening, backend: &Backend) -> Result<Option<ReadAgain>, Error> {
        if let Some(addr) = self.open_at {
            log::warn(format_args!(
                "all that reach {addr} can use and exhaust the limits of Redis clients; --resp-users or --client-ca lets in those that \
                 you know"
            ));
        }
        let (answerer, stats) = (Arc::clone(&backend.answerer), Arc::clone(&backend.stats));
        let Resp { quotas, users, limits, deadline, .. } = *self;
        let shared = Arc::new(RespShared::new(answerer, quotas, users, limits, deadline, stats));
        let (long, again) = (Arc::new(Semaphore::new(LONG)), Arc::clone(&shared));
        tokio::spawn(listening.serve_streams(move |stream, peer, phase| {
            talk(Arc::clone(&shared), Arc::clone(&long), stream, peer, phase)
        }));
        // Each second. Idle quotas give their memory back.
        Ok(Some(Arc::new(move || {
            again.users.iter().for_each(Users::reload_if_changed);
            again.quotas.drop_idle();
        })))
    }
}

/// Serves a client to the end of its connection.
pub async fn talk<C: Clock + Clone>(
    shared: Arc<RespShared<C>>,
    long: Arc<Semaphore>,
    stream: Io,
    peer: String,
    phase: watch::Receiver<ServerPhase>,
) {
    let (stats, slow) = (Arc::clone(&shared.stats), Arc::clone(&shared.counts.slow));
    let mut talk = RespConnection {
        session: Session::new(shared, peer),
        stream,
        input: Vec::new(),
        long,
        held: None,
        stats,
        slow,
    };
    let mut watched = phase.clone();
    let mut closing = pin!(async move {
        let _ = watched.wait_for(is_closing).await;
    });
    // The times since which the client owes a password, the rest of a command, and the end of a long transaction.
    let mut without_user = talk.session.is_unauthenticated().then(Instant::now);
    let (mut half, mut queued) = (None, None);
    loop {
        tokio::select! {
            biased;
            () = &mut closing => {
                talk.finish(patience(&phase)).await;
                break;
            }
            () = late([without_user, half, queued].into_iter().flatten().min()) => {
                talk.stats.handshakes_late.add();
                return;
            }
            // The client must be able to read why the connection ends.
            is_open = talk.read() => if !is_open {
                break;
            }
        }
        let arrived = talk.input.len();
        if !talk.answer().await {
            break;
        }
        without_user = talk.session.is_unauthenticated().then(|| without_user.unwrap_or_else(Instant::now));
        half = match talk.input.len() {
            0 => None,
            left if left < arrived => Some(Instant::now()),
            _ => half.or_else(|| Some(Instant::now())),
        };
        queued = talk.session.has_long_queue().then(|| queued.unwrap_or_else(Instant::now));
    }
    let _ = timeout(patience(&phase), linger(talk.into_stream())).await;
}

/// Waits until a client that should have sent something since this time has used up its time. Without a time, waits for ever.
async fn late(since: Option<Instant>) {
    match since {
        Some(since) => sleep_until(since + HANDSHAKE).await,
        None => pending().await,
    }
}

/// A connection with its bytes.
struct RespConnection<C> {
    session: Session<C>,
    stream: Io,
    /// What has arrived and is not answered.
    input: Vec<u8>,
    /// The memory that all connections have for long commands, and this connection's part of it.
    long: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    stats: Arc<Stats>,
    /// Counts clients that do not take their answers.
    slow: Arc<Count>,
}

impl<C: Clock + Clone> RespConnection<C> {
    /// Returns the stream, and gives all memory back.
    fn into_stream(self) -> Io {
        self.stream
    }

    /// Waits for bytes, and reads them. Returns `false` at the end of the stream.
    async fn read(&mut self) -> bool {
        if self.input.capacity() == self.input.len() && !self.make_room() {
            self.stats.protocol_errors.add();
            let message = b"-ERR other clients are sending too many long commands; try again later\r\n";
            let _ = timeout(SLOW, self.stream.write_all(message)).await;
            return false;
        }
        matches!(self.stream.read_buf(&mut self.input).await, Ok(1..))
    }

    /// Makes room for what is read. Returns `false` if long commands of all connections take too much memory.
    fn make_room(&mut self) -> bool {
        if self.input.len() >= MOST_ROOM {
            let Ok(more) = Arc::clone(&self.long).try_acquire_owned() else { return false };
            match &mut self.held {
                Some(held) => held.merge(more),
                None => self.held = Some(more),
            }
        }
        self.input.reserve_exact(self.input.len().clamp(ROOM, MOST_ROOM));
        true
    }

    /// Answers what has arrived. Returns whether the connection goes on.
    async fn answer(&mut self) -> bool {
        loop {
            let step = self.session.answer(&mut self.input).await;
            if !self.send().await {
                return false;
            }
            match step {
                Step::End => return false,
                Step::GoOn => yield_now().await,
                Step::Read => break,
            }
        }
        // Also if a part of the next command is there: its client could leave one there for ever.
        if self.input.len() <= MOST_ROOM && self.held.take().is_some() {
            self.input.shrink_to(MOST_ROOM);
        }
        true
    }

    /// Sends the answers. Returns whether the client took them.
    async fn send(&mut self) -> bool {
        if self.session.replies().is_empty() {
            return true;
        }
        let Self { session, stream, .. } = self;
        let sent = timeout(SLOW, async {
            stream.write_all(session.replies()).await?;
            stream.flush().await
        });
        let sent = sent.await;
        if sent.is_err() {
            self.slow.add();
        }
        self.session.sent();
        matches!(sent, Ok(Ok(())))
    }

    /// Answers what is on its way, until the client pauses or is out of time.
    async fn finish(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        while let Ok(true) = timeout(PAUSE, self.read()).await {
            if !self.answer().await || Instant::now() >= end {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tollgate::{Capacity, ManualClock, Timestamp};
    use tollgate_rules::Rules;

    use super::*;
    use tollgate_serve::answer::{Answerer, Settings};
    use tollgate_serve::endpoint::Listener;

    const SECOND: Duration = Duration::from_secs(1);

    /// A connection in paused time: as long as nothing happens, time passes at once.
    struct Waiting<S = DuplexStream> {
        client: S,
        stats: Arc<Stats>,
        slow: Arc<Count>,
        phase: watch::Sender<ServerPhase>,
        long: Arc<Semaphore>,
    }

    const RULES: &str =
        "{ domain: d, descriptors: [{ key: k, rate_limit: { unit: hour, requests_per_unit: 1 } }] }";

    fn connect(users: Option<&str>) -> Waiting {
        let (client, server) = duplex(1_000);
        begin(users, Io::new(server), client)
    }

    fn begin<S>(users: Option<&str>, server: Io, client: S) -> Waiting<S> {
        let clock = ManualClock::new(Timestamp::from_secs(1));
        let folder = tempfile::tempdir().unwrap();
        let users = users.map(|text| {
            let path = folder.path().join("users.acl");
            std::fs::write(&path, format!("{text}\n")).unwrap();
            Users::load(&path).unwrap()
        });
        let rules = Rules::builder()
            .clock(clock.clone())
            .load([tollgate_rules::Config::from_yaml("r", RULES).unwrap()]);
        let stats = Arc::new(Stats::default());
        let shared = RespShared::new(
            Arc::new(Answerer::new(Arc::new(rules.unwrap()), Settings::default())),
            Quotas::new(clock, 8, Capacity::memory(1 << 12)).into(),
            users,
            Limits { args: 100, bytes: 1 << 20 },
            SECOND,
            Arc::clone(&stats),
        );
        let (phase, watched) = watch::channel(ServerPhase::Serving);
        let (slow, long) = (Arc::clone(&shared.counts.slow), Arc::new(Semaphore::new(2)));
        tokio::spawn(talk(Arc::new(shared), Arc::clone(&long), server, "a test".to_owned(), watched));
        Waiting { client, stats, slow, phase, long }
    }

    impl Waiting {
        /// Returns what comes until the end, and the seconds until then.
        async fn ended(&mut self) -> (Vec<u8>, u64) {
            let (began, mut all) = (Instant::now(), Vec::new());
            let read = timeout(Duration::from_secs(3_600), self.client.read_to_end(&mut all)).await;
            let _ = read.expect("the server keeps the connection");
            (all, began.elapsed().as_secs())
        }
    }

    // G141
    #[tokio::test(start_paused = true)]
    async fn half_commands_are_closed_after_ten_seconds() {
        let mut half = connect(None);
        half.client.write_all(b"PING\r\n*1\r\n$4\r\nPI").await.unwrap();
        assert_eq!(half.ended().await, (b"+PONG\r\n".to_vec(), 10));
        assert_eq!(half.stats.handshakes_late.get(), 1);
        // One byte after another does not help.
        let mut slow = connect(None);
        for byte in b"*1\r\n$4\r\nPING\r\n" {
            let _ = slow.client.write_all(&[*byte]).await;
            tokio::time::sleep(SECOND).await;
        }
        assert_eq!(slow.ended().await.0, b"");
    }

    #[tokio::test(start_paused = true)]
    async fn long_transactions_are_closed_after_ten_seconds_and_short_ones_stay() {
        let mut long = connect(None);
        let echo = format!("MULTI\r\nECHO {}\r\n", "e".repeat(8_000));
        long.client.write_all(echo.as_bytes()).await.unwrap();
        tokio::time::sleep(HANDSHAKE / 2).await;
        // A command more does not help.
        long.client.write_all(b"PING\r\n").await.unwrap();
        assert_eq!(long.ended().await, (b"+OK\r\n+QUEUED\r\n+QUEUED\r\n".to_vec(), 5));
        let mut short = connect(None);
        short.client.write_all(b"MULTI\r\nPING\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        short.client.write_all(b"EXEC\r\nQUIT\r\n").await.unwrap();
        assert_eq!(short.ended().await.0, b"+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n+OK\r\n");
    }

    // G141
    #[tokio::test(start_paused = true)]
    async fn strangers_are_closed_after_ten_seconds_and_idle_users_stay() {
        let users = Some("user a on >x");
        let mut unauthenticated = connect(users);
        unauthenticated.client.write_all(b"PING\r\n").await.unwrap();
        let (told, seconds) = unauthenticated.ended().await;
        assert!(told.starts_with(b"-NOAUTH") && seconds == 10);
        for (mut idle, greeting) in [(connect(users), &b"AUTH a x\r\n"[..]), (connect(None), b"")] {
            idle.client.write_all(greeting).await.unwrap();
            tokio::time::sleep(Duration::from_secs(86_400)).await;
            idle.client.write_all(b"ECHO there\r\nQUIT\r\n").await.unwrap();
            let (told, _) = idle.ended().await;
            assert!(told.ends_with(b"$5\r\nthere\r\n+OK\r\n"));
        }
    }

    // G141
    #[tokio::test(start_paused = true)]
    async fn users_that_reset_have_time_to_log_in_again() {
        let mut client = connect(Some("user a on >x"));
        client.client.write_all(b"AUTH a x\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        client.client.write_all(b"RESET\r\n").await.unwrap();
        tokio::time::sleep(HANDSHAKE - SECOND).await;
        client.client.write_all(b"AUTH a x\r\n").await.unwrap();
        tokio::time::sleep(HANDSHAKE).await;
        // The time of one that does not is not renewed.
        client.client.write_all(b"RESET\r\n").await.unwrap();
        tokio::time::sleep(HANDSHAKE / 2).await;
        let _ = client.client.write_all(b"RESET\r\n").await;
        assert_eq!(client.ended().await, (b"+OK\r\n+RESET\r\n+OK\r\n+RESET\r\n+RESET\r\n".to_vec(), 5));
    }

    // G141
    #[tokio::test(start_paused = true)]
    async fn room_of_a_long_command_is_given_back_before_the_next_one_is_whole() {
        let mut client = connect(None);
        let length = 3 * MOST_ROOM - 64;
        let long = [format!("*2\r\n$4\r\nECHO\r\n${length}\r\n").into_bytes(), vec![b'e'; length]].concat();
        client.client.write_all(&long).await.unwrap();
        client.client.write_all(b"\r\nPIN").await.unwrap();
        client.client.read_exact(&mut vec![0; length + 10]).await.unwrap();
        tokio::time::sleep(PAUSE).await;
        assert_eq!(client.long.available_permits(), 2);
        client.client.write_all(b"G\r\nQUIT\r\n").await.unwrap();
        assert_eq!(client.ended().await.0, b"+PONG\r\n+OK\r\n");
    }

    // G141
    #[tokio::test(start_paused = true)]
    async fn long_commands_share_a_bound_of_memory() {
        let echo = |length: usize| {
            [format!("*2\r\n$4\r\nECHO\r\n${length}\r\n").into_bytes(), vec![b'e'; length]].concat()
        };
        let mut client = connect(None);
        // This one needs no more than the connection has, and the next one needs all that there is.
        for (length, held) in [(MOST_ROOM / 2, 0), (3 * MOST_ROOM - 64, 2), (MOST_ROOM / 2, 0)] {
            client.client.write_all(&echo(length)).await.unwrap();
            tokio::time::sleep(PAUSE).await;
            assert_eq!(client.long.available_permits(), 2 - held, "{length}");
            client.client.write_all(b"\r\n").await.unwrap();
            client
                .client
                .read_exact(&mut vec![0; length + format!("${length}\r\n\r\n").len()])
                .await
                .unwrap();
        }
        let _ = timeout(SECOND, client.client.write_all(&echo(6 * MOST_ROOM))).await;
        let (told, _) = client.ended().await;
        assert!(told.starts_with(b"-ERR other clients are sending too many long commands"));
        assert_eq!(client.long.available_permits(), 2);
    }

    // G141
    #[tokio::test]
    async fn client_of_a_refused_command_reads_why() {
        let listener = Listener::tcp("resp", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let mut client = tokio::net::TcpStream::connect(listener.to_string()).await.unwrap();
        // More than the room permits, so a part of it stays unread, and the system could reset the connection.
        client
            .write_all(format!("*2\r\n$4\r\nECHO\r\n$500000\r\n{}", "e".repeat(200_000)).as_bytes())
            .await
            .unwrap();
        let mut waiting = begin(None, listener.accept().await.unwrap().open().0, client);
        let mut told = Vec::new();
        waiting.client.read_to_end(&mut told).await.unwrap();
        assert!(told.starts_with(b"-ERR other clients are sending too many long commands"), "{told:?}");
    }

    // G141
    #[tokio::test(start_paused = true)]
    async fn slow_readers_are_cut_off() {
        let mut deaf = connect(None);
        // The pipe holds 1,000 bytes in each direction.
        let pings = b"PING\r\n".repeat(100);
        while timeout(SECOND, deaf.client.write_all(&pings)).await.is_ok() {}
        tokio::time::sleep(8 * SECOND).await;
        assert_eq!(deaf.slow.get(), 0);
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(deaf.slow.get(), 1);
        assert!(deaf.ended().await.0.len() <= 1_000);
    }

    // G141
    #[tokio::test(start_paused = true)]
    async fn closing_answers_what_is_on_its_way() {
        let mut client = connect(None);
        client.client.write_all(b"PING\r\nPING\r\n*1\r\n").await.unwrap();
        client.phase.send_replace(ServerPhase::Closing);
        assert_eq!(client.ended().await.0, b"+PONG\r\n+PONG\r\n");
        // One that never pauses is answered until it is out of time.
        let mut busy = connect(None);
        busy.client.write_all(b"PING\r\n").await.unwrap();
        busy.phase.send_replace(ServerPhase::Closing);
        let (began, mut pong) = (Instant::now(), [0; 7]);
        while busy.client.read_exact(&mut pong).await.is_ok() {
            tokio::time::sleep(PAUSE / 2).await;
            let _ = busy.client.write_all(b"PING\r\n").await;
        }
        let millis = began.elapsed().as_millis();
        assert!((1_000..1_100).contains(&millis), "{millis}");
    }
}
