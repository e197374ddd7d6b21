//! The start of the face, and a connection from its first byte to its last.
//!
//! ```text
//! read what has come ─► answer all whole commands ─► write all answers ─┐
//!   ▲                                                                   │
//!   └───────────────────────────────────────────────────────────────────┘
//! the drain: what is on its way is answered, until the client pauses ─► the end of the stream
//! ```
//! A client that sends no password, or half of a command, is closed after [`HANDSHAKE`]. One that does not take its answers is closed
//! after [`SLOW`]. Otherwise a connection may be idle for ever: clients keep some in a pool. It has no longest age, because the protocol
//! cannot tell a client that a connection ends, and the next command would be lost.

use std::future::pending;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tollgate::{Clock, QuantaClock};

use super::answer::{Session, Shared, Step};
use super::quotas::Quotas;
use super::read::Limits;
use super::users::Users;
use crate::args::resp::ServeResp;
use crate::args::serve::ServeArgs;
use crate::error::Error;
use crate::serve::answer::Answerer;
use crate::serve::connections::{
    Face, FaceContext, HANDSHAKE, Protocol, ServerPhase, is_closing, linger, patience,
};
use crate::serve::listen::{Io, Listener};
use crate::serve::log;
use crate::serve::stats::Stats;
use crate::serve::tls::Tls;

/// How long a client may take to read its answers.
const SLOW: Duration = Duration::from_secs(10);

/// A client that sends nothing for this long during the drain has no command on its way.
const PAUSE: Duration = Duration::from_millis(20);

/// How often the file of users is compared.
const SECOND: Duration = Duration::from_secs(1);

/// The room for what is read at once: at first, and at most.
const ROOM: usize = 4 << 10;
const MOST_ROOM: usize = 64 << 10;

/// The most texts of a command.
const MOST_ARGS: usize = 1_024;

/// Where the face will listen, and what it needs.
#[derive(Debug)]
pub struct Start {
    listener: Listener,
    tls: Option<Arc<Tls>>,
    users: Option<Users>,
}

impl Start {
    /// Opens the listener and reads the users. `None` if the face is off.
    ///
    /// # Errors
    /// If the address or the file of users cannot be used.
    pub async fn open(args: &ServeArgs, tls: Option<&Arc<Tls>>) -> Result<Option<Self>, Error> {
        let Some(addr) = args.resp.resp.addr() else { return Ok(None) };
        let users = users(&args.resp)?;
        let tls = tls.filter(|_| !args.resp.resp_plain).cloned();
        let listener = Listener::tcp("resp", addr).await?;
        warn_of_open_door(addr, users.is_some() || args.tls.client_ca.is_some() && tls.is_some());
        Ok(Some(Self { listener, tls, users }))
    }

    /// Returns what the line at the start says.
    pub fn described(&self) -> String {
        let tls = if self.tls.is_some() { " with TLS" } else { "" };
        format!("resp on {}{tls}", self.listener)
    }

    /// Accepts clients until the server is closing.
    pub fn serve(self, args: &ServeArgs, answerer: &Arc<Answerer>, context: FaceContext) {
        let Self { listener, tls, users } = self;
        let shared = Arc::new(Shared {
            answerer: Arc::clone(answerer),
            quotas: Quotas::new(QuantaClock::default(), args.resp.resp_quotas, args.resp.resp_quota_memory),
            users,
            limits: Limits { args: MOST_ARGS, bytes: args.bounds.max_message },
            deadline: args.bounds.deadline,
            stats: Arc::clone(&context.stats),
            last_id: 0.into(),
        });
        if shared.users.is_some() {
            tokio::spawn(read_users_again(Arc::clone(&shared)));
        }
        let face = Face { listener, tls, protocol: Protocol::Resp, context };
        tokio::spawn(
            face.serve_streams(move |stream, peer, phase| talk(Arc::clone(&shared), stream, peer, phase)),
        );
    }
}

/// Reads the file of users, if there is one.
///
/// # Errors
/// If it cannot be used.
pub fn users(args: &ServeResp) -> Result<Option<Users>, Error> {
    args.resp_users.as_deref().map(Users::load).transpose()
}

/// Writes a warning if everyone in the network may ask.
fn warn_of_open_door(addr: SocketAddr, has_lock: bool) {
    if !has_lock && !addr.ip().is_loopback() {
        log::warn(format_args!(
            "all that reach {addr} can use and exhaust the limits of Redis clients; --resp-users or --client-ca lets in those that \
             you know"
        ));
    }
}

/// Reads the users again when their file changes. Ends with the process.
async fn read_users_again(shared: Arc<Shared>) {
    let mut second = interval(SECOND);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        let shared = Arc::clone(&shared);
        // Files can be slow.
        let _ = spawn_blocking(move || shared.users.as_ref().map(Users::reload_if_changed)).await;
    }
}

/// Serves a client to the end of its connection.
pub async fn talk<C: Clock + Clone>(
    shared: Arc<Shared<C>>,
    stream: Io,
    peer: String,
    phase: watch::Receiver<ServerPhase>,
) {
    let stats = Arc::clone(&shared.stats);
    let mut talk = Talk { session: Session::new(shared, peer), stream, input: Vec::new(), stats };
    let mut watched = phase.clone();
    let mut closing = pin!(async move {
        let _ = watched.wait_for(is_closing).await;
    });
    let began = Instant::now();
    // Since when a part of a command has been there.
    let mut half = None;
    loop {
        let since = if talk.session.is_stranger() { Some(began) } else { half };
        tokio::select! {
            biased;
            () = &mut closing => {
                talk.finish(patience(&phase)).await;
                break;
            }
            () = late(since) => {
                talk.stats.handshakes_late.add();
                return;
            }
            is_open = talk.read() => if !is_open {
                return;
            }
        }
        let arrived = talk.input.len();
        if !talk.answer().await {
            break;
        }
        half = match talk.input.len() {
            0 => None,
            left if left < arrived => Some(Instant::now()),
            _ => half.or_else(|| Some(Instant::now())),
        };
    }
    let _ = timeout(patience(&phase), linger(talk.stream)).await;
}

/// Waits until a client is late that was to send something since this time.
async fn late(since: Option<Instant>) {
    match since {
        Some(since) => sleep_until(since + HANDSHAKE).await,
        None => pending().await,
    }
}

/// A connection with its bytes.
struct Talk<C> {
    session: Session<C>,
    stream: Io,
    /// What has arrived and is not answered.
    input: Vec<u8>,
    stats: Arc<Stats>,
}

impl<C: Clock + Clone> Talk<C> {
    /// Waits for bytes, and reads them. Returns `false` at the end of the stream.
    async fn read(&mut self) -> bool {
        if self.input.capacity() == self.input.len() {
            self.input.reserve(self.input.len().clamp(ROOM, MOST_ROOM));
        }
        matches!(self.stream.read_buf(&mut self.input).await, Ok(1..))
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
        if self.input.is_empty() && self.input.capacity() > MOST_ROOM {
            self.input = Vec::new();
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
            self.stats.resp_slow.add();
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
