//! Units that the caller deposits.

use super::*;

/// Deposits units that were requested at a time.
fn deposit(limiter: &Limiter<Fake>, units: u64, life: Duration, asked: Timestamp) -> u64 {
    limiter.leases().deposit(Lease::new(units, life), asked, limiter.clock().now())
}

fn wanted(limiter: &Limiter<Fake>) -> u64 {
    limiter.leases().wanted(limiter.clock().now())
}

// G53
#[test]
fn all_stripes_find_deposits_until_expiry() {
    let limiter = leasing(Fake::new(0, 16), 4, 64);
    let clock = limiter.clock().clone();
    assert_eq!(wanted(&limiter), 0, "no unit has been used, so none is wanted");
    deposit(&limiter, 100, Duration::from_millis(4), clock.now());
    for thread in 0..4 {
        assert!(limiter.leases().check_on(thread, 10, clock.now()).is_allowed());
    }
    assert_eq!(limiter.peek().remaining(), 60);
    assert!(limiter.leases().check_on(3, 61, clock.now()).is_denied());
    // A second deposit, with its own life.
    clock.advance(Duration::from_millis(3));
    deposit(&limiter, 100, Duration::from_secs(1), clock.now());
    assert_eq!(limiter.peek().remaining(), 160);
    clock.advance(Duration::from_millis(1));
    assert_eq!(limiter.peek().remaining(), 100, "the first deposit has expired");
    clock.advance(Duration::from_nanos(LIFE));
    assert!(limiter.check().is_denied(), "no deposit lives longer than the limiter's lease life");
    deposit(&limiter, 100, Duration::from_millis(4), at(START));
    assert!(limiter.check().is_denied(), "the deposit was requested too long ago");
}

/// The length of an expiry tick. A deposit at a whole tick expires at a whole tick.
const TICK: u64 = 1 << 19;
const WHOLE: u64 = START / TICK * TICK;
const SLOTS: u64 = 16;

/// Deposits `units` that expire `ticks` ticks after `WHOLE`.
fn deposit_for(limiter: &Limiter<Fake>, units: u64, ticks: u64) -> u64 {
    deposit(limiter, units, Duration::from_nanos(ticks * TICK), at(WHOLE))
}

/// Returns the expiry ticks, counted from `WHOLE`, and the units that expire at each.
fn expiries(limiter: &Limiter<Fake>) -> Vec<(u64, u64)> {
    let held = |ticks| limiter.at(at(WHOLE + ticks * TICK)).peek_n(0).remaining();
    (1..40).map(|ticks| (ticks, held(ticks - 1) - held(ticks))).filter(|(_, units)| *units > 0).collect()
}

fn deposited(stripes: usize) -> Limiter<Fake> {
    let limiter = leasing(Fake::new(0, 16), stripes, 4096);
    limiter.clock().set(at(WHOLE));
    limiter
}

#[test]
fn deposits_keep_separate_expiries() {
    let limiter = deposited(1);
    // The freed slot may be any of them.
    assert_eq!(deposit_for(&limiter, 3, 1) + deposit_for(&limiter, 10 * SLOTS, SLOTS), 3 + 10 * SLOTS);
    assert!(limiter.leases().check_on(0, 3, at(WHOLE)).is_allowed());
    assert_eq!(deposit_for(&limiter, 1, SLOTS), 1);
    for ticks in 1..SLOTS {
        assert_eq!(deposit_for(&limiter, 10 * ticks, ticks), 10 * ticks);
        // A deposit with an expiry that a slot already has needs no other slot.
        assert_eq!(deposit_for(&limiter, 1, ticks), 1);
    }
    assert_eq!(expiries(&limiter), (1..=SLOTS).map(|ticks| (ticks, 10 * ticks + 1)).collect::<Vec<_>>());
    // When no slot is free, the units join a slot with an earlier expiry.
    assert_eq!(deposit_for(&limiter, 5, SLOTS + 2), 5);
    assert_eq!(expiries(&limiter).last(), Some(&(SLOTS, 10 * SLOTS + 1 + 5)));
}

// G53
#[test]
fn deposit_join_never_loses_unit_time() {
    let limiter = deposited(1);
    for ticks in 3..3 + SLOTS {
        assert_eq!(deposit_for(&limiter, 1_000, ticks), 1_000);
    }
    // Joining one unit with an earlier expiry would shorten the life of a thousand units by a tick.
    assert_eq!(deposit_for(&limiter, 1, 2), 0);
    assert_eq!(limiter.peek().remaining(), 1_000 * SLOTS);
    // Five thousand units are worth that loss. They join the slot where the least time is lost.
    assert_eq!(deposit_for(&limiter, 5_000, 2), 5_000);
    let mut expected: Vec<_> = (3..3 + SLOTS).map(|ticks| (ticks, 1_000)).collect();
    expected[0] = (2, 6_000);
    assert_eq!(expiries(&limiter), expected);
}

