//! Requests in flight: compared with exact counts, and with threads that race for the last place.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tollgate::sketch::{Full, Guard, InFlight, OwnedGuard};
use tollgate_testing::operations::config;

fn with_memory(bytes: usize) -> InFlight {
    InFlight::with_memory(bytes)
        .expect("little memory")
        .with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4))
}

#[derive(Copy, Clone, Debug)]
enum Op {
    Enter {
        key: u64,
        n: u32,
    },
    Try {
        key: u64,
        n: u32,
        limit: u64,
    },
    /// Drops one of the guards.
    Leave(usize),
}

fn ops(keys: u64) -> impl Strategy<Value = Vec<Op>> {
    let n = || prop_oneof![8 => 0..4_u32, 1 => Just(u32::MAX)];
    let op = prop_oneof![
        3 => (0..keys, n()).prop_map(|(key, n)| Op::Enter { key, n }),
        3 => (0..keys, n(), 0..20_u64).prop_map(|(key, n, limit)| Op::Try { key, n, limit }),
        5 => any::<usize>().prop_map(Op::Leave),
    ];
    prop::collection::vec(op, 1..300)
}

/// Plays the operations. `exact`: whether no two keys share counters.
fn play(bytes: usize, exact: bool, ops: &[Op]) {
    let in_flight = with_memory(bytes);
    let mut guards: Vec<(u64, Guard<'_>)> = Vec::new();
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let right = |count: u64, truth: u64| if exact { count == truth } else { count >= truth };
    for &op in ops {
        let told = format!("{op:?}, {} in flight", guards.len());
        match op {
            Op::Enter { key, n } => {
                let guard = in_flight.enter(&key, n);
                let count = counts.entry(key).or_default();
                *count += u64::from(n);
                assert!(right(guard.count(), *count) && guard.n() == n, "{told}: {guard:?}");
                assert_eq!(guard.current(), in_flight.current(&key), "{told}");
                guards.push((key, guard));
            }
            Op::Try { key, n, limit } => {
                let count = counts.entry(key).or_default();
                let after = *count + u64::from(n);
                match in_flight.try_enter(&key, n, limit) {
                    Ok(guard) => {
                        assert!(after <= limit && guard.count() <= limit, "{told}: {guard:?}");
                        *count = after;
                        guards.push((key, guard));
                    }
                    Err(full) => {
                        assert!(!exact || after > limit, "{told}: {full:?}");
                        assert!(right(full.count(), *count) && full.limit() == limit, "{told}: {full:?}");
                    }
                }
            }
            Op::Leave(index) if !guards.is_empty() => {
                let (key, guard) = guards.swap_remove(index % guards.len());
                *counts.entry(key).or_default() -= u64::from(guard.n());
                drop(guard);
                assert!(right(in_flight.current(&key), counts[&key]), "{told}");
            }
            Op::Leave(_) => {}
        }
    }
    drop(guards);
    assert!(
        counts.keys().all(|key| in_flight.current(key) == 0),
        "a count stays after all guards are dropped"
    );
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn roomy_in_flight_counts_are_exact(ops in ops(5)) {
        play(1 << 16, true, &ops);
    }

    // G62
    #[test]
    fn full_in_flight_never_undercounts(ops in ops(60)) {
        play(128, false, &ops);
    }
}

#[test]
fn owned_guards_keep_in_flight_alive() {
    let in_flight = Arc::new(InFlight::new());
    let guard: OwnedGuard = in_flight.enter_owned("key", 3);
    let second = in_flight.try_enter_owned("key", 1, 4).expect("room for one more");
    assert_eq!(in_flight.try_enter_owned("key", 1, 4).unwrap_err().count(), 4);
    let weak = Arc::downgrade(&in_flight);
    drop(in_flight);
    let thread = std::thread::spawn(move || {
        assert_eq!((guard.n(), guard.count(), guard.current()), (3, 3, 4));
        drop(guard);
        second
    });
    let second = thread.join().unwrap();
    assert_eq!((second.count(), second.current()), (4, 1));
    drop(second);
    assert!(weak.upgrade().is_none());
}

#[test]
fn invalid_arguments_are_refused_with_advice() {
    assert!(InFlight::with_memory(127).unwrap_err().to_string().contains("at least 128"));
    assert!(InFlight::with_memory(usize::MAX).unwrap_err().to_string().contains("cannot allocate"));
    assert_eq!(with_memory(1_000).state_bytes(), 896);
    assert_eq!(InFlight::default().state_bytes(), 256 << 10);
    let full: Full = with_memory(128).try_enter("key", 5, 4).unwrap_err();
    assert_eq!(full.to_string(), "0 in flight, limit 4");
}

#[test]
fn thousand_other_keys_rarely_collide() {
    let in_flight = InFlight::new().with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4));
    let _others: Vec<_> = (0..1_000).map(|key| in_flight.enter(&key, 1)).collect();
    let wrong = (1_000..101_000).filter(|key| in_flight.current(key) > 0).count();
    println!("{wrong} of 100,000");
    assert!(wrong < 200, "{wrong} of 100,000");
}

const THREADS: u64 = if cfg!(miri) { 3 } else { 8 };
const EACH: u64 = if cfg!(miri) { 30 } else { 30_000 };

/// A second counter counts the requests in flight. It never exceeds the limit, however the threads race.
// G62
#[test]
fn racing_try_enters_never_exceed_limit() {
    for limit in [1, 3] {
        let in_flight = with_memory(128);
        let (inside, admitted) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..EACH {
                        let Ok(_guard) = in_flight.try_enter("key", 1, limit) else { continue };
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now <= limit, "{now} in flight, above the limit of {limit}");
                        if round % 64 == 0 {
                            std::thread::yield_now();
                        }
                        inside.fetch_sub(1, Ordering::SeqCst);
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(admitted.into_inner() > 0);
        assert_eq!(in_flight.current("key"), 0);
    }
}

// G62
#[test]
fn dropped_guards_leave_no_count() {
    let in_flight = with_memory(256);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let in_flight = &in_flight;
            scope.spawn(move || {
                for round in 0..EACH {
                    let outer = in_flight.enter(&(round % 7), 2);
                    let inner = in_flight.enter(&thread, 1);
                    assert!(outer.count() >= 2 && inner.current() >= 1);
                }
            });
        }
    });
    assert!((0..100_u64).all(|key| in_flight.current(&key) == 0));
}
