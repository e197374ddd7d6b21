//! Snapshots of the compact store.
//!
//! - A restored limiter decides like the limiter that kept running: at once and later, under every policy, for every
//!   algorithm.
//! - If the clock is behind the snapshot's, time continues from the moment of the snapshot.
//! - `restore` refuses everything except a whole, unchanged snapshot of a limiter like this one. The error names the
//!   reason, and the limiter does not change. The tests try every cut, every flipped bit, and other hashers, quotas,
//!   sizes and policies.

use std::time::Duration;
use tollgate::{
    Capacity, Carry, Clock, Compact, CompactAlgorithm, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue,
    ManualClock, MinimumSpacing, Overflow, Quota, RateLimiter, SlidingWindow, Timestamp, TokenBucket,
};
use tollgate_testing::SEC;
use tollgate_testing::compact::{POLICIES, Random, Seeded, build, policies, seal};
use tollgate_testing::kinds::COMPACT;
use tollgate_testing::oracle::Spec;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const KEYS: u64 = 300;

type Limiter<A> = RateLimiter<Compact<A, Seeded>, ManualClock>;

/// A limiter and its own clock.
fn limiter<A: CompactAlgorithm>(
    algorithm: A,
    overflow: Overflow,
    bytes: usize,
    start: Timestamp,
) -> (Limiter<A>, ManualClock) {
    let clock = ManualClock::new(start);
    (build(algorithm, overflow, Capacity::memory(bytes), clock.clone()), clock)
}

/// Sends requests of many keys for a while.
fn fill<A: CompactAlgorithm>(limiter: &Limiter<A>, clock: &ManualClock, random: &mut Random) {
    for _ in 0..600 {
        let _ = limiter.check_n(&random.skewed(KEYS), 1 + random.below(3));
        clock.advance(Duration::from_millis(random.below(20)));
    }
}

/// Asserts that both limiters decide the same for every key.
///
/// If debts were spilled, the original may decide as of a later time, so that its reset comes sooner. The units are the same.
#[track_caller]
fn assert_same_decisions<A: CompactAlgorithm>(
    restored: &Limiter<A>,
    original: &Limiter<A>,
    spilled: bool,
    what: &str,
) {
    for key in 0..KEYS {
        let (ours, theirs) = (restored.peek(&key), original.peek(&key));
        if spilled {
            let same = ours.remaining() == theirs.remaining() && ours.outcome() == theirs.outcome();
            assert!(same && ours.reset_after() >= theirs.reset_after(), "{ours:?}, {theirs:?}, {what}");
        } else {
            assert_eq!(ours, theirs, "{key}, {what}");
        }
    }
}

fn round_trips<A: CompactAlgorithm>(algorithm: A, overflow: Overflow, bytes: usize) {
    let (original, clock) = limiter(algorithm.clone(), overflow, bytes, START);
    fill(&original, &clock, &mut Random(bytes as u64));
    let spilled = overflow == Overflow::Spill && original.gauges().evicted > 0;
    let taken = clock.now();
    let snapshot = original.snapshot();
    assert!(original.live_slots() > 3, "{algorithm:?}");
    // At once, while most keys still owe, and when no key owes. A window ends on the way.
    for later in [0, 1, 999_999_999, 3 * SEC, 11 * SEC, 3_600 * SEC] {
        let now = Timestamp::from_nanos(taken.as_nanos() + later);
        clock.set(now);
        let (restored, restored_clock) = limiter(algorithm.clone(), overflow, bytes, now);
        // `restore` replaces the previous content.
        for key in 0..KEYS {
            let _ = restored.check(&key);
        }
        restored.restore(&snapshot).unwrap_or_else(|error| panic!("{error}"));
        let what = format!("{algorithm:?} {overflow:?} in {bytes} bytes, {later} ns later");
        assert_same_decisions(&restored, &original, spilled, &what);
        assert_eq!(restored.live_slots(), original.live_slots(), "{what}");
        // Cells that no key reads any more may read as ahead again later.
        assert!(later > 11 * SEC || restored.at(now).snapshot() == original.at(now).snapshot(), "{what}");
        // The limiters also agree from then on. Evictions depend on what is in the slots, so the slots agree too.
        if later < 4 * SEC {
            let (twin, twin_clock) = limiter(algorithm.clone(), overflow, bytes, now);
            twin.restore(&restored.snapshot()).expect("a snapshot of a limiter like it");
            let mut random = Random(later);
            for _ in 0..300 {
                let (key, cost) = (random.skewed(KEYS), random.below(3));
                assert_eq!(twin.check_n(&key, cost), restored.check_n(&key, cost), "{what}");
                let step = Duration::from_millis(random.below(40));
                restored_clock.advance(step);
                twin_clock.advance(step);
            }
        }
    }
}

