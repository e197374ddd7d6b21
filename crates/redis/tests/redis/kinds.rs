//! Properties of all shared algorithms:
//! - The process's own limiter, the model of a server and a real server give the same answers at the same times:
//!   outcome, remaining units, wait, reset and delay, and the units that a refund takes back.
//! - A sliding log keeps its times when its ring grows and wraps, and when the limit changes.
//! - A key with a foreign value is an error, and charges no other limit.
//! - The modes that decide in this process refuse what they cannot bound, and name what to use instead.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
#[cfg(feature = "calendar")]
use tollgate::calendar::CalendarPeriod;
use tollgate::{
    AnyLimiter, Block, Class, Decision, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, LimitKind,
    ManualClock, MinimumSpacing, Quota, RateLimiter, SlidingLog, SlidingWindow, StoreKind, SubWindow,
    Timestamp, TokenBucket,
};
#[cfg(feature = "calendar")]
use tollgate::{Calendar, CalendarWindow};
use tollgate_redis::{AtomicLimiter, Blocking, DecidedBy, ErrorKind, InProcess, Limit, SharedDecision};
use tollgate_testing::limits;
use tollgate_testing::operations::config;
use tollgate_testing::redis::Server;

use crate::hosts::on_each;
use crate::{client, strict};

const SEC: u64 = 1_000_000;
/// A multiple of an hour, so that tests know where aligned periods begin.
const START: u64 = 472_222 * 3_600 * SEC;

/// The process's own limiter.
fn own(limit: Limit) -> AnyLimiter<(), ManualClock> {
    RateLimiter::any(limit).clock(ManualClock::default()).build(StoreKind::Direct).unwrap()
}

/// Returns a limit by the number of its algorithm, with these parameters.
fn made(kind: u8, quota: Quota, parts: u32, at_us: u64) -> Limit {
    match kind {
        #[cfg(feature = "calendar")]
        16 => of_berlin(CalendarPeriod::Day, quota.limit() % 31 + 1).into(),
        #[cfg(feature = "calendar")]
        17 => of_berlin(CalendarPeriod::Month { day: 31 }, quota.limit() % 31 + 1).into(),
        _ => limits::made(kind, quota, parts, at_us),
    }
}

/// The number of kinds that [`made`] knows.
const KINDS: u8 = if cfg!(feature = "calendar") { 18 } else { 16 };

#[cfg(feature = "calendar")]
fn of_berlin(period: CalendarPeriod, limit: u64) -> CalendarWindow {
    CalendarWindow::new(Calendar::at_hour("Europe/Berlin", period, 6).unwrap(), limit)
}

#[derive(Copy, Clone, Debug)]
enum Step {
    Check(Time, u64),
    /// A check of a class with this share in per cent.
    Class(Time, u64, u8),
    Peek(Time, u64),
    Refund(Time),
}

