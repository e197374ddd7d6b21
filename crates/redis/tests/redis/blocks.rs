//! Blocks on a server: a denial in one process blocks the key for all of them, and no block outlives its stated end.
//!
//! `kinds` compares them with the blocks of this process, and `tests/protocol/scripts.rs` of `crates/protocol` compares the script with its model.

use std::time::Duration;

use tollgate::{Block, FixedWindow, ManualClock, Quota, Timestamp};
use tollgate_redis::{AtomicLimiter, Blocking, DecidedBy, ErrorKind, InProcess, Limit};
use tollgate_testing::redis::Server;

use crate::hosts::on_each;
use crate::{absent, client, in_threads, strict};

const START: u64 = 1_800_000_000;
const MINUTE: u64 = 60;
const DAY: u64 = 86_400;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(START + seconds)
}

/// Five a minute; the first block has ten minutes, the longest an hour.
fn logins() -> Limit {
    with(Quota::per_minute(5), 10 * MINUTE, 60 * MINUTE)[0]
}

fn with(quota: Quota, first: u64, most: u64) -> [Limit; 1] {
    [Limit::gcra(quota).with_block(Block::of(secs(first)).at_most(secs(most))).unwrap()]
}

/// The wait of a check of one unit, if it is denied by a block.
fn blocked_for(limiter: &Blocking<AtomicLimiter>, seconds: u64) -> Option<Duration> {
    let answer = limiter.block_on(|l| l.at(at(seconds)).check("mallory"));
    assert_eq!(answer.by(), DecidedBy::Server);
    assert_eq!(answer.is_denied(), answer.decision().is_block(), "each denial here is a block");
    answer.retry_after().filter(|_| answer.is_denied())
}

// G132
#[test]
fn denials_that_race_start_one_block() {
    on_each(|host| {
        let processes: Vec<_> = (0..4).map(|_| host.process(&[logins()])).collect();
        let race = |process: usize| (0..20).filter_map(|_| blocked_for(&processes[process], 0)).collect();
        let waits: Vec<Vec<_>> = in_threads(4, race);
        assert_eq!(waits.concat(), [secs(600); 75], "five units were free");
        assert_eq!(blocked_for(&processes[0], 600), None);
        assert_eq!(blocked_for(&processes[1], 600), Some(secs(1_200)), "the second block");
    });
}

// G132
#[test]
fn first_denial_writes_once_and_later_ones_write_nothing() {
    let Some(server) = Server::start() else { return };
    let limiter = strict(client(&server).blocking().limiter("login", logins()), &[]).atomic().unwrap();
    assert!(limiter.check_n("a", 5).is_allowed());
    let before = server.writes();
    assert!(limiter.check("a").decision().is_block());
    assert_eq!(server.writes(), before + 1);
    for cost in [1, 2, 5, 6] {
        assert!(limiter.check_n("a", cost).is_denied());
    }
    assert!(limiter.block_on(|l| l.peek("a")).decision().is_block());
    assert_eq!(server.writes(), before + 1);
    let life_ms: u64 = server.command(&["PTTL", "tollgate:v1:{login|a}:b0"]);
    // The block, the rest of the burst, and the quiet time.
    let whole_ms = 1_000 * (600 + 48 + 600);
    assert!((whole_ms - 20_000..=whole_ms + 2_000).contains(&life_ms), "{life_ms}");
    server.command::<()>(&["SET", "tollgate:v1:{login|a}:b0", "x"]);
    assert_eq!(limiter.block_on(|l| l.charge_unchecked("a", 1)).unwrap_err().kind(), ErrorKind::Reply);
}

