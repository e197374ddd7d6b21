//! What the limiter of a rule needs to count the requests that it denies: `charging: count-denials`.
//!
//! ```text
//! limiter  the mode's limiter, with the rule's limit: it admits
//! beyond   a limiter in the atomic mode on the same state, with room for one unit more: it charges denied requests, and
//!          answers whether more units than the limit are in use
//! marks    the keys that this process knows to be over their limits, each for at most a second
//! ```
//! The name of a state on the server does not contain the limit, so both limiters count in one state. `limiter` alone
//! admits, in one step on the server or with units that the server has charged. `beyond` only charges requests that are
//! already denied. So the two calls of a denied request cannot race into an admission. If the server does not answer
//! the second call, the denial is counted there once or not at all.
//!
//! A mark saves calls: while a key is over its limit, its denials have nothing left to charge, and a query with a cost of
//! 0 is denied here. A mark does not decide any other request.

use std::time::Duration;

use tollgate::internals::op::{Operation, Store};
use tollgate::internals::{CheckTime, Facts, saturating_nanos};
use tollgate::stores::AnyStore;
use tollgate::{
    Decision, DefaultClock, Limit, LimitKind, Outcome, Quota, QuotaError, StoreConfig, StoreKind, WhenFull,
};

use crate::mode::AtomicLimiter;
use tollgate_rules::{Mode, SharedRule};

/// The number of keys with marks.
const MAX_MARKS: usize = 100_000;
/// The longest mark. Other processes may refund units, and this process learns of that only from the server.
const LONGEST_MARK: Duration = Duration::from_secs(1);
/// Two units fit beyond the limit if one unit fits under it. So the wait for two units there is the wait for one here.
pub(super) const TWO: u64 = 2;

/// The counter of denied requests. See the module's documentation.
#[derive(Debug)]
pub(super) struct DenialCounter {
    pub(super) beyond: AtomicLimiter,
    marks: Marks,
    /// The largest number of units that the rule admits at once.
    most: u64,
    /// Whether the server learns later of units that this process has admitted: `write-back`.
    posts_later: bool,
    /// Whether all units are available again at the end of a window.
    has_window_ends: bool,
}

/// The keys that are over their limits.
#[derive(Debug)]
struct Marks {
    /// Each key owes one unit for each nanosecond of its mark, and pays one unit in a nanosecond.
    until: AnyStore,
    clock: DefaultClock,
}

impl Marks {
    fn new() -> Result<Self, QuotaError> {
        let config = StoreConfig::new(StoreKind::Keyed).with_max_keys(MAX_MARKS, WhenFull::Forget);
        let until = Limit::gcra(Quota::per_second(1_000_000_000));
        let until = AnyStore::new(config, until, &ahash::RandomState::new())?;
        Ok(Self { until, clock: DefaultClock::new() })
    }

    fn now(&self) -> CheckTime {
        CheckTime::read(&self.clock)
    }

    /// Marks a key, from now on for `over` or for the longest time.
    fn set(&self, key: &str, over: Duration) {
        let now = self.now();
        let left = self.until.peek(key, now, 0).owed();
        let more = saturating_nanos(over.min(LONGEST_MARK)).saturating_sub(left);
        if more > 0 {
            let _ = self.until.apply(key, Operation::Force, now, more);
        }
    }

    /// Returns how long a key is still over its limit.
    fn left(&self, key: &str) -> Duration {
        Duration::from_nanos(self.until.peek(key, self.now(), 0).owed())
    }
}

impl DenialCounter {
    /// # Errors
    /// Returns an error if this process cannot hold the marks.
    pub(super) fn new(beyond: AtomicLimiter, rule: &SharedRule<'_>) -> Result<Self, QuotaError> {
        Ok(Self {
            beyond,
            marks: Marks::new()?,
            most: rule.limit.most(),
            posts_later: rule.settings.mode == Mode::WriteBack,
            has_window_ends: rule.limit.kind() == LimitKind::FixedWindow,
        })
    }

    /// Returns how much of a denied cost is charged at the server. `spend_held` spends up to a number of the units that
    /// this process holds, and returns the number of units spent.
    ///
    /// The server does not know the units that `write-back` has not posted yet, so it would charge more than one unit
    /// beyond the limit. A window that ends forgets these units. For other algorithms, the rest is one unit.
    pub(super) fn rest(&self, key: &str, cost: u64, spend_held: impl FnOnce(u64) -> u64) -> u64 {
        if !self.marks.left(key).is_zero() {
            return 0;
        }
        let rest = cost - spend_held(cost).min(cost);
        if self.posts_later && !self.has_window_ends { rest.min(1) } else { rest }
    }

    /// Marks a key that is over its limit, for this long.
    pub(super) fn mark(&self, key: &str, over: Option<Duration>) {
        let unposted = self.posts_later.then_some(LONGEST_MARK);
        if let Some(over) = unposted.or(over) {
            self.marks.set(key, over);
        }
    }

    /// Returns the decision on a cost of 0 if the key has a mark.
    pub(super) fn marked(&self, key: &str) -> Option<Decision> {
        let left_ns = saturating_nanos(self.marks.left(key));
        let facts = Facts::Plain { remaining: 0, retry_ns: left_ns, reset_ns: left_ns, delay_ns: 0 };
        let now_ns = self.marks.now().ns();
        let decision = Decision::new(Outcome::Denied, 0, self.most, now_ns, facts).uncharged();
        (left_ns > 0).then_some(decision)
    }

    /// Returns the decision on a cost of 0 from the decision of `beyond` on [`TWO`] units.
    pub(super) fn in_use(&self, beyond: &Decision) -> Decision {
        let room = beyond.remaining();
        let outcome = if room > 0 { Outcome::Allowed } else { Outcome::Denied };
        let facts = Facts::Plain {
            remaining: room.saturating_sub(1),
            retry_ns: beyond.retry_after().map_or(0, saturating_nanos),
            reset_ns: saturating_nanos(beyond.reset_after()),
            delay_ns: 0,
        };
        Decision::new(outcome, 0, self.most, beyond.at_ns(), facts).uncharged()
    }
}