// G37, G143
#[test]
fn restored_limiter_decides_as_original() {
    let spec = Spec::new(5, 10 * SEC);
    for kind in COMPACT {
        for &overflow in policies(kind) {
            for bytes in [1 << 15, 1 << 10] {
                with_compact!(kind, spec, algorithm => round_trips(algorithm, overflow, bytes))
                    .expect("a quota");
            }
        }
    }
}

#[test]
fn clock_behind_snapshot_continues_from_snapshot() {
    for overflow in POLICIES {
        for behind in [Timestamp::ZERO, Timestamp::from_secs(5), Timestamp::from_secs(1_699_999_999)] {
            let (original, clock) = limiter(Gcra::new(Quota::per_minute(6)), overflow, 1 << 15, START);
            fill(&original, &clock, &mut Random(4));
            let (restored, behind_clock) =
                limiter(Gcra::new(Quota::per_minute(6)), overflow, 1 << 15, behind);
            restored.restore(&original.at(clock.now()).snapshot()).expect("a snapshot of a limiter like it");
            for _ in 0..20 {
                assert_same_decisions(&restored, &original, false, &format!("{overflow:?}, {behind:?}"));
                clock.advance(Duration::from_millis(2_500));
                behind_clock.advance(Duration::from_millis(2_500));
            }
        }
    }
    // The count of a window is moved to the window of the restoring clock.
    let window = || FixedWindow::new(Quota::per_minute(5));
    let (original, _) = limiter(window(), Overflow::Spill, 1 << 12, START);
    assert!(original.check_n("a", 4).is_allowed());
    let (restored, clock) = limiter(window(), Overflow::Spill, 1 << 12, Timestamp::from_secs(90));
    restored.restore(&original.snapshot()).expect("a snapshot of a limiter like it");
    assert_eq!(restored.peek("a").remaining(), 1);
    clock.advance(Duration::from_secs(30));
    assert_eq!(restored.peek("a").remaining(), 5);
}

/// After a limiter was idle for a while, no key owes anything in a restored copy, however many keys were evicted before.
#[test]
fn restored_idle_limiter_has_no_debts() {
    for overflow in POLICIES {
        let (original, clock) = limiter(Gcra::new(Quota::per_minute(6)), overflow, 1 << 10, START);
        fill(&original, &clock, &mut Random(7));
        clock.advance(Duration::from_secs(600));
        for later in 0..120 {
            clock.advance(Duration::from_secs(13));
            let (restored, _) = limiter(Gcra::new(Quota::per_minute(6)), overflow, 1 << 10, clock.now());
            restored.restore(&original.snapshot()).expect("a snapshot of a limiter like it");
            let denied = (0..KEYS).filter(|key| restored.peek_n(key, 6).is_denied()).count();
            assert_eq!(denied, 0, "of {KEYS} keys, {later} × 13 s after all debts were paid, {overflow:?}");
        }
    }
}

#[test]
fn idle_limiter_snapshot_is_empty() {
    let (idle, clock) = limiter(Gcra::new(Quota::per_minute(6)), Overflow::Spill, 1 << 12, START);
    let empty = idle.snapshot();
    assert!(empty.len() < 256, "{} bytes", empty.len());
    fill(&idle, &clock, &mut Random(6));
    assert!(idle.snapshot().len() > 256);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(idle.at(clock.now()).snapshot().len(), empty.len());
    assert!(idle.check("a").is_allowed());
    idle.restore(&empty).expect("its own snapshot");
    assert_eq!(idle.live_slots(), 0);
}

