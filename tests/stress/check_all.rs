//! Many threads check several limits at once. No limit admits more than its quota. After the threads end, each limiter
//! has charged exactly what was admitted.

use super::{Random, THREADS};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{
    Carry, Clock, FixedWindow, Gcra, ManualClock, MinimumSpacing, Quota, RateLimiter, Timestamp, check_all,
};

/// The start of an hour.
const START: u64 = 1_700_002_800;

/// The units admitted at each limit and key in one round.
struct Admitted<const LIMITS: usize, const KEYS: usize>([[AtomicU64; KEYS]; LIMITS]);

impl<const LIMITS: usize, const KEYS: usize> Admitted<LIMITS, KEYS> {
    fn new() -> Self {
        Self(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }

    fn add(&self, limit: usize, key: usize, units: u64) {
        self.0[limit][key].fetch_add(units, Ordering::Relaxed);
    }

    fn of(&self, limit: usize, key: usize) -> u64 {
        self.0[limit][key].load(Ordering::Relaxed)
    }
}

/// Runs `ask` many times on every thread.
fn race(asks: u64, ask: impl Fn(&mut Random) + Sync) {
    let barrier = Barrier::new(usize::try_from(THREADS).expect("few"));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, ask) = (&barrier, &ask);
            scope.spawn(move || {
                let mut random = Random(thread * 977 + 13);
                barrier.wait();
                for _ in 0..asks {
                    ask(&mut random);
                }
            });
        }
    });
}

const USERS: usize = 5;
const ROUTES: usize = 3;

/// Mixes users and routes, in either order. The clock does not advance, so each key is charged what it was admitted.
fn users_and_routes(rounds: u64) {
    const PER_USER: u64 = 40;
    const PER_ROUTE: u64 = 60;
    for round in 0..rounds {
        let clock = ManualClock::new(Timestamp::from_secs(START + round * 7_200));
        let by_user = RateLimiter::builder(Gcra::new(Quota::per_hour(PER_USER)))
            .clock(clock.clone())
            .compact()
            .unwrap();
        let by_route =
            RateLimiter::builder(FixedWindow::new(Quota::per_hour(PER_ROUTE))).clock(clock).keyed::<usize>();
        let admitted = Admitted::<2, { USERS }>::new();
        race(60, |random| {
            let user = usize::try_from(random.below(USERS as u64)).expect("small");
            let route = usize::try_from(random.below(ROUTES as u64)).expect("small");
            let (here, there) = (1 + random.below(3), 1 + random.below(2));
            let (x, y) = (by_user.on(&user).cost(here), by_route.on(&route).cost(there));
            let allowed = if random.below(2) == 0 {
                check_all((x, y)).is_allowed()
            } else {
                check_all((y, x)).is_allowed()
            };
            if allowed {
                admitted.add(0, user, here);
                admitted.add(1, route, there);
            }
        });
        for user in 0..USERS {
            let units = admitted.of(0, user);
            assert!(units <= PER_USER, "user {user} was admitted {units}");
            assert_eq!(by_user.peek(&user).remaining(), PER_USER - units, "user {user} has a wrong charge");
        }
        for route in 0..ROUTES {
            let units = admitted.of(1, route);
            assert!(units <= PER_ROUTE, "route {route} was admitted {units}");
            assert_eq!(
                by_route.peek(&route).remaining(),
                PER_ROUTE - units,
                "route {route} has a wrong charge"
            );
        }
    }
}

/// Checks one key under three limits. The smallest limit decides.
fn one_key(rounds: u64) {
    for round in 0..rounds {
        let clock = ManualClock::new(Timestamp::from_secs(START + round * 7_200));
        let gcra = |n| RateLimiter::builder(Gcra::new(Quota::per_hour(n))).clock(clock.clone());
        let (direct, keyed, compact) =
            (gcra(90).direct(), gcra(70).keyed::<u8>(), gcra(80).compact().unwrap());
        let units = AtomicU64::new(0);
        race(40, |random| {
            let n = 1 + random.below(2);
            if check_all((direct.on().cost(n), keyed.on(&1).cost(n), compact.on(&1).cost(n))).is_allowed() {
                units.fetch_add(n, Ordering::Relaxed);
            }
        });
        let units = units.into_inner();
        assert!(units <= 70, "{units}");
        let left = [direct.peek().remaining(), keyed.peek(&1).remaining(), compact.peek(&1).remaining()];
        assert_eq!(left, [90 - units, 70 - units, 80 - units], "a limit has a wrong charge");
    }
}

/// In each round every thread asks, and exactly one spaced event is admitted. The other requests charge nothing.
fn spaced(rounds: u64) {
    let clock = ManualClock::new(Timestamp::from_secs(START));
    let spacing = MinimumSpacing::new(Duration::from_secs(2));
    let spacing = RateLimiter::builder(spacing).clock(clock.clone()).compact().unwrap();
    let total = RateLimiter::builder(Gcra::new(Quota::per_hour(1_000))).clock(clock.clone()).direct();
    for round in 1..=rounds {
        let went = AtomicU64::new(0);
        race(20, |_| {
            if check_all((total.on().cost(3), spacing.on("alice"))).is_allowed() {
                went.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(went.into_inner(), 1, "one event in two seconds, round {round}");
        let paid = total.at(clock.now()).peek().remaining();
        // A unit takes 3.6 s and a round 2 s, so most of the three units of each round are still owed.
        let owed =
            Duration::from_millis(3_600 * 3 * round).saturating_sub(Duration::from_secs(2 * (round - 1)));
        let owed = owed.as_millis().div_ceil(3_600);
        assert_eq!(u128::from(paid), 1_000 - owed, "a denied request left a charge, round {round}");
        clock.advance(Duration::from_secs(2));
    }
}

/// The quota is replaced by an equal quota while threads check. No charge is lost in a change.
fn changing_quotas(rounds: u64) {
    for round in 0..rounds {
        let clock = ManualClock::new(Timestamp::from_secs(START + round * 7_200));
        let limiter = RateLimiter::builder(Gcra::new(Quota::per_hour(50)));
        let limiter = limiter.clock(clock).compact().unwrap().adjustable();
        let admitted = Admitted::<1, 4>::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for change in 0..12 {
                    let carry = [Carry::AsIs, Carry::Proportional, Carry::Additive][change % 3];
                    limiter.set_quota(&Quota::per_hour(50), carry).unwrap();
                    std::thread::yield_now();
                }
            });
            race(50, |random| {
                let key = usize::try_from(random.below(4)).expect("small");
                if limiter.check(&key).is_allowed() {
                    admitted.add(0, key, 1);
                }
            });
        });
        for key in 0..4 {
            let units = admitted.of(0, key);
            assert!(units <= 50, "key {key} was admitted {units}");
            let left = limiter.peek(&key).remaining();
            assert!(left + units <= 50, "key {key}: {units} admitted, {left} left of 50");
        }
    }
}

// G47
#[test]
fn users_and_routes_are_charged_together() {
    users_and_routes(12);
}

// G47
#[test]
fn one_key_under_three_limits() {
    one_key(15);
}

#[test]
fn spaced_events_under_a_total() {
    spaced(25);
}

// G49
#[test]
fn quotas_change_under_load() {
    changing_quotas(6);
}

// G13
#[test]
#[ignore = "larger, for sanitizers"]
fn heavy() {
    users_and_routes(30);
    one_key(40);
    spaced(60);
    changing_quotas(15);
}