/// A peek asks the server for its own time, which the test of a model moves.
// G132
#[test]
fn peek_and_refund_start_and_end_no_block() {
    let clock = ManualClock::new(at(0));
    let limiter = InProcess::new(clock.clone()).blocking().limiter("login", logins()).atomic().unwrap();
    let charge = limiter.check_n("a", 5);
    let peeked = limiter.block_on(|l| l.peek("a")).decision();
    assert!(peeked.is_denied() && !peeked.is_block());
    clock.advance(secs(1));
    assert_eq!(limiter.block_on(|l| l.refund("a", &charge)).unwrap(), 5, "a part of a unit counts as one");
    let charge = limiter.check_n("a", 5);
    assert!(limiter.check("a").decision().is_block());
    assert_eq!(limiter.block_on(|l| l.refund("a", &charge)).unwrap(), 0);
    assert_eq!(limiter.block_on(|l| l.peek("a")).retry_after(), Some(secs(600)));
    clock.advance(secs(600));
    assert!(limiter.block_on(|l| l.peek("a")).is_allowed());
    assert!(limiter.block_on(|l| l.peek_n("a", 2)).is_denied());
    assert!(limiter.check("a").is_allowed());
    // Each unit that is charged without a check is paid after the block.
    assert!(limiter.check("a").decision().is_block());
    assert!(limiter.block_on(|l| l.charge_unchecked("a", 2)).unwrap().is_allowed());
    assert_eq!(limiter.check("a").retry_after(), Some(secs(1_200 + 24)));
}

// G132
#[test]
fn changed_limits_keep_the_end_of_a_block() {
    on_each(|host| {
        let old = host.process(&with(Quota::per_minute(5), 600, 3_600));
        assert!(old.block_on(|l| l.at(at(0)).check_n("mallory", 5)).is_allowed());
        assert_eq!(blocked_for(&old, 0), Some(secs(600)));
        let other_rate = host.process(&with(Quota::per_hour(7).burst(3), 600, 3_600));
        assert_eq!(blocked_for(&other_rate, 100), Some(secs(500)));
        let longer = host.process(&with(Quota::per_minute(5), 7_200, 7_200));
        assert_eq!(blocked_for(&longer, 100), Some(secs(500)), "a block that has begun does not grow");
        let shorter = host.process(&with(Quota::per_minute(5), 120, 300));
        assert_eq!(blocked_for(&shorter, 100), Some(secs(200)), "it has the longest length, from its start");
        assert_eq!(blocked_for(&shorter, 300), None);
        assert_eq!(blocked_for(&shorter, 300), Some(secs(240)), "the second block");
    });
}

// G132
#[test]
fn limit_blocks_only_keys_that_it_denies() {
    let hourly = Limit::from(FixedWindow::new(Quota::per_hour(8)));
    let daily = Limit::from(FixedWindow::new(Quota::per_day(100)));
    // With two limits and with three: each number has a script of its own.
    for limits in [&[logins(), hourly][..], &[hourly, daily, logins()]] {
        on_each(|host| {
            let limiter = host.process(limits);
            assert!(limiter.block_on(|l| l.at(at(0)).check_n("mallory", 5)).is_allowed());
            assert!(limiter.block_on(|l| l.at(at(MINUTE)).check_n("mallory", 3)).is_allowed());
            let by_hour = limiter.block_on(|l| l.at(at(MINUTE)).check("mallory")).decision();
            assert!(by_hour.is_denied() && !by_hour.is_block(), "the hour denied it, and blocks nothing");
            let next_hour = 3_600 - START % 3_600;
            let next = limiter.block_on(|l| l.at(at(next_hour)).check_n("mallory", 5));
            assert!(next.is_allowed(), "no block began");
            let charged = limiter.block_on(|l| l.at(at(next_hour)).check("mallory")).decision();
            assert_eq!((charged.is_block(), charged.retry_after()), (true, Some(secs(600))));
            let later = limiter.block_on(|l| l.at(at(next_hour + 600)).check_n("mallory", 1)).decision();
            assert_eq!((later.is_allowed(), later.remaining()), (true, 0));
        });
    }
}