/// Asserts that `restore` refuses the snapshot for this reason and changes nothing.
#[track_caller]
fn refused<A: CompactAlgorithm>(limiter: &Limiter<A>, snapshot: &[u8], reason: &str) {
    let before = (limiter.snapshot(), limiter.gauges());
    let error = limiter.restore(snapshot).expect_err("not a snapshot of this limiter").to_string();
    assert!(
        error.starts_with("cannot restore the snapshot: ") && error.contains(reason),
        "{reason:?} is not in {error:?}"
    );
    assert_eq!((limiter.snapshot(), limiter.gauges()), before, "{error}");
}

// G37
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn cut_or_flipped_snapshots_are_refused() {
    for overflow in POLICIES {
        let (limiter, clock) = limiter(Gcra::new(Quota::per_minute(6)), overflow, 512, START);
        fill(&limiter, &clock, &mut Random(3));
        let snapshot = limiter.snapshot();
        assert!(snapshot.len() > 150);
        clock.advance(Duration::from_millis(300));

        refused(&limiter, &[], "are not a tollgate snapshot");
        for cut in 1..snapshot.len() {
            let reason = if cut < 8 { "are not a tollgate snapshot" } else { "truncated after" };
            refused(&limiter, &snapshot[..cut], reason);
        }
        for extra in [1, 8, 16, 1_000] {
            let mut long = snapshot.clone();
            long.resize(snapshot.len() + extra, 0);
            refused(&limiter, &long, &format!("{extra} extra bytes after the end"));
        }
        for bit in 0..8 * snapshot.len() {
            let mut flipped = snapshot.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let reason = match bit / 8 {
                0..8 => "are not a tollgate snapshot",
                8..12 => "and this library reads version 4",
                // With a wrong count, the end comes too soon or too late. The checksum finds all other changes.
                _ => "",
            };
            refused(&limiter, &flipped, reason);
        }
        // Swap two bytes of an entry.
        let mut swapped = snapshot.clone();
        let entry =
            100 + snapshot[100..].windows(2).position(|pair| pair[0] != pair[1]).expect("different bytes");
        swapped.swap(entry, entry + 1);
        refused(&limiter, &swapped, "its checksum does not match");
        limiter.restore(&snapshot).expect("the whole snapshot");
    }
}

// G37
#[test]
fn snapshots_of_other_limiters_are_refused() {
    let quota = Quota::per_minute(6);
    let (own, clock) = limiter(Gcra::new(quota), Overflow::Spill, 1 << 12, START);
    fill(&own, &clock, &mut Random(2));

    let other_quota = limiter(Gcra::new(Quota::per_minute(7)), Overflow::Spill, 1 << 12, START).0;
    refused(
        &own,
        &other_quota.snapshot(),
        "another quota: its limit or burst is 7 units, and this limiter's 6",
    );
    let other_burst = limiter(Gcra::new(quota.burst(7)), Overflow::Spill, 1 << 12, START).0;
    refused(&own, &other_burst.snapshot(), "another quota: its limit or burst is 7 units");
    let windows = limiter(FixedWindow::new(quota), Overflow::Spill, 1 << 12, START).0;
    refused(&own, &windows.snapshot(), "another algorithm");
    refused(&windows, &own.snapshot(), "another algorithm");
    let two_counts = limiter(SlidingWindow::new(quota), Overflow::Forget, 1 << 12, START).0;
    let one_count = limiter(FixedWindow::new(quota), Overflow::Forget, 1 << 12, START).0;
    refused(&two_counts, &one_count.snapshot(), "another algorithm");
    let build = |tiers: &[Quota], seed, overflow, bytes| {
        let builder = RateLimiter::builder(Gcra::new(quota)).clock(clock.clone()).hasher(Seeded(seed));
        let builder = builder.tiers(tiers.iter().copied()).overflow(overflow);
        builder.capacity(Capacity::memory(bytes)).compact().expect("an ordinary quota")
    };
    let tiers = build(&[Quota::per_hour(60)], 5, Overflow::Spill, 1 << 12);
    refused(&own, &tiers.snapshot(), "other tiers or another overdraft");
    refused(&own, &build(&[], 9, Overflow::Spill, 1 << 12).snapshot(), "with another hasher");
    for bytes in [1 << 11, 1 << 13] {
        refused(&own, &build(&[], 5, Overflow::Spill, bytes).snapshot(), "slots");
    }
    for overflow in [Overflow::Forget, Overflow::Inherit] {
        for bytes in [1 << 11, 1 << 12] {
            refused(&own, &build(&[], 5, overflow, bytes).snapshot(), "same capacity and overflow");
            refused(&build(&[], 5, overflow, bytes), &own.snapshot(), "same capacity and overflow");
        }
    }
    let forgets = build(&[], 5, Overflow::Forget, 1 << 12);
    refused(&build(&[], 5, Overflow::Inherit, 1 << 12), &forgets.snapshot(), "same capacity and overflow");
    // A limiter with the same settings is accepted.
    own.restore(&build(&[], 5, Overflow::Spill, 1 << 12).snapshot())
        .expect("a snapshot of a limiter like it");

    refused(&own, b"TOLLGAT", "are not a tollgate snapshot");
    refused(&own, b"PK\x03\x04 and so on", "are not a tollgate snapshot");
    refused(&own, b"TOLLGATE", "truncated after 8 bytes");
}

