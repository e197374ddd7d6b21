//! A shared limiter that counts the requests that it denies: `charging: count-denials`.
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

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{DecidedWhere, Hasher, NoCounter, SharedDecision, SharedLimiter};
use crate::algorithm::{Limit, LimitKind};
use crate::base::check_time::CheckTime;
use crate::base::clock::{QuantaClock, saturating_nanos};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::Quota;
use crate::edge::redis::{AtomicLimiter, BlockingClient, BlockingInProcess, Client, InProcess};
use crate::edge::rules::rule::Mode;
use crate::edge::telemetry::Reading;
use crate::store::any::AnyLayout;
use crate::store::op::{Operation, Store};
use crate::store::{AnyStore, StoreKind, WhenFull};

/// The number of keys with marks.
const MAX_MARKS: usize = 100_000;
/// The longest mark. Other processes may refund units, and this process learns of that only from the server.
const LONGEST_MARK: Duration = Duration::from_secs(1);
/// Two units fit beyond the limit if one unit fits under it. So the wait for two units there is the wait for one here.
const TWO: u64 = 2;

/// The limiter with room for one unit more. See the module's documentation.
pub(super) trait Beyond: fmt::Debug + Send + Sync + 'static {
    /// Charges as many of `cost` units as there is room for, as far as that needs no wait in async code. If none is
    /// left afterwards, returns how long that lasts.
    fn take(&self, key: &str, cost: u64) -> Option<Duration>;

    fn take_async<'a>(&'a self, key: &'a str, cost: u64) -> BoxFuture<'a, Option<Duration>>;

    /// Returns whether `cost` units would be admitted, or `None` if that needs a wait in async code, or if the server
    /// does not answer.
    fn look(&self, key: &str, cost: u64) -> Option<Decision>;

    fn look_async<'a>(&'a self, key: &'a str, cost: u64) -> BoxFuture<'a, Option<Decision>>;
}

macro_rules! beyond {
    ($($client:ty),+; |$this:ident, $key:ident, $cost:ident|
        $take:expr, $take_async:expr, $look:expr, $look_async:expr) => {
        $(impl Beyond for AtomicLimiter<$client> {
            fn take(&self, $key: &str, $cost: u64) -> Option<Duration> {
                let ($this, _) = (self, ($key, $cost));
                $take
            }

            fn take_async<'a>(&'a self, $key: &'a str, $cost: u64) -> BoxFuture<'a, Option<Duration>> {
                let $this = self;
                Box::pin($take_async)
            }

            fn look(&self, $key: &str, $cost: u64) -> Option<Decision> {
                let ($this, _) = (self, ($key, $cost));
                $look
            }

            fn look_async<'a>(&'a self, $key: &'a str, $cost: u64) -> BoxFuture<'a, Option<Decision>> {
                let $this = self;
                Box::pin($look_async)
            }
        })+
    };
}

beyond!(Client, InProcess; |_limiter, key, cost| None, _limiter.take(key, cost), None, _limiter.look(key, cost));
beyond!(BlockingClient, BlockingInProcess; |limiter, key, cost|
    limiter.take(key, cost), ready(limiter.take(key, cost)), limiter.look(key, cost), ready(limiter.look(key, cost)));

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct CountsDenials<B> {
    limiter: Arc<dyn SharedLimiter>,
    beyond: B,
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
    clock: QuantaClock,
}

