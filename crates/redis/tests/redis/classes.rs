//! Classes on a server: processes share one count, and each class has its share of it.
//!
//! `kinds` compares their decisions with those of the classes of this process, for all algorithms.

use std::time::Duration;

use tollgate::{Block, Class, FixedWindow, ManualClock, Quota, SlidingLog, Timestamp, TokenBucket};
use tollgate_redis::{AtomicLimiter, Blocking, DecidedBy, InProcess, Limit, OnFailure};

use crate::hosts::on_each;
use crate::{absent, strict};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const BATCH: Class = Class::percent(50);
const NORMAL: Class = Class::percent(80);

// G133
#[test]
fn classes_of_all_processes_share_one_count() {
    let hourly = Quota::per_hour(100);
    let alone: [Limit; 3] =
        [Limit::gcra(hourly), FixedWindow::new(hourly).into(), SlidingLog::new(hourly).into()];
    let all = [Limit::gcra(hourly), FixedWindow::new(hourly).into(), Limit::sliding_window(hourly)];
    for limits in alone.iter().map(std::slice::from_ref).chain([&all[..2], &all]) {
        on_each(|host| {
            let [one, two] = [host.process(limits), host.process(limits)];
            let batch = [one.class(BATCH).unwrap(), two.class(BATCH).unwrap()];
            let check = |turn: usize| batch[turn % 2].block_on(|l| l.at(NOW).check("a"));
            assert_eq!((0..99).filter(|turn| check(*turn).is_allowed()).count(), 50, "{limits:?}");
            let denied = batch[0].block_on(|l| l.at(NOW).check_n("a", 1)).decision();
            assert_eq!((denied.limit(), denied.remaining()), (50, 0));
            let normal = two.class(NORMAL).unwrap();
            assert!(normal.block_on(|l| l.at(NOW).check_n("a", 31)).is_denied());
            assert!(normal.block_on(|l| l.at(NOW).check_n("a", 81)).decision().is_never());
            let charge = normal.block_on(|l| l.at(NOW).check_n("a", 30));
            assert_eq!((charge.is_allowed(), charge.decision().remaining()), (true, 0));
            let all = one.block_on(|l| l.at(NOW).check_n("a", 20)).decision();
            assert_eq!((all.is_allowed(), all.limit(), all.remaining()), (true, 100, 0));
            // The refund of a class returns its units to all.
            assert_eq!(normal.block_on(|l| l.at(NOW).refund("b", &charge)).unwrap(), 0, "another key");
            assert!(two.block_on(|l| l.at(NOW).check("a")).is_denied());
        });
    }
}

#[test]
fn charges_without_a_check_are_those_of_the_whole_limit() {
    let limiter = InProcess::new(ManualClock::new(NOW)).blocking();
    let limiter = limiter.limiter("api", SlidingLog::new(Quota::per_hour(10))).atomic().unwrap();
    let batch = limiter.class(BATCH).unwrap();
    assert!(batch.check_n("a", 5).is_allowed() && batch.block_on(|l| l.peek("a")).is_denied());
    let forced = batch.block_on(|l| l.charge_unchecked("a", 5)).unwrap();
    assert!(limiter.check("a").is_denied(), "a log holds all units of the limit");
    assert_eq!(batch.block_on(|l| l.refund("a", &forced)).unwrap(), 5);
    assert!(limiter.block_on(|l| l.peek_n("a", 0)).is_allowed());
}

#[test]
fn denial_of_a_class_starts_no_block() {
    let limit = Limit::gcra(Quota::per_minute(10)).with_block(Block::of(Duration::from_secs(600))).unwrap();
    on_each(|host| {
        let [one, two] = [host.process(&[limit]), host.process(&[limit])];
        let batch = one.class(BATCH).unwrap();
        assert!(batch.block_on(|l| l.at(NOW).check_n("a", 5)).is_allowed());
        let denied = batch.block_on(|l| l.at(NOW).check("a")).decision();
        assert!(denied.is_denied() && !denied.is_block());
        assert!(two.block_on(|l| l.at(NOW).check_n("a", 5)).is_allowed());
        // The class with the whole burst is as no class.
        assert!(two.class(Class::ALL).unwrap().block_on(|l| l.at(NOW).check("a")).decision().is_block());
        let blocked = batch.block_on(|l| l.at(NOW).check("a")).decision();
        assert!(blocked.is_block() && blocked.retry_after() > Some(Duration::from_secs(600)));
    });
}

#[test]
fn classes_without_a_unit_and_adaptive_starts_are_refused() {
    let server = InProcess::default().blocking();
    let refused = |limit: Limit| {
        let limiter = server.limiter("api", limit).atomic().unwrap();
        limiter.class(BATCH).map(drop).unwrap_err().to_string()
    };
    let told = refused(Limit::gcra(Quota::per_second(1)));
    assert!(told.contains("less than one of 1 units is left") && told.contains("raise its share"), "{told}");
    let told = refused(TokenBucket::aligned_adaptive(Quota::per_hour(10), NOW).into());
    assert!(told.contains("has no classes") && told.contains("use TokenBucket::aligned"), "{told}");
}

/// Without the server, a class has its share of this process's share.
// G133
#[test]
fn local_policy_keeps_the_headroom() {
    let (client, limit) = (absent().blocking(), Limit::gcra(Quota::per_hour(40)));
    for more in [&[][..], &[limit]] {
        let builder = strict(client.limiter("api", limit), more);
        let limiter = builder.on_failure(OnFailure::Local { processes: 4 }).atomic().unwrap();
        let batch = limiter.class(BATCH).unwrap();
        let admitted = |limiter: &Blocking<AtomicLimiter>| {
            (0..20).filter(|_| limiter.block_on(|l| l.at(NOW).check("a")).is_allowed()).count()
        };
        assert_eq!([admitted(&batch), admitted(&limiter)], [5, 5]);
        let denied = batch.block_on(|l| l.at(NOW).check("a"));
        assert_eq!((denied.by(), denied.decision().limit()), (DecidedBy::Local, 5));
    }
    let batch = strict(client.limiter("api", limit), &[]).atomic().unwrap().class(BATCH).unwrap();
    assert!(batch.check_n("a", 21).decision().is_never() && !batch.check_n("a", 20).decision().is_never());
}