/// Some of these limiters have states of the same size and rate. In the past each accepted the other's snapshots.
// G37
#[test]
fn other_algorithms_and_quotas_are_refused() {
    let quota = Quota::per_minute(16);
    fn of<A: CompactAlgorithm>(algorithm: A) -> Limiter<A> {
        let limiter = limiter(algorithm, Overflow::Forget, 1 << 12, START).0;
        assert!(limiter.check("a").is_allowed());
        limiter
    }
    let gcra = of(Gcra::new(quota)).snapshot();
    of(TokenBucket::new(quota)).restore(&gcra).expect("the same algorithm under another name");
    of(LeakyBucketMeter::new(quota)).restore(&gcra).expect("the same algorithm under another name");
    refused(
        &of(LeakyBucketQueue::new(quota)),
        &gcra,
        "it holds arrival times, and this limiter departure times",
    );
    let spaced = of(MinimumSpacing::new(Duration::from_secs(60)));
    refused(
        &spaced,
        &of(Gcra::new(Quota::per_minute(1))).snapshot(),
        "and this limiter times of spaced events",
    );
    // Twice the units in the same time: a tick is as long, and a burst is as many ticks.
    refused(
        &of(Gcra::new(Quota::per_minute(32))),
        &gcra,
        "its limit or burst is 16 units, and this limiter's 32",
    );
    let slow = of(Gcra::new(Quota::new(16, Duration::from_secs(120))));
    refused(&slow, &gcra, "take 3750000000/1 ns, and this limiter's 7500000000/1 ns");

    let sliding = |limit| SlidingWindow::new(Quota::per_minute(limit));
    let ten = of(sliding(10)).snapshot();
    refused(
        &of(sliding(10).strict()),
        &ten,
        "it holds sliding windows, and this limiter strict sliding windows",
    );
    refused(&of(sliding(9)), &ten, "its limit or burst is 10 units, and this limiter's 9");
    let fixed = |limit| of(FixedWindow::new(Quota::per_minute(limit)));
    refused(&fixed(9), &fixed(10).snapshot(), "its limit or burst is 10 units, and this limiter's 9");
    refused(&fixed(10), &ten, "it holds sliding windows, and this limiter aligned windows");
}

/// The example in the documentation of `restore`.
// G37
#[test]
fn restored_limiter_accepts_new_quota() {
    let (original, clock) = limiter(Gcra::new(Quota::per_hour(100)), Overflow::Spill, 1 << 12, START);
    assert!(original.check_n("alice", 60).is_allowed());
    let (restored, _) = limiter(Gcra::new(Quota::per_hour(100)), Overflow::Spill, 1 << 12, clock.now());
    restored.restore(&original.snapshot()).expect("a snapshot of a limiter like it");
    let restored = restored.adjustable();
    restored.set_quota(&Quota::per_hour(200), Carry::Proportional).expect("an ordinary quota");
    assert_eq!(restored.peek("alice").remaining(), 80);
}

