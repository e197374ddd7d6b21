//! Settings of a shared limiter that do not depend on its mode.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Limit, QuotaError};
use tollgate_protocol::head;

use super::sharded::{KeyPlaces, Routes};

/// Decides a request while the server is unavailable.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate_redis::{Client, DecidedBy, Limit, OnFailure};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let absent = Client::open("redis://127.0.0.1:1/")?; // no server is there
/// let limit = Limit::gcra(Quota::per_hour(10));
/// let limiter = absent.limiter("api", limit).on_failure(OnFailure::Local { processes: 5 }).atomic()?;
/// let answer = limiter.check("alice").await;
/// assert_eq!(answer.by(), DecidedBy::Local);
/// assert!(answer.is_allowed() && limiter.check("alice").await.is_allowed()); // a fifth of ten
/// assert!(limiter.check("alice").await.is_denied());
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OnFailure {
    /// Admits the request without counting it.
    Open,
    /// Denies the request.
    Closed,
    /// This process decides alone, with its share of each limit: the limit divided by the number of processes, but at
    /// least one unit. This is the default, with one process.
    ///
    /// These units are in addition to the units that the server admits. If errors come and go, each window can admit up
    /// to twice the limit.
    Local {
        /// The number of processes that share the limits. If more processes exist, together they can admit more than
        /// the limit.
        processes: u32,
    },
}

impl OnFailure {
    /// The name in rules and events.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Local { .. } => "local",
        }
    }
}

impl Default for OnFailure {
    fn default() -> Self {
        Self::Local { processes: 1 }
    }
}

/// Decides when a limiter stops asking a server that fails.
///
/// 1. After the set number of failures in a row, the breaker opens. The limiter does not call the server for a pause.
///    Each process waits for half to all of the pause, chosen at random.
/// 2. After the pause, the limiter sends one request to the server.
/// 3. If the server answers, the limiter sends all requests again.
/// 4. If the server fails again, the pause doubles, up to eight times its first length and never above one second. A
///    pause that is set to more than one second does not grow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Breaker {
    pub(crate) failures: u32,
    pub(crate) pause: Duration,
}

impl Breaker {
    /// Opens after `failures` failures in a row (at least 1), for a pause of length `pause`.
    #[must_use]
    pub const fn new(failures: u32, pause: Duration) -> Self {
        Self { failures: if failures == 0 { 1 } else { failures }, pause }
    }
}

impl Default for Breaker {
    /// Five failures, and a pause of one second.
    fn default() -> Self {
        Self::new(5, Duration::from_secs(1))
    }
}

/// The settings that all modes share.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) places: KeyPlaces,
    pub(crate) limits: Arc<[Limit]>,
    pub(crate) timeout: Duration,
    pub(crate) breaker: Breaker,
    pub(crate) on_failure: OnFailure,
    /// The maximum number of keys held in this process.
    pub(crate) max_keys: usize,
    /// The limiter's name in metrics.
    pub(crate) name: Arc<str>,
}

/// Sets the options of a shared limiter. Then choose a mode: `atomic`, `leases` or `write_back`.
///
/// `T` is the client: a [`Client`](crate::Client) for async code, or a
/// [`Blocking<Client>`](crate::Blocking) for threads, whose limiters are `Blocking` too.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds a limiter"]
pub struct LimiterBuilder<T, O = ()> {
    pub(crate) client: T,
    pub(crate) prefix: String,
    pub(crate) settings: Settings,
    /// What only a limit on [requests in progress](InProgressOptions) has.
    pub(crate) options: O,
}

impl<T> LimiterBuilder<T> {
    pub(crate) fn new(client: T, routes: &Arc<Routes>, name: &str, limits: &[Limit]) -> Self {
        let settings = Settings {
            places: KeyPlaces::new(&[], routes),
            limits: limits.iter().map(|limit| limit.canonical()).collect(),
            timeout: Duration::from_millis(40),
            breaker: Breaker::default(),
            on_failure: OnFailure::default(),
            max_keys: 100_000,
            name: name.into(),
        };
        Self { client, prefix: "tollgate".to_owned(), settings, options: () }
    }

