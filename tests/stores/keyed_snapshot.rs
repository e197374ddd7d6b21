//! Snapshots of keyed and direct limiters.
//!
//! - A restored limiter decides like the limiter that kept running: for every algorithm, at once and later, after checks,
//!   takes, forced charges, reservations, refunds and blocks.
//! - If the clock is behind the snapshot's, no debt becomes smaller, and none lasts longer than it would from now.
//! - `restore` refuses everything except a whole, unchanged snapshot of a limiter like this one. Forged bytes with a right
//!   checksum give an error, or a limiter that decides without a panic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::{
    Algorithm, Block, Blocked, Direct, FixedWindow, Gcra, Keyed, ManualClock, Quota, RateLimiter, SlidingLog,
    Timestamp, WhenFull,
};
use tollgate_testing::compact::{Random, seal};
use tollgate_testing::kinds::ALL;
use tollgate_testing::operations::config;
use tollgate_testing::oracle::Spec;
use tollgate_testing::{SEC, START};

const KEYS: u64 = 24;

type Limiter<A> = RateLimiter<Keyed<u32, A>, ManualClock>;

fn keyed<A: Algorithm>(algorithm: &A) -> Limiter<A> {
    RateLimiter::builder(algorithm.clone()).clock(ManualClock::default()).keyed()
}

fn direct<A: Algorithm>(algorithm: &A) -> RateLimiter<Direct<A>, ManualClock> {
    RateLimiter::builder(algorithm.clone()).clock(ManualClock::default()).direct()
}

fn key(random: &mut Random) -> u32 {
    u32::try_from(random.skewed(KEYS)).unwrap()
}

/// Makes one random call on each of these limiters, which must decide the same.
fn step<A: Algorithm>(limiters: &[&Limiter<A>], now: Timestamp, random: &mut Random) {
    let (key, cost, what) = (key(random), random.below(4), random.below(8));
    let decided = limiters.iter().map(|limiter| {
        let limiter = limiter.at(now);
        match what {
            0 => limiter.take(&key, cost),
            1 => limiter.charge_unchecked(&key, cost),
            2 => limiter.reserve(&key, cost, Duration::from_secs(2)),
            3 => {
                let charge = limiter.check_n(&key, cost);
                limiter.refund_n(&key, &charge, 1);
                charge
            }
            4 => limiter.peek_n(&key, cost),
            _ => limiter.check_n(&key, cost),
        }
    });
    let decided: Vec<_> = decided.collect();
    assert!(decided.iter().all(|decision| *decision == decided[0]), "{what} of {key}: {decided:?}");
}

fn continues<A: Algorithm>(algorithm: A, period_ns: u64) {
    let random = &mut Random(7);
    for round in 0..12 {
        let (kept, restored) = (keyed(&algorithm), keyed(&algorithm));
        let mut now = START;
        let mut advance = |random: &mut Random| {
            now += random.below(period_ns / 8);
            Timestamp::from_nanos(now)
        };
        for _ in 0..120 {
            step(&[&kept], advance(random), random);
        }
        let saved = kept.at(advance(random)).snapshot();
        let later = advance(random);
        restored.at(later).restore(&saved).unwrap();
        for name in 0..u32::try_from(KEYS).unwrap() {
            let [ours, theirs] = [&restored, &kept].map(|limiter| limiter.at(later).peek(&name));
            assert_eq!(ours, theirs, "{algorithm:?}, round {round}, key {name}");
        }
        for _ in 0..120 {
            step(&[&kept, &restored], advance(random), random);
        }
    }
    let (kept, restored) = (direct(&algorithm), direct(&algorithm));
    for second in 0..40 {
        let at = Timestamp::from_nanos(START + second * period_ns / 16);
        let _ = kept.at(at).check_n(1 + second % 2);
        restored.at(at).restore(&kept.at(at).snapshot()).unwrap();
        assert_eq!(restored.at(at).peek(), kept.at(at).peek(), "{algorithm:?}");
    }
}

// G142
#[test]
fn restored_limiter_decides_like_the_one_that_continued() {
    for (limit, period_ns) in [(5, SEC), (7, SEC), (40, 60 * SEC)] {
        for kind in ALL {
            with_algorithm!(kind, Spec::new(limit, period_ns), algorithm => continues(algorithm, period_ns));
        }
        let block = Block::of(Duration::from_secs(1)).at_most(Duration::from_secs(60));
        continues(Blocked::new(Quota::new(limit, Duration::from_nanos(period_ns)), block), period_ns);
    }
}

