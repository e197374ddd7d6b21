//! Quotas and rules that change under load. The limiter never admits more than the largest quota in force.

use super::draw;
use super::judge::Bound;
use super::{Found, Round, SEC, START};
use std::cell::Cell;
use std::time::Duration;
use tollgate::{
    Adjustable, Algorithm, Capacity, Carry, Clock, Compact, CompactAlgorithm, Direct, FixedWindow, Gcra,
    Keyed, ManualClock, Overflow, Quota, QuotaError, RateLimiter, SlidingWindow, Timestamp,
};
use tollgate_testing::compact::{Random, Seeded};
use tollgate_testing::kinds::Kind;
use tollgate_testing::oracle::Spec;

pub fn play(round: &mut Round<'_>) -> Found {
    if draw::one_in(&mut round.random, 3) {
        return rules::loaded_under_load(round);
    }
    let quota = quota(1 + round.random.skewed(60));
    match draw::pick(&mut round.random, &[Kind::Gcra, Kind::Fixed, Kind::Sliding]) {
        Kind::Gcra => with(round, Kind::Gcra, Gcra::new(quota)),
        Kind::Fixed => with(round, Kind::Fixed, FixedWindow::new(quota)),
        _ => with(round, Kind::Sliding, SlidingWindow::new(quota)),
    }
}

/// All quotas have the same period, so a share of a burst takes the same time to refill under each.
const PERIOD_NS: u64 = SEC;

fn quota(limit: u64) -> Quota {
    Quota::new(limit, Duration::from_nanos(PERIOD_NS))
}

/// A clock that can stop between its reading and the next step of the caller. In the meantime, the time advances, and
/// other calls go on.
#[derive(Clone)]
struct Stopping(ManualClock);

thread_local! {
    /// How long the next reading of this thread is held up, in nanoseconds.
    static STOP_NS: Cell<u64> = const { Cell::new(0) };
}

impl Clock for Stopping {
    fn now(&self) -> Timestamp {
        let now = self.0.now();
        let stop_ns = STOP_NS.take();
        for _ in 0..stop_ns.div_ceil(STEP_NS) {
            self.0.advance(Duration::from_nanos(STEP_NS));
            // The other threads check now.
            (0..8).for_each(|_| std::thread::yield_now());
        }
        now
    }
}

/// The time between two advances of a clock that is stopped for one thread.
const STEP_NS: u64 = PERIOD_NS / 50;

/// Holds up a reading of this thread, by up to two periods.
fn stop(random: &mut Random) {
    if draw::one_in(random, 2) {
        STOP_NS.set(random.below(2 * PERIOD_NS));
    }
}

/// A limiter of any store whose quota changes.
trait Changing: Sync {
    fn check(&self, key: u32, cost: u64) -> bool;
    fn change(&self, quota: &Quota, carry: Carry) -> Result<(), QuotaError>;

    /// Whether a change can carry over the share of the burst.
    fn carries_shares(&self) -> bool {
        true
    }
}

impl<A: Algorithm> Changing for RateLimiter<Adjustable<Direct<A>>, Stopping> {
    fn check(&self, _key: u32, cost: u64) -> bool {
        self.check_n(cost).is_allowed()
    }

    fn change(&self, quota: &Quota, carry: Carry) -> Result<(), QuotaError> {
        self.set_quota(quota, carry)
    }
}

impl<A: Algorithm> Changing for RateLimiter<Adjustable<Keyed<u32, A, Seeded>>, Stopping> {
    fn check(&self, key: u32, cost: u64) -> bool {
        self.check_n(&key, cost).is_allowed()
    }

    fn change(&self, quota: &Quota, carry: Carry) -> Result<(), QuotaError> {
        self.set_quota(quota, carry)
    }
}

impl<A: CompactAlgorithm> Changing for RateLimiter<Adjustable<Compact<A, Seeded>>, Stopping> {
    fn check(&self, key: u32, cost: u64) -> bool {
        self.check_n(&key, cost).is_allowed()
    }

    fn change(&self, quota: &Quota, carry: Carry) -> Result<(), QuotaError> {
        self.set_quota(quota, carry)
    }
}