#[test]
fn large_deposit_takes_several_slots() {
    let most = TICK / 32 - 1;
    let limiter = deposited(4);
    assert_eq!(deposit_for(&limiter, 100_000, 16), 100_000);
    assert_eq!(limiter.peek().remaining(), 100_000);
    assert!(
        limiter.leases().check_on(1, 40_000, at(WHOLE)).is_allowed(),
        "one check spends more units than one slot holds"
    );
    assert_eq!(deposit_for(&limiter, 40_000, 16), 40_000, "the deposit uses the freed room");
    let room = SLOTS * most - 100_000;
    assert_eq!(
        deposit_for(&limiter, u64::MAX, 18),
        room,
        "the deposit adds no more units than there is room for"
    );
    assert_eq!(limiter.peek().remaining(), SLOTS * most);
    assert_eq!(deposit_for(&limiter, 1, 16), 0);
    // Joining two slots does not lose any units either.
    let limiter = deposited(4);
    for _ in 0..SLOTS {
        assert_eq!(deposit_for(&limiter, most - 1, 16), most - 1);
    }
    assert_eq!(deposit_for(&limiter, SLOTS + 1, 16), SLOTS);
}

/// A deposit of the wanted units always fits.
// G53
#[test]
fn wanted_units_fit_deposit_room() {
    let limiter = deposited(64);
    let clock = limiter.clock().clone();
    let (mut most, mut denied) = (0, 0);
    for step in 0..100 {
        let wanted = wanted(&limiter).max(if step < 4 { 64 } else { 0 });
        most = most.max(wanted);
        assert_eq!(deposit(&limiter, wanted, Duration::MAX, clock.now()), wanted, "{step}");
        for thread in 0..64 {
            denied +=
                (0..400).filter(|_| limiter.leases().check_on(thread, 1, clock.now()).is_denied()).count();
        }
        denied = if step < 50 { 0 } else { denied };
        clock.advance(Duration::from_millis(1));
    }
    assert!(most <= SLOTS * (TICK / 32 - 1), "{most}");
    assert_eq!(denied, 0);
}

#[test]
fn no_units_wanted_at_time_zero() {
    let limiter = leasing(Fake::new(0, 16), 8, 64);
    for now in [0, 1, LIFE - 1, LIFE, 3 * LIFE] {
        limiter.clock().set(at(now));
        assert_eq!(wanted(&limiter), 0, "{now}");
    }
    limiter.clock().set(at(0));
    deposit(&limiter, 100, Duration::MAX, at(0));
    assert!(limiter.leases().check_on(0, 1, at(0)).is_allowed());
    assert!(deposit(&limiter, 1, Duration::MAX, at(0)) == 1);
}

/// A request time in the future does not make the life of a deposit longer.
#[test]
fn future_refill_request_counts_as_now() {
    let limiter = deposited(2);
    let ahead = Duration::from_nanos(LIFE - 1);
    assert_eq!(deposit(&limiter, 100, Duration::MAX, limiter.clock().now() + ahead), 100);
    limiter.clock().advance(Duration::from_nanos(LIFE));
    assert_eq!(limiter.peek().remaining(), 0);
}

/// Units fetched after one check are there at the next check if a lease lives longer than the time between the
/// checks.
#[test]
fn rare_checks_need_long_lease_life() {
    let fetched_for_the_next = |gap_ms: u64| {
        let limiter = deposited(2);
        let clock = limiter.clock().clone();
        let mut admitted = 0;
        for check in 0..100 {
            admitted += u32::from(limiter.leases().check_on(check % 2, 1, clock.now()).is_allowed());
            let asked = clock.now();
            clock.advance(Duration::from_millis(1));
            deposit(&limiter, 10, Duration::MAX, asked);
            clock.advance(Duration::from_millis(gap_ms - 1));
        }
        admitted
    };
    assert_eq!(fetched_for_the_next(9), 99, "all checks but the first are admitted");
    assert_eq!(fetched_for_the_next(10), 0);
}

/// A task that regularly fetches the wanted units keeps up with the spending, and no check waits for the source.
#[test]
fn prefetched_units_keep_up_with_spending() {
    let limiter = leasing(Fake::new(0, 16), 2, 1024);
    let clock = limiter.clock().clone();
    let (mut admitted, mut fetched) = (0, 0);
    for tick in 0..2_000_u64 {
        // There are 100 checks a millisecond. Every fourth millisecond the task fetches what was wanted a millisecond
        // ago.
        let wanted = wanted(&limiter).max(u64::from(limiter.peek().remaining() == 0));
        let asked = clock.now();
        for check in 0..100 {
            admitted += u64::from(limiter.leases().check_on(check % 2, 1, clock.now()).is_allowed());
        }
        clock.advance(Duration::from_millis(1));
        if tick % 4 == 0 {
            deposit(&limiter, wanted, Duration::from_millis(10), asked);
            fetched += wanted;
        }
        if tick == 1_000 {
            (admitted, fetched) = (0, 0);
        }
    }
    assert_eq!(admitted, 99_900, "nothing is denied after the first 1,000 ms");
    assert!(fetched < 2 * admitted, "too many units were fetched in vain: {fetched}");
    clock.advance(Duration::from_secs(1));
    assert_eq!(wanted(&limiter), 0, "an idle limiter wants no units");
}
