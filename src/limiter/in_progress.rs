//! Limits on the requests that are in progress at the same time.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::at::At;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, DefaultClock, Timestamp, saturating_nanos};
use crate::base::decision::{Decision, Denied};
use crate::store::HoldId;
use crate::store::holding::{HoldBook, enter};

const LIFE: Duration = Duration::from_secs(600);
const MOST: usize = 1 << 16;

/// A limit on the requests of each key that are in progress at the same time.
///
/// A request is in progress until its [`Permit`] is dropped, or until its life has ended. So a request whose permit was
/// lost does not count for ever. Use it for slow work, such as exports and answers of language models: a rate does not
/// limit how many of them run at the same time. In front of a server, pass it to a
/// `tollgate_tower::RateLimitLayer`: a request is then in progress until the body of its response has ended.
///
/// The limit is exact, and the memory grows with the number of requests in progress, up to a bound.
/// [`sketch::InFlight`](crate::sketch::InFlight) needs constant memory instead, for any number of keys; its counts can
/// be too high, and its requests have no life.
///
/// # Consistency
/// At most `limit` units of a key are in progress at any time, whatever races. A call may wait for another thread that
/// uses a key of the same part, for less than a microsecond.
///
/// # Examples
/// ```
/// use tollgate::holds::InProgress;
///
/// let exports = InProgress::new(2); // for each key
/// let first = exports.try_enter("alice", 1).expect("none is in progress");
/// let second = exports.try_enter("alice", 1).expect("one is in progress");
/// assert!(exports.try_enter("alice", 1).is_err());
/// assert!(exports.try_enter("bob", 1).is_ok());
/// drop(first);
/// assert!(exports.try_enter("alice", 1).is_ok());
/// # drop(second);
/// ```
#[derive(Clone)]
pub struct InProgress<C = DefaultClock> {
    clock: C,
    limit: u64,
    life: Duration,
    book: Arc<HoldBook<()>>,
}

impl InProgress {
    /// Creates a limit of `limit` units in progress for each key.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { clock: DefaultClock::default(), limit, life: LIFE, book: Arc::new(HoldBook::new(MOST)) }
    }
}

impl<C> InProgress<C> {
    /// Sets the clock. Default: [`DefaultClock`].
    #[must_use]
    pub fn clock<D>(self, clock: D) -> InProgress<D> {
        let Self { limit, life, book, .. } = self;
        InProgress { clock, limit, life, book }
    }

    /// Sets how long a request can be in progress. Afterwards it does not count any more. Default: ten minutes.
    ///
    /// Choose a time that no request of a working server takes.
    #[must_use]
    pub fn life(mut self, life: Duration) -> Self {
        self.life = life;
        self
    }

    /// Sets how many requests of all keys can be in progress at the same time. More are denied. Default: 65,536. Each
    /// takes about 300 bytes.
    ///
    /// Call this before the first request: it forgets all requests in progress.
    #[must_use]
    pub fn at_most(mut self, most: usize) -> Self {
        self.book = Arc::new(HoldBook::new(most));
        self
    }

    /// Returns this limit at the time `now`: no clock is read.
    pub const fn at(&self, now: Timestamp) -> At<'_, Self> {
        At::new(self, now)
    }

    /// Returns the units of a key that are in progress, including those whose life has ended and that were not needed
    /// since.
    pub fn current<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        // The units of a key are at most the limit.
        u64::try_from(self.book.standing(self.book.hash(key)).units).unwrap_or(u64::MAX)
    }

    /// Returns the number of requests of all keys that are in progress, including those whose life has ended and that were
    /// not needed since.
    pub fn len(&self) -> usize {
        self.book.len()
    }

    /// Returns whether no request is in progress.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the request with this identity. Returns whether it was in progress.
    pub fn leave<Q: Hash + ?Sized>(&self, key: &Q, id: HoldId) -> bool {
        self.book.take(self.book.hash(key), id, |_, _| ()).is_some()
    }

    fn enter_at<Q: Hash + ?Sized>(&self, key: &Q, units: u64, at: CheckTime) -> Result<Permit, Denied> {
        let (hash, now_ns) = (self.book.hash(key), at.ns());
        let end_ns = now_ns.saturating_add(saturating_nanos(self.life));
        let id = HoldId::unique(end_ns);
        let decision = enter(&self.book, (hash, id), units, (self.limit, now_ns), |_, _| {});
        if decision.is_denied() {
            return Err(Denied::of(decision));
        }
        Ok(Permit { book: Some(Arc::clone(&self.book)), hash, id, decision })
    }
}

impl<C> At<'_, InProgress<C>> {
    /// [`InProgress::try_enter`] at this time.
    ///
    /// # Errors
    /// The same as for [`InProgress::try_enter`].
    pub fn try_enter<Q: Hash + ?Sized>(self, key: &Q, units: u64) -> Result<Permit, Denied> {
        self.limiter.enter_at(key, units, CheckTime::given(self.now))
    }
}

impl<C: Clock> InProgress<C> {
    /// Begins a request of `units`, or denies it. The request ends when the permit is dropped, or after its life.
    ///
    /// # Errors
    /// Returns the denial if the key would have more units in progress than its limit, or if too many requests of all
    /// keys are in progress. [`Decision::retry_after`] returns the time until the first life ends; a request can end
    /// earlier.
    ///
    /// # Complexity
    /// O(log requests) under a mutex that few keys share. This also frees permits whose life has ended: up to 64 of the key,
    /// and two of any keys. Allocates.
    pub fn try_enter<Q: Hash + ?Sized>(&self, key: &Q, units: u64) -> Result<Permit, Denied> {
        self.enter_at(key, units, CheckTime::read(&self.clock))
    }
}

impl<C: Clock> InProgress<C> {
    /// Lets a request end a life from now, under another identity. Returns whether it was in progress.
    #[doc(hidden)]
    pub fn renew(&self, permit: &mut Permit) -> bool {
        let now_ns = CheckTime::read(&self.clock).ns();
        let later = HoldId::unique(now_ns.saturating_add(saturating_nanos(self.life)));
        let was_there = permit.id.end_ns() > now_ns && self.book.renew(permit.hash, (permit.id, later));
        if was_there {
            permit.id = later;
        }
        was_there
    }
}

impl<C> fmt::Debug for InProgress<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("InProgress");
        shown.field("limit", &self.limit).field("life", &self.life).field("len", &self.len());
        shown.finish_non_exhaustive()
    }
}

/// A request in progress; created by [`InProgress::try_enter`]. Dropping it ends the request.
#[must_use = "a request is not in progress any more once its permit is dropped"]
pub struct Permit {
    /// `None` once the permit is detached.
    book: Option<Arc<HoldBook<()>>>,
    hash: u64,
    id: HoldId,
    decision: Decision,
}

impl Permit {
    /// Returns the decision that began the request. Its figures include the request.
    #[must_use]
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns the identity, by which another thread can [end](InProgress::leave) the request.
    #[must_use]
    pub fn id(&self) -> HoldId {
        self.id
    }

    /// Leaves the request to a caller that knows its identity. Otherwise it ends with its life.
    pub fn detach(mut self) -> HoldId {
        self.book = None;
        self.id
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(book) = &self.book {
            book.take(self.hash, self.id, |_, _| ());
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("id", &self.id).field("units", &self.decision.cost()).finish()
    }
}