/// The clock of the next process is behind by an hour, by more than the period of any limit, or by 100 years.
// G142
#[test]
fn clock_behind_the_snapshot_frees_nothing_and_locks_nothing() {
    fn law<A: Algorithm>(algorithm: A, period_ns: u64) {
        let random = &mut Random(9);
        for behind_ns in [1, period_ns / 3, 3_600 * SEC, 45 * 365 * 86_400 * SEC] {
            let (then, limiter) = (Timestamp::from_nanos(START), keyed(&algorithm));
            for ago in (0..60).rev() {
                let at = Timestamp::from_nanos(START - ago * period_ns / 50);
                let _ = limiter.at(at).check_n(&key(random), 1 + random.below(2));
            }
            let now = Timestamp::from_nanos(START - behind_ns);
            let restored = keyed(&algorithm);
            restored.at(now).restore(&limiter.at(then).snapshot()).unwrap();
            // A key that was never seen has a share of its bucket that depends on the time.
            for name in (0..u32::try_from(KEYS).unwrap()).filter(|name| limiter.contains(name)) {
                let (before, after) = (limiter.at(then).peek(&name), restored.at(now).peek(&name));
                assert!(after.remaining() <= before.remaining(), "{algorithm:?}: {before:?}, {after:?}");
                assert!(after.reset_after() >= before.reset_after(), "{algorithm:?}: {before:?}, {after:?}");
                let longest = Duration::from_nanos(3 * period_ns);
                assert!(after.reset_after() <= longest, "{algorithm:?} {behind_ns}: {before:?}, {after:?}");
            }
        }
    }
    for kind in ALL {
        with_algorithm!(kind, Spec::new(6, 2 * SEC), algorithm => law(algorithm, 2 * SEC));
    }
}

// G142
#[test]
fn blocks_continue_also_if_the_clock_steps_back() {
    let block = Block::of(Duration::from_secs(10)).at_most(Duration::from_secs(60));
    let logins = Blocked::new(Quota::per_second(1), block);
    let (limiter, start) = (keyed(&logins), Timestamp::from_nanos(START));
    assert!(limiter.at(start).check(&1).is_allowed() && limiter.at(start).check(&1).is_block());
    let saved = limiter.at(start + Duration::from_secs(4)).snapshot();
    for (now, left) in [(5, 5), (4, 6), (0, 6), (9, 1)] {
        let (restored, now) = (keyed(&logins), start + Duration::from_secs(now));
        restored.at(now).restore(&saved).unwrap();
        let denial = restored.at(now).check(&1);
        assert!(denial.is_block());
        assert_eq!(denial.retry_after(), Some(Duration::from_secs(left)), "{now:?}");
        // The next block is twice as long.
        let end = now + Duration::from_secs(left);
        assert!(restored.at(end).check(&1).is_allowed());
        assert_eq!(restored.at(end).check(&1).retry_after(), Some(Duration::from_secs(20)));
    }
}

fn filled() -> Limiter<Gcra> {
    let limiter = keyed(&Gcra::new(Quota::per_hour(10)));
    for key in 0..5 {
        let _ = limiter.check_n(&key, 3);
    }
    limiter
}

// G142
#[test]
fn changed_cut_and_foreign_snapshots_change_nothing() {
    let saved = filled().snapshot();
    let limiter = filled();
    let _ = limiter.check_n(&7, 2);
    let refused = |bytes: &[u8], parts: &[&str]| {
        let error = limiter.restore(bytes).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert_eq!((limiter.len(), limiter.peek(&7).remaining(), limiter.peek(&0).remaining()), (6, 8, 7));
    };
    for at in 0..saved.len() {
        refused(&saved[..at], &["cannot restore the snapshot"]);
        let mut changed = saved.clone();
        changed[at] ^= 1 << (at % 8);
        refused(&changed, &["cannot restore the snapshot"]);
    }
    let mut longer = saved.clone();
    longer.push(0);
    seal(&mut longer);
    refused(&longer, &["extra bytes"]);
    let mut future = saved.clone();
    future[8] = 9;
    refused(&future, &["it has version 9, and this library reads version 1"]);
    refused(&keyed(&Gcra::new(Quota::per_hour(11))).snapshot(), &["another algorithm or quota", "Gcra"]);
    refused(
        &keyed(&SlidingLog::new(Quota::per_hour(10))).snapshot(),
        &["SlidingLog", "and this limiter has Gcra"],
    );
    refused(&direct(&Gcra::new(Quota::per_hour(10))).snapshot(), &["not a tollgate snapshot"]);
    let texts: RateLimiter<Keyed<String, Gcra>, _> =
        RateLimiter::builder(Gcra::new(Quota::per_hour(10))).clock(ManualClock::default()).keyed();
    let _ = texts.check("alice");
    refused(&texts.snapshot(), &["its key is invalid"]);
    limiter.restore(&saved).unwrap();
    assert_eq!((limiter.len(), limiter.peek(&0).remaining()), (5, 7), "the snapshot replaces the keys");
}