/// Without the server, the process's share limits the key, and blocks nothing.
#[test]
fn local_policy_has_no_blocks() {
    let limiter = absent().blocking().limiter("login", logins()).atomic().unwrap();
    assert!(limiter.block_on(|l| l.at(at(0)).check_n("a", 5)).is_allowed());
    let denied = limiter.block_on(|l| l.at(at(0)).check("a"));
    assert_eq!((denied.by(), denied.decision().is_block()), (DecidedBy::Local, false));
    assert!(limiter.block_on(|l| l.at(at(12)).check("a")).is_allowed());
}

/// A clock that steps back prolongs a block by the step, or by the time that has passed in it and the time that refills a
/// burst if that is less.
// G132
#[test]
fn step_back_prolongs_a_block_by_at_most_its_past_and_the_burst() {
    on_each(|host| {
        for (step, more) in [(30, 30), (200, 200), (300, 300), (360, 360), (361, 300), (DAY / 2, 300)] {
            let limiter = host.process(&[logins()]);
            let key = format!("mallory{step}");
            let wait = |seconds: u64| {
                let answer = limiter.block_on(|l| l.at(at(seconds)).check(&key));
                answer.retry_after().filter(|_| answer.is_denied())
            };
            assert!(limiter.block_on(|l| l.at(at(DAY)).check_n(&key, 5)).is_allowed());
            assert_eq!(wait(DAY), Some(secs(600)));
            assert_eq!(wait(DAY + 300), Some(secs(300)));
            // The time that refills the burst is a minute.
            assert!(more <= step.min(300 + MINUTE));
            let (back, left) = (DAY + 300 - step, 300 + more);
            assert_eq!(wait(back), Some(secs(left)), "{step} s back");
            assert_eq!([wait(back + left - 1), wait(back + left)], [Some(secs(1)), None], "{step} s back");
        }
    });
}

/// If the longest block becomes shorter, a block lasts at most that long from its beginning, also if units were charged in it.
// G132
#[test]
fn shorter_longest_block_counts_from_the_beginning() {
    let with = |first, most| with(Quota::per_minute(5), first, most)[0];
    let clock = ManualClock::new(at(0));
    let server = InProcess::new(clock.clone()).blocking();
    let old = server.limiter("login", with(3_600, 3_600)).atomic().unwrap();
    let shorter = server.limiter("login", with(120, 1_200)).atomic().unwrap();
    assert!(old.check_n("mallory", 5).is_allowed());
    assert_eq!(old.check("mallory").retry_after(), Some(secs(3_600)));
    clock.advance(secs(1_140));
    assert_eq!(shorter.block_on(|l| l.peek("mallory")).retry_after(), Some(secs(60)));
    assert!(old.block_on(|l| l.charge_unchecked("mallory", 1)).is_ok());
    // The charged unit is paid after the block.
    assert_eq!(shorter.block_on(|l| l.peek("mallory")).retry_after(), Some(secs(60 + 12)));
}

/// Another quota moves no end, also of a block that is longer than its length because its denial had to wait longer.
// G132
#[test]
fn another_quota_moves_no_end_of_a_long_wait() {
    on_each(|host| {
        let process = |quota, length| host.process(&with(quota, length, length));
        let (hourly, daily) = (process(Quota::per_hour(1), 60), process(Quota::per_day(1), 60));
        assert_eq!(blocked_for(&hourly, 0), None);
        assert_eq!(blocked_for(&hourly, 0), Some(secs(3_600)), "the wait without a block");
        assert_eq!(blocked_for(&daily, 100), Some(secs(3_500)));
        assert_eq!(blocked_for(&process(Quota::per_minute(7).burst(3), 60), 100), Some(secs(3_500)));
        assert_eq!(blocked_for(&process(Quota::per_hour(1), 10), 100), Some(secs(3_500)), "a shorter block");
        assert_eq!(blocked_for(&daily, 3_600), None);
    });
}