    /// Adds a limit on the same key. Each request is charged to all limits, or to none.
    pub fn and(mut self, limit: impl Into<Limit>) -> Self {
        self.settings.limits = [&*self.settings.limits, &[limit.into().canonical()]].concat().into();
        self
    }

    /// Sets the maximum number of keys held in this process. The maximum applies to leases, to keys that wait to be
    /// posted, and to keys that this process decides while the server is unavailable. Default: 100,000.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.settings.max_keys = max_keys.max(1);
        self
    }
}

impl<T, O> LimiterBuilder<T, O> {
    /// Sets the prefix of all keys in Redis. Default: `tollgate`.
    ///
    /// The prefix is escaped in the same way as names and keys: ASCII letters, digits and `.`, `_`, `-`, `:`, `/`, `@`
    /// stay. Any other byte becomes `%` and two hexadecimal digits. For example, the prefix `team a` gives keys like
    /// `team%20a:v1:{api|203.0.113.7}:g0`. The Redis ACL pattern that grants a user access to these keys is
    /// `~team%20a:v1:*`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Sets how long a call waits for the server. Default: 40 ms.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Sets when the limiter stops asking a server that fails. Default: after five failures in a row, for one second.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.settings.breaker = breaker;
        self
    }

    /// Sets what decides a request while the server is unavailable. Default: this process decides, as if it were the
    /// only process.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.settings.on_failure = on_failure;
        self
    }

    pub(crate) fn settings(&self) -> Settings {
        let settings = &self.settings;
        let places = KeyPlaces::new(&head(&self.prefix, &settings.name), &settings.places.routes);
        Settings { places, ..settings.clone() }
    }
}

/// The options of a limit on requests in progress. [`LimiterBuilder::life`] sets the life, and [`LimiterBuilder::build`] builds the
/// limiter.
#[derive(Copy, Clone, Debug)]
pub struct InProgressOptions {
    pub(crate) limit: u64,
    pub(crate) life: Duration,
}

impl<T> LimiterBuilder<T, InProgressOptions> {
    pub(crate) fn in_progress(client: T, routes: &Arc<Routes>, name: &str, limit: u64) -> Self {
        let LimiterBuilder { client, prefix, settings, .. } = LimiterBuilder::new(client, routes, name, &[]);
        let options = InProgressOptions { limit, life: Duration::from_secs(600) };
        Self { client, prefix, settings, options }
    }

    /// Sets how long a request can be in progress. Afterwards it does not count any more. Default: ten minutes.
    ///
    /// Choose a time that no request of a working server takes.
    pub fn life(mut self, life: Duration) -> Self {
        self.options.life = life;
        self
    }
}

/// Why a limiter that decides in this process could not be built.
#[non_exhaustive]
pub enum BuildError {
    /// The script on the server cannot count this quota exactly.
    Quota(QuotaError),
    /// The caller is not in a tokio runtime. The task that fetches or posts units needs one.
    NoRuntime,
    /// The limit, the client or the names do not fit several regions. The text states the reason and the remedy.
    Regions(Box<str>),
    /// The system could not start the thread that fetches or posts units.
    Thread(std::io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(error) => error.fmt(f),
            Self::Regions(why) => f.write_str(why),
            Self::NoRuntime => f.write_str(
                "the limiter needs a tokio runtime for its background task: build it inside one, or use the blocking client",
            ),
            Self::Thread(error) => {
                write!(f, "cannot start the limiter's background thread: {error}")
            }
        }
    }
}

tollgate::internals::debug_shows_message!(BuildError);

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Quota(error) => Some(error),
            Self::NoRuntime | Self::Regions(_) => None,
            Self::Thread(error) => Some(error),
        }
    }
}

impl From<QuotaError> for BuildError {
    fn from(error: QuotaError) -> Self {
        Self::Quota(error)
    }
}