/// Words that no algorithm writes, with a right checksum.
// G142
#[test]
fn forged_states_are_refused_or_valid() {
    fn law<A: Algorithm>(algorithm: A) {
        let random = &mut Random(3);
        for _ in 0..config(400).cases {
            let limiter = keyed(&algorithm);
            for key in 0..3 {
                let _ = limiter.at(Timestamp::from_nanos(START)).check_n(&key, 2);
            }
            let mut saved = limiter.at(Timestamp::from_nanos(START)).snapshot();
            let name = 8 + 4 + 8;
            for _ in 0..1 + random.below(12) {
                let at = name + usize::try_from(random.below((saved.len() - name - 8) as u64)).unwrap();
                saved[at] = [0, 255, u8::try_from(random.below(256)).unwrap()]
                    [usize::try_from(random.below(3)).unwrap()];
            }
            seal(&mut saved);
            let restored = keyed(&algorithm);
            for now in [0, START, START + SEC, u64::MAX] {
                let now = Timestamp::from_nanos(now);
                if restored.at(now).restore(&saved).is_ok() {
                    for key in 0..3 {
                        let _ = restored.at(now).check_n(&key, 1);
                        let _ = restored.at(now).charge_unchecked(&key, u64::MAX);
                        let _ = restored.at(now).peek(&key);
                    }
                    let _ = restored.at(now).snapshot();
                }
            }
        }
    }
    for kind in ALL {
        with_algorithm!(kind, Spec::new(5, SEC), algorithm => law(algorithm));
    }
    law(Blocked::new(
        Quota::per_second(5),
        Block::of(Duration::from_secs(9)).at_most(Duration::from_secs(99)),
    ));
}

// G142
#[test]
fn keys_beyond_a_cap_are_forgotten() {
    let saved = filled().snapshot();
    for when_full in [WhenFull::Deny, WhenFull::Admit, WhenFull::Forget] {
        let build = RateLimiter::builder(Gcra::new(Quota::per_hour(10))).clock(ManualClock::default());
        let small = build.max_keys(3, when_full).keyed::<u32>();
        small.restore(&saved).unwrap();
        assert_eq!(small.len(), 3, "{when_full:?}");
    }
}

/// A snapshot while requests run: each key has a state that it had during the call.
// G142
#[test]
fn snapshot_under_load_has_states_that_existed() {
    let limiter = keyed(&SlidingLog::new(Quota::per_day(2_000)));
    let at = Timestamp::from_nanos(START);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2_000 {
                for key in 0..8 {
                    assert!(limiter.at(at).check(&key).is_allowed(), "{round}");
                }
            }
            done.store(true, Ordering::Release);
        });
        let mut last = [2_000; 8];
        while !done.load(Ordering::Acquire) {
            let before: Vec<u64> = (0..8).map(|key| limiter.at(at).peek(&key).remaining()).collect();
            let restored = keyed(&SlidingLog::new(Quota::per_day(2_000)));
            restored.at(at).restore(&limiter.at(at).snapshot()).unwrap();
            for (key, last) in last.iter_mut().enumerate() {
                let name = u32::try_from(key).unwrap();
                let [now, after] =
                    [&restored, &limiter].map(|limiter| limiter.at(at).peek(&name).remaining());
                assert!((after..=before[key]).contains(&now) && now <= *last, "{key}: {now} of {before:?}");
                *last = now;
            }
        }
    });
}

// G142
#[test]
fn all_kinds_of_keys_round_trip() {
    fn law<K: tollgate::stores::SnapshotKey + std::hash::Hash + Eq + Clone + Send + Sync + 'static>(
        keys: [K; 2],
    ) {
        let build = || RateLimiter::builder(FixedWindow::new(Quota::per_hour(2))).keyed::<K>();
        let (before, after) = (build(), build());
        assert!(keys.iter().all(|key| before.check(key).is_allowed()));
        after.restore(&before.snapshot()).unwrap();
        assert!(keys.iter().all(|key| after.peek(key).remaining() == 1) && after.len() == 2);
    }
    law([String::new(), "alice".to_owned()]);
    law([b"\xff".to_vec(), Vec::new()]);
    law([7_u32, u32::MAX]);
    law([7_u64, u64::MAX]);
    law([7_u128, u128::MAX]);
    law::<std::net::IpAddr>(["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()]);
}