/// A queue's debts are departure times. GCRA decides the same from them, but only a queue returns them as delays.
#[test]
fn restored_queue_keeps_its_delays() {
    let queue = || LeakyBucketQueue::new(Quota::per_minute(6));
    let (original, clock) = limiter(queue(), Overflow::Spill, 1 << 12, START);
    assert!(original.check_n("a", 3).is_allowed());
    clock.advance(Duration::from_secs(5));
    let (restored, _) = limiter(queue(), Overflow::Spill, 1 << 12, clock.now());
    restored.restore(&original.snapshot()).expect("a snapshot of a limiter like it");
    assert_eq!(restored.check("a").delay(), Duration::from_secs(25));
}

/// An attacker with a valid checksum can forge debts, but no impossible state.
#[test]
fn impossible_state_with_checksum_is_refused() {
    let (limiter, clock) = limiter(Gcra::new(Quota::per_minute(6)), Overflow::Spill, 512, START);
    fill(&limiter, &clock, &mut Random(3));
    let snapshot = limiter.snapshot();
    let forged = |at: usize, bytes: &[u8]| {
        let mut forged = snapshot.clone();
        forged[at..][..bytes.len()].copy_from_slice(bytes);
        seal(&mut forged);
        forged
    };
    assert_eq!(forged(0, &[]), snapshot, "the checksum equals the library's");
    let number = |at: usize| u64::from_le_bytes(snapshot[at..][..8].try_into().expect("eight bytes"));
    // The header is 12 bytes and twelve numbers. The slots, the cells and the ends follow; a count precedes each of them.
    let (slots, slot) = (108, 116);
    let cells = slot + 16 * usize::try_from(number(slots)).expect("a few");
    let cell = cells + 8;
    // An entry of the cells is an index and two bytes, and one of the ends is two numbers.
    let entry = 10;
    let ends = cell + entry * usize::try_from(number(cells)).expect("a few");
    let end = ends + 8;
    assert!(number(slots) > 2 && number(cells) > 2 && number(ends) > 1);
    let word = number(slot + 8);
    for (what, forged) in [
        ("a slot that does not exist", forged(slot, &u64::MAX.to_le_bytes())),
        ("slots in the wrong order", forged(slot, &number(slot + 32).to_le_bytes())),
        ("the same slot twice", forged(slot + 16, &number(slot).to_le_bytes())),
        ("no fingerprint", forged(slot + 8, &(word & ((1 << 40) - 1)).to_le_bytes())),
        ("no debt", forged(slot + 8, &(word >> 40 << 40).to_le_bytes())),
        ("more debt than a burst", forged(slot + 8, &(word | ((1 << 40) - 1)).to_le_bytes())),
        ("a cell that does not exist", forged(cell, &vec![255; entry - 2])),
        ("cells in the wrong order", forged(cell, &snapshot[cell + 2 * entry..][..entry - 2])),
        ("an empty cell", forged(cell + entry - 2, &0_u16.to_le_bytes())),
        ("a cell of more than a burst", forged(cell + entry - 2, &u16::MAX.to_le_bytes())),
        ("an end that does not exist", forged(end, &u64::MAX.to_le_bytes())),
        ("ends in the wrong order", forged(end, &number(end + 16).to_le_bytes())),
        ("an end without a debt", forged(end + 8, &0_u64.to_le_bytes())),
        ("an end of more than a burst", forged(end + 8, &u64::MAX.to_le_bytes())),
    ] {
        assert_ne!(forged, snapshot, "{what}");
        refused(&limiter, &forged, "is invalid");
    }
    // More entries than the snapshot has room for.
    for at in [slots, cells, ends] {
        for count in [u64::MAX, 1 << 60, number(at) + 1_000] {
            refused(&limiter, &forged(at, &count.to_le_bytes()), "truncated after");
        }
    }
    // Every time is possible for a clock.
    for time in [0, 1, u64::MAX] {
        limiter.restore(&forged(100, &u64::to_le_bytes(time))).expect("a snapshot of a limiter like it");
        let _ = limiter.check(&1);
    }
}
