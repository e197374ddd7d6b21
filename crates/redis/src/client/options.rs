//! Connections that are renewed: users and passwords that change, the age of a connection, and a master that moves.
//!
//! 1. An attempt to connect subscribes to the provider, and uses the first credentials of the stream.
//! 2. The connection keeps the stream. Later credentials are sent with AUTH on the same connection, between the calls.
//! 3. A server that refuses AUTH leaves the connection as it was. So the connection stays in use, and AUTH is repeated
//!    until it succeeds or other credentials arrive.
//! 4. A connection that reaches its age is replaced: the new one is made first, and the old one ends after its calls.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{
    BasicAuth, ConnectionAddr, ErrorKind as Theirs, RedisError, RedisResult, StreamingCredentialsProvider,
};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, pending};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tollgate::internals::sync::{AtomicU64, Ordering};
use tollgate::{Clock, StdClock};
use tollgate_protocol::{Error, ErrorKind, script};

use super::credentials::{CredentialStream, FAULTS};
use crate::telemetry::{count_refused_credentials, credentials_refused};

/// The minimum time between two reports of credentials that cannot be used. Each is counted.
const REPORT_NS: u64 = 10_000_000_000;
type OnRefused = Arc<dyn Fn(&Error) + Send + Sync>;

/// Finds the server to connect to.
pub(crate) trait Locate: Send + Sync {
    /// Returns what is asked for the server, for events.
    fn address(&self) -> String;

    /// Returns the address of the server, and whether it is certain. `like` is an address with the same settings.
    fn locate<'a>(
        &'a self,
        runtime: &'a Handle,
        like: &'a ConnectionAddr,
    ) -> BoxFuture<'a, RedisResult<(ConnectionAddr, bool)>>;
}

/// How the connections of a client find their server and authenticate, how long they live, and what they count together.
#[derive(Clone, Default)]
pub(crate) struct ConnectionOptions {
    pub(super) locate: Option<Arc<dyn Locate>>,
    pub(super) credentials: Option<Arc<dyn StreamingCredentialsProvider>>,
    pub(super) max_age: Option<Duration>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) on_refused: Option<OnRefused>,
    /// The number of servers that report that they evict keys.
    pub(super) evicting: Arc<AtomicU64>,
}

/// The credentials that could not be used.
#[derive(Default)]
pub(crate) struct Refusals {
    count: AtomicU64,
    /// The time of the first report, and then of the last one.
    reported_ns: AtomicU64,
    clock: StdClock,
}

impl Refusals {
    pub(super) fn count(&self) -> u64 {
        // Ordering: Relaxed, here and in `add`. The count is only reported, and publishes no other memory.
        self.count.load(Ordering::Relaxed)
    }

    /// Counts a refusal. Returns whether to report it.
    fn add(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        let now_ns = self.clock.now().as_nanos().max(1);
        // Ordering: Relaxed. A report of two threads at once does no harm, and the time publishes no other memory.
        let before_ns = self.reported_ns.load(Ordering::Relaxed);
        let is_due = before_ns == 0 || now_ns.saturating_sub(before_ns) >= REPORT_NS;
        if is_due {
            self.reported_ns.store(now_ns, Ordering::Relaxed);
        }
        is_due
    }
}

impl ConnectionOptions {
    /// Whether connections are made once and never renewed.
    pub(super) fn is_empty(&self) -> bool {
        self.locate.is_none() && self.credentials.is_none() && self.max_age.is_none()
    }

    /// Counts and reports that the provider has no credentials.
    pub(super) fn missing(&self, error: &RedisError) {
        self.report(|| of_provider(error));
    }

    /// Counts and reports that the server refused the credentials.
    pub(super) fn refused(&self, error: &RedisError) {
        self.report(|| script::failure(error));
    }

    fn report(&self, error: impl Fn() -> Error) {
        count_refused_credentials();
        if self.refusals.add() {
            let error = error();
            credentials_refused(&error);
            if let Some(tell) = &self.on_refused {
                tell(&error);
            }
        }
    }

    /// Returns when a connection that is made now is to be replaced: after nine tenths to all of its age.
    pub(super) fn ends(&self) -> Option<Instant> {
        let part = ahash::RandomState::new().hash_one(0) % 101;
        let age = self.max_age?.saturating_mul(900 + u32::try_from(part).unwrap_or(0)) / 1_000;
        Instant::now().checked_add(age)
    }
}

/// Waits for the next credentials, for ever if there are none. A stream that ends is removed.
pub(super) async fn next(stream: &mut Option<CredentialStream>) -> RedisResult<BasicAuth> {
    if let Some(changes) = stream {
        if let Some(credentials) = changes.next().await {
            return credentials;
        }
        *stream = None;
    }
    pending().await
}

/// Returns the credentials for a new connection.
pub(super) async fn first(stream: &mut CredentialStream) -> RedisResult<BasicAuth> {
    let ended = || (Theirs::AuthenticationFailed, "the provider of credentials has none").into();
    stream.next().await.unwrap_or_else(|| Err(ended()))
}

/// Returns the error of a provider without its text, which may contain secrets. The texts of files contain none.
fn of_provider(error: &RedisError) -> Error {
    let text = error.to_string();
    let fault = FAULTS.into_iter().find(|fault| text.starts_with(fault));
    Error::new(ErrorKind::Refused, fault.unwrap_or("the provider has no credentials"))
}