#[derive(Copy, Clone, Debug)]
enum Time {
    Us(u64),
    /// In sixteenths of the period.
    Share(u64),
    /// By the wait of the last answer, and by this many microseconds less.
    Retry(u64),
    /// Back, in sixteenths of the period.
    Back(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = || {
        prop_oneof![
            5 => Just(Time::Us(0)),
            3 => (0_u64..=5).prop_map(Time::Us),
            6 => (0_u64..=6).prop_map(Time::Share),
            2 => (0_u64..=64).prop_map(Time::Share),
            1 => (0_u64..1 << 42).prop_map(Time::Us),
            4 => (0_u64..=1).prop_map(Time::Retry),
            1 => (0_u64..=14).prop_map(Time::Back),
        ]
    };
    let cost = || prop_oneof![1 => Just(0_u64), 10 => 1_u64..=4, 2 => 1_u64..=60, 1 => select(vec![u64::MAX, 1 << 53])];
    prop::collection::vec(
        prop_oneof![
            12 => (time(), cost()).prop_map(|(time, cost)| Step::Check(time, cost)),
            3 => (time(), cost(), 1_u8..=99).prop_map(|(time, cost, share)| Step::Class(time, cost.max(1), share)),
            2 => (time(), cost()).prop_map(|(time, cost)| Step::Peek(time, cost)),
            2 => time().prop_map(Step::Refund),
        ],
        1..60,
    )
}

/// The figures of a decision in whole microseconds, rounded up.
fn figures(decision: &Decision) -> [Option<u128>; 7] {
    let us = |time: Duration| time.as_nanos().div_ceil(1_000);
    [
        Some(u128::from(decision.is_allowed()) + 2 * u128::from(decision.is_never())),
        Some(decision.remaining().into()),
        Some(decision.limit().into()),
        decision.retry_after().map(us),
        Some(us(decision.reset_after())),
        Some(us(decision.delay())),
        Some(decision.is_block().into()),
    ]
}

fn alike(
    model: &Blocking<AtomicLimiter>,
    server: Option<&Blocking<AtomicLimiter>>,
    key: &str,
    limit: Limit,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut ours = own(limit);
    let mut now_us = START + 123_456;
    let mut highest_us = now_us;
    // The highest time at the last charge.
    let mut charged_by_us = now_us;
    let mut last: Option<(Decision, SharedDecision, Option<SharedDecision>)> = None;
    // When a bucket with an adaptive start is full.
    let mut full_us = u64::MAX;
    let period_us = u64::try_from(limit.quota().period().as_micros()).unwrap();
    let furthest_us = match limit.kind() {
        LimitKind::Gcra
        | LimitKind::TokenBucket
        | LimitKind::LeakyBucketMeter
        | LimitKind::LeakyBucketQueue => {
            period_us.min(period_us * limit.quota().burst_size() / limit.quota().limit())
        }
        _ => period_us,
    };
    for step in steps {
        let (Step::Check(time, _) | Step::Class(time, ..) | Step::Peek(time, _) | Step::Refund(time)) = *step;
        now_us = match time {
            Time::Us(by) => now_us + by,
            Time::Share(share) => now_us + period_us * share / 16,
            Time::Retry(less) => {
                let wait = last.as_ref().and_then(|(decision, ..)| figures(decision)[3]).unwrap_or(0);
                (now_us + u64::try_from(wait).unwrap()).saturating_sub(less)
            }
            // A state is moved back if it is a period, or the time of a burst, in the future. The local limiter does
            // not do so.
            Time::Back(share) => (now_us - period_us * share / 16).max(highest_us - furthest_us * 14 / 16),
        };
        // For a class, a state is moved back sooner.
        if matches!(step, Step::Class(..)) {
            now_us = now_us.max(highest_us);
        }
        // A log on a server forgets the times that have left, and an adaptive bucket its first share.
        if matches!(limit.kind(), LimitKind::SlidingLog | LimitKind::AlignedBucket { adaptive: true, .. }) {
            now_us = now_us.max(highest_us);
        }
        highest_us = highest_us.max(now_us);
        let now = Timestamp::from_nanos(now_us * 1_000);
        if matches!(limit.kind(), LimitKind::AlignedBucket { adaptive: true, .. })
            && now_us >= full_us.saturating_add(period_us)
        {
            // A key that was full for a whole period is new again.
            ours = own(limit);
            (last, full_us) = (None, u64::MAX);
        }
        match *step {
            Step::Check(_, cost) | Step::Class(_, cost, _) | Step::Peek(_, cost) => {
                let share = if let Step::Class(_, _, percent) = *step { percent } else { 100 };
                let class = Class::percent(share);
                let Ok(model) = model.class(class) else { continue };
                // A class of minimum spacing has no effect, except on the limit in the figures.
                if share < 100 && matches!(limit.kind(), LimitKind::MinimumSpacing { .. }) {
                    continue;
                }
                let checks = !matches!(step, Step::Peek(..));
                let decision = match step {
                    Step::Check(..) => ours.at(now).check_n(&(), cost),
                    Step::Class(..) => ours.at(now).check_class(&(), cost, class),
                    _ => ours.at(now).peek_n(&(), cost),
                };
                // A model and a server at a given time have no public peek. A check of a cost that is denied is one,
                // unless it starts a block.
                if !checks && ((decision.is_allowed() && cost > 0) || limit.block().is_some()) {
                    continue;
                }
                let answer = model.block_on(|l| l.at(now).check_n(key, cost));
                let real = server
                    .map(|server| server.class(class).unwrap().block_on(|l| l.at(now).check_n(key, cost)));
                for answer in [answer].into_iter().chain(real) {
                    prop_assert_eq!(answer.by(), DecidedBy::Server);
                    let (theirs, ours) = (answer.decision(), decision);
                    let what = format!("{limit:?}: {step:?} at {now_us}: {theirs:?} {ours:?}");
                    prop_assert_eq!(figures(&theirs), figures(&ours), "{}", what);
                }
                if decision.is_allowed() && checks && cost > 0 {
                    full_us = now_us + u64::try_from(figures(&decision)[4].unwrap()).unwrap();
                }
                charged_by_us = highest_us;
                last = Some((decision, answer, real));
            }
            Step::Refund(_) => {
                let Some((decision, answer, real)) = last.take() else { continue };
                // The local log cannot take back units.
                let is_log = matches!(limit.kind(), LimitKind::SlidingLog);
                // In a queue only the server knows later turns, and the local queue has another rule.
                let is_queue = matches!(limit.kind(), LimitKind::LeakyBucketQueue);
                // A charge before the newest time is counted in a later period than that of its time.
                let is_early = decision.at() < Timestamp::from_nanos(charged_by_us * 1_000);
                // A local counter of one part also takes units back from the part that has ended, without an effect.
                let is_window = matches!(
                    limit.kind(),
                    LimitKind::FixedWindow | LimitKind::SubWindow { parts: 1, strict: false }
                );
                if is_log || is_queue || is_window || now_us < highest_us || is_early {
                    continue;
                }
                let units = if decision.is_allowed() { ours.at(now).refund(&(), &decision) } else { 0 };
                let units = if units >= 1 << 53 { (1 << 53) - 1 } else { units };
                for (limiter, answer) in [(model, answer)].into_iter().chain(server.zip(real)) {
                    let back = limiter.block_on(|l| l.at(now).refund(key, &answer)).unwrap();
                    prop_assert_eq!(back, units, "{:?}: {:?}", limit, decision);
                }
                if let LimitKind::AlignedBucket { at, .. } = limit.kind() {
                    let reset_us = u64::try_from(figures(&ours.at(now).peek_n(&(), 0))[4].unwrap()).unwrap();
                    let into_us = (now_us + period_us * 100_000_000 - at.as_nanos() / 1_000) % period_us;
                    full_us = if reset_us > 0 { now_us + reset_us } else { now_us - into_us };
                }
            }
        }
    }
    Ok(())
}

// G74, G126, G132, G133
#[test]
fn every_algorithm_agrees_with_local_limiter_and_server() {
    let server = Server::start();
    let client = server.as_ref().map(|server| client(server).blocking());
    let quota = (1_u64..=40, select(vec![16_u64, 1_600, SEC, 60 * SEC, 3_600 * SEC]), 1_u64..=40).prop_map(
        |(limit, period_us, burst)| Quota::new(limit, Duration::from_micros(period_us)).burst(burst),
    );
    let parts = select(vec![1_u32, 2, 3, 12, 60]);
    let at = prop_oneof![Just(0), Just(START + 5), 0..10 * SEC];
    let case = std::cell::Cell::new(0);
    TestRunner::new(config(800))
        .run(&((0..KINDS, quota, parts, at), steps()), |((kind, quota, parts, at), steps)| {
            case.set(case.get() + 1);
            let limit = made(kind, quota, parts, at);
            let model = InProcess::new(ManualClock::default()).blocking();
            let model = model.limiter("api", limit).atomic().unwrap();
            let real =
                client.as_ref().map(|client| strict(client.limiter("api", limit), &[]).atomic().unwrap());
            alike(&model, real.as_ref(), &case.get().to_string(), limit, &steps)
        })
        .unwrap();
}

fn check(limiter: &Blocking<AtomicLimiter>, cost: u64, now_us: u64) -> Decision {
    let answer = limiter.block_on(|l| l.at(Timestamp::from_nanos(now_us * 1_000)).check_n("k", cost));
    assert_eq!(answer.by(), DecidedBy::Server);
    answer.decision()
}

// G77
#[test]
fn log_ring_grows_wraps_and_follows_its_limit() {
    let log = |limit| [SlidingLog::new(Quota::new(limit, Duration::from_secs(100))).into()];
    on_each(|host| {
        let [small, large] = [40, 300].map(|limit| host.named("ring", &log(limit)));
        let full = host.named("full", &log(SlidingLog::MAX_LIMIT));
        let mut now = START;
        // The ring holds 16 times, then 32 and 40, and wraps many times.
        for _ in 0..400 {
            now += 2 * SEC + 500_001;
            assert!(check(&small, 1, now).is_allowed());
        }
        assert!(check(&small, 1, now).remaining() == 0 && check(&small, 1, now).is_denied());
        // A raised limit knows all units inside; a lowered one also.
        assert_eq!(check(&large, 200, now).remaining(), 60);
        let denied = check(&small, 1, now + 99 * SEC);
        assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
        assert!(check(&small, 40, now + 100 * SEC - 1).is_denied());
        assert!(check(&small, 40, now + 100 * SEC).is_allowed());
        assert_eq!(check(&large, 300, now + 199 * SEC).retry_after(), Some(Duration::from_secs(1)));
        assert_eq!(check(&full, SlidingLog::MAX_LIMIT, now).remaining(), 0);
        assert!(check(&full, 1, now + 100 * SEC - 1).is_denied());
        assert_eq!(check(&full, 1, now + 100 * SEC).remaining(), SlidingLog::MAX_LIMIT - 1);
    });
}

// G75, G86
#[test]
fn foreign_value_of_any_kind_charges_nothing() {
    let Some(server) = Server::start() else { return };
    let client = client(&server).blocking();
    let minute = Quota::per_minute(5);
    let limits: [(Limit, &str); 5] = [
        (Limit::gcra(minute), "g1"),
        (SlidingLog::new(minute).into(), "l1:1m"),
        (SubWindow::new(minute, 6).into(), "p1:1m/6"),
        (MinimumSpacing::new(Duration::from_secs(1)).into(), "m1"),
        (TokenBucket::aligned(minute, Timestamp::from_secs(15)).into(), "a1:1m+15s"),
    ];
    for (limit, name) in limits {
        let limiter = strict(client.limiter("api", FixedWindow::from_first_use(minute)), &[limit]);
        let limiter = limiter.atomic().unwrap();
        let good = limiter.block_on(|l| l.charge_unchecked("good", 1)).unwrap();
        assert_eq!(good.by(), DecidedBy::Server);
        let key = format!("tollgate:v1:{{api|s3cret}}:{name}");
        let (long, cut) = ("7".repeat(80), "\0".repeat(40));
        for (command, value) in [("SET", "x"), ("SET", &*long), ("SET", &*cut), ("LPUSH", "x")] {
            server.command::<()>(&["DEL", &key]);
            server.command::<()>(&[command, &key, value]);
            let told = limiter.block_on(|l| l.charge_unchecked("s3cret", 1)).unwrap_err();
            assert_eq!(told.kind(), ErrorKind::Reply, "{name}: {told}");
            assert!(!told.to_string().contains("s3cret"), "{told}");
            let charged: bool = server.command(&["EXISTS", "tollgate:v1:{api|s3cret}:w0:1m"]);
            assert!(!charged, "{name}: a failed call must not charge the other limit");
        }
        assert!(limiter.block_on(|l| l.refund("good", &good)).unwrap() <= 1);
    }
}

#[test]
fn uncountable_limits_name_nearest_values() {
    let server = InProcess::default();
    let told = |limit: Limit| server.limiter("api", limit).atomic().map(drop).unwrap_err().to_string();
    let block = |quota, length| Limit::gcra(quota).with_block(Block::of(length)).unwrap();
    let nanos = Duration::from_nanos;
    let year = Duration::from_secs(360 * 86_400);
    let limits: &[(Limit, &str)] = &[
        (SubWindow::new(Quota::per_hour(500), 7).into(), "500/h in 7 parts"),
        (SubWindow::new(Quota::per_hour(500), 7).into(), "nearest numbers of parts are 6 and 8"),
        (SlidingLog::new(Quota::new(3, nanos(2_500))).into(), "the nearest are 2 and 3"),
        (SubWindow::new(Quota::new(1 << 48, year), 12).into(), "at most 281474976710655"),
        (MinimumSpacing::new(Duration::ZERO).into(), "from 1 microsecond"),
        (
            TokenBucket::aligned(Quota::per_hour(5), Timestamp::from_nanos(1_500)).into(),
            "whole number of microseconds",
        ),
        (
            TokenBucket::aligned_adaptive(Quota::per_day(1_000_000), Timestamp::ZERO).into(),
            "the limit can be at most 104249",
        ),
        (
            Limit::gcra(Quota::per_day(1).burst(100_000)),
            "GCRA of 1/d burst 100000: the burst can be at most 26062",
        ),
        (Limit::gcra(Quota::new(1, Duration::from_secs(72 * 366 * 86_400))), "no burst is small enough"),
        (Limit::fixed_window(Quota::new(5, nanos(1_500))), "whole number of microseconds"),
        (Limit::fixed_window(Quota::new((1 << 51) + 1, 65 * year)), "at most 2251799813685248"),
        (block(Quota::per_minute(5), nanos(1_500)), "whole number of microseconds"),
        (block(Quota::new(32, nanos(1)), year), "too long"),
        (block(Quota::new(32, nanos(1)), year), "is possible"),
        #[cfg(feature = "calendar")]
        (of_berlin(CalendarPeriod::Month { day: 31 }, 1 << 52).into(), "at most 2251799813685248"),
    ];
    for &(limit, expected) in limits {
        let text = told(limit);
        assert!(text.contains(expected), "{text}");
    }
    assert!(server.limiter("api", Limit::gcra(Quota::per_day(1).burst(26_062))).atomic().is_ok());
    // A prime number of microseconds has no coarser unit.
    let sliding = |limit| Limit::sliding_window(Quota::new(limit, Duration::from_micros(999_999_937)));
    let text = told(sliding(10_000_000));
    let most: u64 = text.split("at most ").nth(1).unwrap().split([' ', ',']).next().unwrap().parse().unwrap();
    assert!(server.limiter("api", sliding(most)).atomic().is_ok(), "{text}");
    told(sliding(most + 1));
}

#[test]
fn modes_refuse_limits_they_cannot_bound() {
    let server = InProcess::default().blocking();
    let hour = Quota::per_hour(60);
    let block = Block::of(Duration::from_secs(600));
    let limits: &[(Limit, &str)] = &[
        (SlidingLog::new(hour).into(), "or SlidingWindow"),
        (SubWindow::new(hour, 60).into(), "or SlidingWindow"),
        (SubWindow::new(hour, 1).strict().into(), "or SlidingWindow"),
        (MinimumSpacing::new(Duration::from_secs(1)).into(), "or Gcra with a burst of 1"),
        (FixedWindow::from_first_use(hour).into(), "or FixedWindow::new"),
        (TokenBucket::interval(hour).into(), "or TokenBucket::new"),
        (TokenBucket::aligned(hour, Timestamp::ZERO).into(), "or FixedWindow::new if each refill fills"),
        (LeakyBucketQueue::new(hour).into(), "or Gcra"),
        (Limit::gcra(hour).with_block(block).unwrap(), "use atomic()"),
        #[cfg(feature = "calendar")]
        (of_berlin(CalendarPeriod::Day, 60).into(), "use atomic()"),
    ];
    for &(limit, instead) in limits {
        let builder = || server.limiter("api", Limit::gcra(hour)).and(limit);
        let told = builder().leases().build().map(drop).unwrap_err().to_string();
        assert!(told.contains("leases() cannot bound it") && told.contains(instead), "{told}");
        let told = builder().write_back().build().map(drop).unwrap_err().to_string();
        assert!(told.contains("write_back() cannot bound it") && told.contains(instead), "{told}");
        assert!(builder().atomic().is_ok());
    }
    for limit in [
        Limit::from(Gcra::new(hour)),
        LeakyBucketMeter::new(hour).into(),
        TokenBucket::new(hour).into(),
        FixedWindow::new(hour).into(),
        SlidingWindow::new(hour).strict().into(),
        SubWindow::new(hour, 1).into(),
    ] {
        assert!(server.limiter("api", limit).leases().build().is_ok(), "{limit:?}");
    }
}
