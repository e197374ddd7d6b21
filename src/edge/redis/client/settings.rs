//! What is set about a shared limiter, whatever its mode.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::quota::QuotaError;
use crate::edge::redis::protocol::{Limit, head};

/// What is done with a request while the server cannot be asked.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate::redis::{Client, DecidedBy, Limit, OnFailure};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nobody = Client::open("redis://127.0.0.1:1/")?; // no server is there
/// let limit = Limit::gcra(Quota::per_hour(10));
/// let limiter = nobody.limiter("api", limit).on_failure(OnFailure::Local { processes: 5 }).atomic()?;
/// let answer = limiter.check("alice").await;
/// assert_eq!(answer.by(), DecidedBy::Local);
/// assert!(answer.is_allowed() && limiter.check("alice").await.is_allowed()); // a fifth of ten
/// assert!(limiter.check("alice").await.is_denied());
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OnFailure {
    /// It is admitted, uncounted.
    Open,
    /// It is refused.
    Closed,
    /// This process decides by itself: each limit divided by the number of processes, but at least one unit. The default, with
    /// one process. It is beside what the server admits: while errors come and go, up to twice the limit is admitted in every window.
    Local {
        /// How many processes share the limits. If it is less than there are, more can be admitted in total than the limit.
        processes: u32,
    },
}

impl Default for OnFailure {
    fn default() -> Self {
        Self::Local { processes: 1 }
    }
}

/// When a server that fails is no longer asked.
///
/// After so many failures in a row it is not asked for a while (each process takes half to all of that time, at random); then
/// one request is sent to it, and if that is answered all are again. If not, the pause doubles, up to eight times, but not beyond a second; a
/// pause that is set longer than a second does not grow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Breaker {
    pub(crate) failures: u32,
    pub(crate) pause: Duration,
}

impl Breaker {
    /// Opens after `failures` in a row, at least 1, for `pause`.
    #[must_use]
    pub const fn new(failures: u32, pause: Duration) -> Self {
        Self { failures: if failures == 0 { 1 } else { failures }, pause }
    }
}

impl Default for Breaker {
    /// Five failures, and one second.
    fn default() -> Self {
        Self::new(5, Duration::from_secs(1))
    }
}

/// What the modes have in common.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What keys begin with; see `tag`.
    pub(crate) head: Arc<[u8]>,
    pub(crate) limits: Arc<[Limit]>,
    pub(crate) timeout: Duration,
    pub(crate) breaker: Breaker,
    pub(crate) on_failure: OnFailure,
    /// The most keys that are held in this process.
    pub(crate) max_keys: usize,
    /// For metrics.
    pub(crate) name: Arc<str>,
}

/// Sets what is optional about a shared limiter; each mode has its method that makes one.
///
/// `T` is the client: [`Client`](crate::edge::redis::Client) for async code, or [`BlockingClient`](crate::edge::redis::BlockingClient).
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until a limiter is made"]
pub struct Builder<T> {
    pub(crate) client: T,
    pub(super) prefix: String,
    pub(super) settings: Settings,
}

impl<T> Builder<T> {
    pub(crate) fn new(client: T, name: &str, limit: Limit) -> Self {
        let settings = Settings {
            head: Arc::default(),
            limits: [limit].into(),
            timeout: Duration::from_millis(40),
            breaker: Breaker::default(),
            on_failure: OnFailure::default(),
            max_keys: 100_000,
            name: name.into(),
        };
        Self { client, prefix: "tollgate".to_owned(), settings }
    }

    /// One more limit on the same key: each request is charged to all of them, or to none.
    pub fn and(mut self, limit: Limit) -> Self {
        self.settings.limits = [&*self.settings.limits, &[limit]].concat().into();
        self
    }

    /// What all keys in Redis begin with. Default: `tollgate`.
    ///
    /// It is escaped as names and keys are: ASCII letters, digits and `.`, `_`, `-`, `:`, `/`, `@` stay, and any other byte becomes `%` and two
    /// hexadecimal digits. So with `team a` all keys are like `team%20a:v1:{api|203.0.113.7}:g0`, and the pattern of an ACL in Redis
    /// that lets a user have them is `~team%20a:v1:*`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How long to wait for the server. Default: 40 ms.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// When a server that fails is no longer asked. Default: after five failures in a row, for one second.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.settings.breaker = breaker;
        self
    }

    /// What is done with a request while the server cannot be asked. Default: this process decides, as if it were alone.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.settings.on_failure = on_failure;
        self
    }

    /// The most keys that are held in this process: of leases, of what is to be posted, and of what is decided here while the
    /// server cannot be asked. Default: 100,000.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.settings.max_keys = max_keys.max(1);
        self
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings { head: head(&self.prefix, &self.settings.name).into(), ..self.settings.clone() }
    }
}

/// Why a limiter that decides in this process could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A quota is beyond what the shared state can reckon with.
    Quota(QuotaError),
    /// There is no tokio runtime here, for the task that fetches or posts units.
    NoRuntime,
    /// The thread that fetches or posts units could not be started.
    Thread(std::io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(error) => error.fmt(f),
            Self::NoRuntime => f.write_str(
                "the limiter fetches or posts units by a task: make it in a tokio runtime, or use the blocking client",
            ),
            Self::Thread(error) => {
                write!(f, "the thread that fetches or posts units cannot be started: {error}")
            }
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Quota(error) => Some(error),
            Self::NoRuntime => None,
            Self::Thread(error) => Some(error),
        }
    }
}

impl From<QuotaError> for BuildError {
    fn from(error: QuotaError) -> Self {
        Self::Quota(error)
    }
}
