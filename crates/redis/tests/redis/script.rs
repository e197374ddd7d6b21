//! Properties of limiters in atomic mode, which call the server for each request:
//! - A request is admitted after its wait, and not a microsecond earlier. `kinds` compares all decisions with those of
//!   the crate's local limiters.
//! - At one fixed time, eight processes on one key admit exactly the limit. In real time, by the server's clock, they
//!   never admit more than burst and rate allow.

use std::process::Command;
use std::time::Duration;

use tollgate::{LimitKind, ManualClock, Quota, Timestamp};
use tollgate_redis::{Client, DecidedBy, InProcess, Limit};
use tollgate_testing::redis::Server;

use crate::{in_threads, strict};

// G74
#[test]
fn retry_after_is_tight() {
    let server = InProcess::new(ManualClock::default()).blocking();
    let limits = [
        Limit::gcra(Quota::per_second(7).burst(5)),
        Limit::gcra(Quota::new(3_000_000, Duration::from_secs(7))),
        Limit::fixed_window(Quota::new(5, Duration::from_secs(7))),
        Limit::sliding_window(Quota::new(5, Duration::from_secs(7))),
        Limit::sliding_window(Quota::new(5, Duration::from_secs(7))).strict(),
        // The script counts this limit in units of 10 us.
        Limit::sliding_window(Quota::per_day(1_000_000)),
    ];
    for limit in limits {
        let name = format!("{limit:?}");
        let limiter = server.limiter(&name, limit).atomic().unwrap();
        let mut now = Timestamp::from_nanos(1_700_000_000_123_456_000);
        let half = limit.most().div_ceil(2);
        for _ in 0..6 {
            let denied = loop {
                let answer = limiter.block_on(|l| l.at(now).check_n("k", half));
                if answer.is_denied() {
                    break answer;
                }
            };
            let wait = denied.retry_after().unwrap();
            assert!(wait > Duration::ZERO, "{name}");
            let early = now + wait.saturating_sub(Duration::from_micros(1));
            assert!(limiter.block_on(|l| l.at(early).check_n("k", half)).is_denied(), "{name}");
            now = now + wait;
            assert!(limiter.block_on(|l| l.at(now).check_n("k", half)).is_allowed(), "{name}");
        }
    }
}

// G150
#[test]
fn units_come_back_without_the_answer() {
    let clock = ManualClock::new(Timestamp::from_secs(86_400 * 10_000));
    let server = InProcess::new(clock).blocking();
    for kind in [Limit::gcra, Limit::fixed_window, Limit::sliding_window] {
        let limit = kind(Quota::per_hour(60));
        let limiter = server.limiter(&format!("{limit:?}"), limit).atomic().unwrap();
        let back = |units| limiter.block_on(|l| l.give_back("a", units)).unwrap();
        assert_eq!(back(5), 0, "a new key owes nothing");
        assert!(limiter.check_n("a", 50).is_allowed());
        assert_eq!((back(0), back(20)), (0, 20));
        assert_eq!(limiter.block_on(|l| l.peek("a")).decision().remaining(), 30, "{limit:?}");
        assert_eq!(back(u64::MAX), 30);
        assert_eq!(limiter.block_on(|l| l.peek("a")).decision().remaining(), 60);
    }
}

#[test]
fn unchecked_charge_ignores_the_limit() {
    let clock = ManualClock::new(Timestamp::from_secs(86_400 * 10_000));
    let server = InProcess::new(clock).blocking();
    let limiter = server.limiter("tokens", Limit::gcra(Quota::per_minute(60))).atomic().unwrap();
    let answer = limiter.block_on(|l| l.charge_unchecked("a", 90)).unwrap();
    assert!(answer.is_allowed() && answer.decision().remaining() == 0);
    // 30 seconds of debt, and one second for the new unit.
    assert_eq!(limiter.check("a").retry_after(), Some(Duration::from_secs(31)));
    assert_eq!(limiter.block_on(|l| l.refund("a", &answer)).unwrap(), 90);
    assert!(limiter.check_n("a", 60).is_allowed());
    assert_eq!(limiter.block_on(|l| l.charge_unchecked("b", 0)).unwrap().decision().remaining(), 60);
}