impl Marks {
    fn new() -> Result<Self, NoCounter> {
        let cap = Some((MAX_MARKS, WhenFull::Forget));
        let layout = AnyLayout { cap, ..AnyLayout::new(StoreKind::Keyed) };
        let until = Limit::gcra(Quota::per_second(1_000_000_000));
        Ok(Self { until: AnyStore::new(layout, until, &Hasher::new())?, clock: QuantaClock::new() })
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

impl<B: Beyond> CountsDenials<B> {
    /// # Errors
    /// Returns an error if this process cannot hold the marks.
    pub(super) fn new(
        limiter: Arc<dyn SharedLimiter>,
        beyond: B,
        limit: &Limit,
        mode: Mode,
    ) -> Result<Self, NoCounter> {
        let (posts_later, has_window_ends) =
            (mode == Mode::WriteBack, limit.kind() == LimitKind::FixedWindow);
        Ok(Self { limiter, beyond, marks: Marks::new()?, most: limit.most(), posts_later, has_window_ends })
    }

    /// Spends the held units. Returns the rest of a denied cost, which is charged at the server.
    ///
    /// The server does not know the units that `write-back` has not posted yet, so it would charge more than one unit
    /// beyond the limit. A window that ends forgets these units. For other algorithms, the rest is one unit.
    fn rest(&self, key: &str, cost: u64) -> u64 {
        if !self.marks.left(key).is_zero() {
            return 0;
        }
        let rest = cost - self.limiter.spend_held(key, cost).min(cost);
        if self.posts_later && !self.has_window_ends { rest.min(1) } else { rest }
    }

    fn mark(&self, key: &str, over: Option<Duration>) {
        let unposted = self.posts_later.then_some(LONGEST_MARK);
        if let Some(over) = unposted.or(over) {
            self.marks.set(key, over);
        }
    }

    /// Returns the decision on a cost of 0 if this process knows it.
    fn known(&self, key: &str) -> Option<SharedDecision> {
        let left = self.marks.left(key);
        if left.is_zero() {
            return self.limiter.holds(key);
        }
        let left_ns = saturating_nanos(left);
        let facts = Facts::Plain { remaining: 0, retry_ns: left_ns, reset_ns: left_ns, delay_ns: 0 };
        let now_ns = self.marks.now().ns();
        Some((Decision::new(Outcome::Denied, 0, self.most, now_ns, facts).uncharged(), DecidedWhere::HELD))
    }

    /// Returns the decision on a cost of 0 from the decision of `beyond` on [`TWO`] units.
    fn looked(&self, key: &str, looked: Option<Decision>) -> SharedDecision {
        let Some(beyond) = looked else { return self.limiter.decide_without_server(key, 0) };
        let room = beyond.remaining();
        let outcome = if room > 0 { Outcome::Allowed } else { Outcome::Denied };
        let facts = Facts::Plain {
            remaining: room.saturating_sub(1),
            retry_ns: beyond.retry_after().map_or(0, saturating_nanos),
            reset_ns: saturating_nanos(beyond.reset_after()),
            delay_ns: 0,
        };
        let decision = Decision::new(outcome, 0, self.most, beyond.at_ns(), facts);
        (decision.uncharged(), DecidedWhere::SERVER)
    }
}

impl<B: Beyond> SharedLimiter for CountsDenials<B> {
    fn check(&self, key: &str, cost: u64) -> SharedDecision {
        self.limiter.check(key, cost)
    }

    fn check_async<'a>(&'a self, key: &'a str, cost: u64) -> BoxFuture<'a, SharedDecision> {
        self.limiter.check_async(key, cost)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.limiter.close()
    }

    fn decide_without_server(&self, key: &str, cost: u64) -> SharedDecision {
        self.limiter.decide_without_server(key, cost)
    }

    fn look(&self, key: &str, cost: u64) -> Option<SharedDecision> {
        self.limiter.look(key, cost)
    }

    fn look_async<'a>(&'a self, key: &'a str, cost: u64) -> BoxFuture<'a, Option<SharedDecision>> {
        self.limiter.look_async(key, cost)
    }

    fn count_denied(&self, key: &str, cost: u64) {
        let rest = self.rest(key, cost);
        if rest > 0 {
            self.mark(key, self.beyond.take(key, rest));
        }
    }

    fn count_denied_async<'a>(&'a self, key: &'a str, cost: u64) -> BoxFuture<'a, ()> {
        let rest = self.rest(key, cost);
        if rest == 0 {
            return Box::pin(ready(()));
        }
        Box::pin(async move { self.mark(key, self.beyond.take_async(key, rest).await) })
    }

    fn look_at_use(&self, key: &str) -> Option<SharedDecision> {
        Some(self.known(key).unwrap_or_else(|| self.looked(key, self.beyond.look(key, TWO))))
    }

    fn look_at_use_async<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<SharedDecision>> {
        if let Some(known) = self.known(key) {
            return Box::pin(ready(Some(known)));
        }
        Box::pin(async move { Some(self.looked(key, self.beyond.look_async(key, TWO).await)) })
    }

    fn refund(&self, key: &str, charge: &Decision, by: DecidedWhere) {
        self.limiter.refund(key, charge, by);
    }

    fn refund_async<'a>(&'a self, key: &'a str, charge: &'a Decision, by: DecidedWhere) -> BoxFuture<'a, ()> {
        self.limiter.refund_async(key, charge, by)
    }

    fn undoes(&self) -> bool {
        self.limiter.undoes()
    }

    fn succeed(&self) {
        self.limiter.succeed();
    }

    fn readings(&self) -> Vec<Reading> {
        self.limiter.readings()
    }
}