fn with<A: CompactAlgorithm>(round: &mut Round<'_>, kind: Kind, algorithm: A) -> Found {
    let clock = Stopping(ManualClock::new(Timestamp::from_nanos(START)));
    let builder = RateLimiter::builder(algorithm).clock(clock.clone()).hasher(Seeded(round.random.next()));
    if draw::one_in(&mut round.random, 3) {
        let store = draw::pick(&mut round.random, &["compact", "keyed"]);
        let loaded = rules::Loaded::new(kind, store, clock.clone())?;
        return changed_under_load(round, &loaded, &format!("rules, {store}"), (kind, 8), &clock);
    }
    match round.random.below(3) {
        0 => changed_under_load(round, &builder.direct().adjustable(), "direct", (kind, 1), &clock),
        1 => changed_under_load(round, &builder.keyed::<u32>().adjustable(), "keyed", (kind, 8), &clock),
        _ => {
            let overflow = if kind == Kind::Sliding {
                Overflow::Forget
            } else {
                draw::pick(&mut round.random, &[Overflow::Spill, Overflow::Inherit])
            };
            let limiter = builder.capacity(Capacity::memory(1 << 15)).overflow(overflow).compact();
            let limiter = limiter.map_err(|error| error.to_string())?.adjustable();
            changed_under_load(round, &limiter, &format!("compact {overflow:?}"), (kind, 8), &clock)
        }
    }
}

/// One thread changes the quota while the others check.
///
/// With shares of a burst, the quota may rise and fall. At most a whole burst is used, and it refills at one rate.
/// The other ways to carry a debt forgive the part that no longer fits when the burst shrinks. So in those cases the
/// quota only rises. A request that runs during a change may be charged twice, which can only deny more.
fn changed_under_load(
    round: &mut Round<'_>,
    limiter: &dyn Changing,
    store: &str,
    (kind, keys): (Kind, u64),
    Stopping(clock): &Stopping,
) -> Found {
    let is_proportional = limiter.carries_shares() && draw::one_in(&mut round.random, 2);
    let most = if draw::one_in(&mut round.random, 2) { 60 } else { 200 };
    let now = || clock.now().as_nanos();
    let largest = round.on_threads(|hand| {
        let mut limit = if is_proportional { 1 } else { 60 };
        let mut largest = 60;
        while hand.goes_on() {
            for _ in 0..16 {
                let key = u32::try_from(hand.random.below(keys)).expect("few keys");
                let cost = 1 + hand.random.below(2) * hand.random.below(2);
                let before = now();
                let allowed = limiter.check(key, cost);
                if hand.told(allowed) {
                    hand.note(key, cost, before, now());
                }
            }
            clock.advance(Duration::from_nanos(hand.random.below(PERIOD_NS / 100)));
            if hand.number == 0 && hand.random.below(4) == 0 {
                let carry = if is_proportional {
                    limit = draw::between(&mut hand.random, 1, most);
                    Carry::Proportional
                } else {
                    limit += hand.random.below(2);
                    draw::pick(
                        &mut hand.random,
                        &[Carry::AsIs, Carry::Additive, Carry::Used, Carry::Proportional],
                    )
                };
                // The limiter rejects too many unpaid changes, and keeps its state.
                stop(&mut hand.random);
                if limiter.change(&quota(limit), carry).is_ok() {
                    largest = largest.max(limit);
                }
                STOP_NS.set(0);
            }
        }
        largest
    });
    let largest = largest.into_iter().max().unwrap_or(0);
    let oracle = kind.oracle(Spec::new(largest, PERIOD_NS));
    let what = format!(
        "{kind:?}, {store}, whose quota changes, up to {largest} a second, proportional {is_proportional}, {keys} keys, {} threads",
        round.threads
    );
    // A tick of the compact store is at most a 256th of a unit's time. Under the smallest quota, that is a period.
    let more_ns = u128::from(PERIOD_NS / 256);
    round.judge(&Bound { most_in: &|t| oracle.most_in(t), more_ns, forgets: true, spared: 0, what })
}

mod rules {
    use super::super::ensure;
    use super::{Changing, Found, Kind, Round, Stopping, draw};
    use std::sync::atomic::{AtomicU64, Ordering};
    use tollgate::{Carry, ManualClock, Quota, QuotaError, Timestamp};
    use tollgate_rules::{Config, Descriptor, Rules};

    /// A rule whose limit changes by loads.
    pub(super) struct Loaded {
        rules: Rules<Stopping>,
        settings: String,
    }

    impl Loaded {
        pub(super) fn new(kind: Kind, store: &str, clock: Stopping) -> Result<Self, String> {
            let algorithm = match kind {
                Kind::Gcra => "gcra",
                Kind::Fixed => "fixed-window",
                _ => "sliding-window",
            };
            let settings = format!("unit: second, algorithm: {algorithm}, store: {store}");
            let rules = Rules::builder().clock(clock).load([Self::config(&settings, 60)?]);
            Ok(Self { rules: rules.map_err(|error| error.to_string())?, settings })
        }