// G75
#[test]
fn shared_limits_charge_all_or_none() {
    let clock = ManualClock::new(Timestamp::from_secs(86_400 * 20_000));
    let server = InProcess::new(clock.clone()).blocking();
    let builder = server.limiter("api", Limit::gcra(Quota::per_second(2)));
    let limiter = builder.and(Limit::fixed_window(Quota::per_day(3))).atomic().unwrap();
    assert_eq!(limiter.check_n("k", 2).decision().remaining(), 0);
    let second = limiter.check("k");
    assert_eq!(second.retry_after(), Some(Duration::from_millis(500)));
    clock.advance(Duration::from_secs(1));
    let day = limiter.check_n("k", 2);
    assert_eq!(day.retry_after(), Some(Duration::from_secs(86_399)), "the daily limit has one unit left");
    let last = limiter.check("k");
    assert!(last.is_allowed(), "a request that the daily limit denied charges nothing to the second's limit");
    assert!(limiter.check_n("k", 3).decision().is_never());
    assert_eq!(limiter.block_on(|l| l.refund("k", &last)).unwrap(), 1);
    assert_eq!(limiter.block_on(|l| l.peek("k")).decision().remaining(), 1);
}

/// The environment variable that makes this process a child, and holds the child's arguments.
const CHILD: &str = "TOLLGATE_TEST_HAMMER";
const PROCESSES: usize = 8;

/// Returns the limit of this name, for the tests with eight processes.
fn hammered(which: &str) -> Limit {
    match which {
        "gcra" => Limit::gcra(Quota::per_second(200).burst(50)),
        "fixed" => Limit::fixed_window(Quota::new(40, Duration::from_millis(250))),
        _ => Limit::sliding_window(Quota::new(40, Duration::from_millis(250))),
    }
}

/// The work of each child process. This is not a test by itself.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (url, which) = told.split_once(' ').unwrap();
    let (which, fixed) = which.split_once(' ').unwrap();
    let client = Client::open(url).unwrap().blocking();
    let limiter = strict(client.limiter("hammer", hammered(which)), &[]).atomic().unwrap();
    let mut admitted = 0;
    for _ in 0..1_500 {
        let answer = match fixed {
            "fixed" => limiter.block_on(|l| l.at(Timestamp::from_secs(1_700_000_000)).check(which)),
            _ => limiter.check(which),
        };
        assert_eq!(answer.by(), DecidedBy::Server);
        admitted += u64::from(answer.is_allowed());
    }
    println!("admitted {admitted}.");
}

fn hammer(server: &Server, which: &str, time: &str) -> u64 {
    let told = format!("{} {which} {time}", server.url());
    let admitted = in_threads(PROCESSES, |_| -> u64 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "script::child", "--nocapture", "--test-threads=1"]).env(CHILD, &told);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let said = text.split("admitted ").nth(1).and_then(|rest| rest.split('.').next());
        said.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    });
    admitted.into_iter().sum()
}

fn server_us(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.command(&["TIME"]);
    seconds * 1_000_000 + micros
}

// G75
#[test]
fn eight_processes_admit_exactly_the_limit() {
    let _busy = crate::busy();
    let Some(server) = Server::start() else { return };
    for which in ["gcra", "fixed", "sliding"] {
        assert_eq!(hammer(&server, which, "fixed"), hammered(which).most(), "{which}");
    }
}

// G75
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn eight_processes_stay_within_real_time_bound() {
    let _busy = crate::busy();
    let Some(server) = Server::start() else { return };
    for which in ["gcra", "fixed", "sliding"] {
        let began_us = server_us(&server);
        let admitted = hammer(&server, which, "real");
        let ended_us = server_us(&server);
        let limit = hammered(which);
        let period_us = u64::try_from(limit.quota().period().as_micros()).unwrap();
        let bound = match limit.kind() {
            LimitKind::Gcra => limit.most() + (ended_us - began_us) * limit.quota().limit() / period_us,
            // Each window that the run overlaps may admit the limit.
            _ => (ended_us / period_us - began_us / period_us + 1) * limit.most(),
        };
        println!("{which}: {admitted} of at most {bound} in {} ms", (ended_us - began_us) / 1_000);
        assert!((limit.most()..=bound).contains(&admitted), "{which}: {admitted} of at most {bound}");
    }
}