        fn config(settings: &str, limit: u64) -> Result<Config, String> {
            let rule = format!("{{ key: a, rate_limit: {{ requests_per_unit: {limit}, {settings} }} }}");
            let text = format!("{{ domain: soak, tollgate: {{}}, descriptors: [ {rule} ] }}");
            Config::from_yaml("soak.yaml", &text).map_err(|error| error.to_string())
        }
    }

    impl Changing for Loaded {
        fn check(&self, key: u32, cost: u64) -> bool {
            let key = key.to_string();
            self.rules.check_n("soak", &[Descriptor::new(&[("a", &key)])], cost).is_allowed()
        }

        fn change(&self, quota: &Quota, _carry: Carry) -> Result<(), QuotaError> {
            let config = Self::config(&self.settings, quota.limit()).expect("the file is valid");
            self.rules.replace([config]).expect("the rules load");
            Ok(())
        }

        /// Loads carry used units over, as they are.
        fn carries_shares(&self) -> bool {
            false
        }
    }

    const KINDS: [&str; 4] = ["plain", "changing", "same", "shared"];
    const CLIENTS: usize = 6;
    const LOWEST: u64 = 100;
    const SAME: u64 = 150;

    /// Every load changes the numbers, and sometimes an algorithm.
    fn config(limit: u64, algorithm: &str) -> Result<Config, String> {
        let text = format!(
            "
domain: soak
tollgate: {{}}
descriptors:
  - key: plain
    rate_limit: {{ unit: day, requests_per_unit: {limit} }}
  - key: changing
    rate_limit: {{ unit: day, requests_per_unit: {limit}, algorithm: {algorithm} }}
  - key: shared
    value: all
    rate_limit: {{ unit: day, requests_per_unit: {limit} }}
  - key: same
    rate_limit: {{ unit: day, requests_per_unit: {SAME} }}
"
        );
        Config::from_yaml("soak.yaml", &text).map_err(|error| error.to_string())
    }

    /// The clock does not advance, so nothing refills. At most the highest limit that was in force is admitted. With
    /// enough requests, at least the lowest limit is admitted, minus the requests that were charged twice: one for each
    /// thread and load.
    pub(super) fn loaded_under_load(round: &mut Round<'_>) -> Found {
        let clock = ManualClock::new(Timestamp::from_nanos(super::START));
        let rules = Rules::builder()
            .clock(clock)
            .load([config(LOWEST, "gcra")?])
            .map_err(|error| error.to_string())?;
        let clients: Vec<String> = (0..CLIENTS).map(|client| client.to_string()).collect();
        let admitted: Vec<_> = (0..KINDS.len() * CLIENTS).map(|_| AtomicU64::new(0)).collect();
        let found = round.on_threads(|hand| {
            let (mut highest, mut loads) = (SAME, 0_u64);
            while hand.goes_on() {
                for _ in 0..64 {
                    let (kind, client) = (
                        super::super::below(&mut hand.random, KINDS.len()),
                        super::super::below(&mut hand.random, CLIENTS),
                    );
                    let value = if KINDS[kind] == "shared" { "all" } else { &*clients[client] };
                    let client = if KINDS[kind] == "shared" { 0 } else { client };
                    let answer = rules.check("soak", &[Descriptor::new(&[(KINDS[kind], value)])]);
                    ensure!(answer.limits().count() == 1, "a request saw only a part of a load: {answer:?}");
                    let allowed = u64::from(hand.told(answer.is_allowed()));
                    admitted[kind * CLIENTS + client].fetch_add(allowed, Ordering::Relaxed);
                }
                if hand.number == 0 && loads < 100 {
                    let limit = draw::between(&mut hand.random, LOWEST, 200);
                    let algorithm = draw::pick(
                        &mut hand.random,
                        &["gcra", "fixed-window", "sliding-window", "token-bucket"],
                    );
                    rules.replace([config(limit, algorithm)?]).map_err(|error| error.to_string())?;
                    highest = highest.max(limit);
                    loads += 1;
                }
            }
            Ok((highest, loads))
        });
        let found = found.into_iter().collect::<Result<Vec<_>, String>>()?;
        let (highest, loads) = (found[0].0, found[0].1);
        ensure!(
            rules.reloads().successes == 1 + loads && rules.reloads().errors == 0,
            "{loads} loads: {:?}",
            rules.reloads()
        );
        for (cell, admitted) in admitted.iter().enumerate() {
            let (kind, admitted) = (KINDS[cell / CLIENTS], admitted.load(Ordering::Relaxed));
            let most = if kind == "same" { SAME } else { highest };
            ensure!(
                admitted <= most,
                "rules, {kind}, client {}: {admitted} admitted at one instant, above the highest limit of {most}; {loads} loads, {} threads",
                cell % CLIENTS,
                round.threads
            );
        }
        Ok(())
    }
}
