//! Calendars on a server: windows that end with the month of a time zone, also if a process's clock is wrong, and the modes
//! and policies that apply to them.

use std::time::Duration;

use tollgate::calendar::CalendarPeriod;
use tollgate::{Calendar, CalendarWindow, FixedWindow, ManualClock, Quota, Timestamp};
use tollgate_redis::{DecidedBy, ErrorKind, InProcess, Limit, OnFailure};
use tollgate_testing::redis::Server;

use crate::hosts::on_each;
use crate::{absent, client, strict};

/// The month that begins on 2026-11-15 at 06:00 in Berlin, in seconds.
const START: u64 = 1_794_718_800;
const END: u64 = 1_797_310_800;
const DAY: u64 = 86_400;

fn months() -> Calendar {
    Calendar::at_hour("Europe/Berlin", CalendarPeriod::Month { day: 15 }, 6).unwrap()
}

fn monthly(limit: u64) -> Limit {
    CalendarWindow::new(months(), limit).into()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

/// With one limit, two and three: each number of limits has a script of its own.
// G126
#[test]
fn shared_month_ends_with_the_month() {
    let hourly = Limit::from(FixedWindow::new(Quota::per_hour(1_000)));
    let daily = Limit::from(CalendarWindow::new(Calendar::new("UTC", CalendarPeriod::Day).unwrap(), 500));
    for limits in [&[monthly(10)][..], &[hourly, monthly(10)], &[hourly, daily, monthly(10)]] {
        on_each(|host| {
            let limiter = host.process(limits);
            let last = Timestamp::from_nanos(END * 1_000_000_000 - 1_000);
            let first = limiter.block_on(|l| l.at(at(START)).check_n("a", 6));
            assert_eq!((first.by(), first.decision().remaining()), (DecidedBy::Server, 4));
            assert_eq!(first.decision().reset_after(), Duration::from_secs(END - START));
            assert!(limiter.block_on(|l| l.at(last).check_n("a", 4)).is_allowed());
            let denied = limiter.block_on(|l| l.at(last).check_n("a", 1)).decision();
            assert_eq!(denied.retry_after(), Some(Duration::from_micros(1)));
            let next = limiter.block_on(|l| l.at(at(END)).check_n("a", 10));
            assert_eq!(next.decision().reset_after(), Duration::from_secs(31 * DAY));
            assert!(!limiter.block_on(|l| l.at(at(END)).check_n("a", 1)).is_allowed());
        });
    }
}

/// Calendars do not share a count, and a changed limit of the same calendar does.
#[test]
fn state_belongs_to_its_calendar() {
    let server = InProcess::new(ManualClock::default()).blocking();
    let of = |limit: Limit| server.limiter("api", limit).atomic().unwrap();
    assert!(of(monthly(10)).block_on(|l| l.at(at(START)).check_n("a", 8)).is_allowed());
    assert_eq!(of(monthly(12)).block_on(|l| l.at(at(START)).check_n("a", 1)).decision().remaining(), 3);
    let other = Calendar::new("Europe/Berlin", CalendarPeriod::Month { day: 15 }).unwrap();
    let other = of(CalendarWindow::new(other, 10).into());
    assert_eq!(other.block_on(|l| l.at(at(START)).check_n("a", 1)).decision().remaining(), 9);
    let Some(server) = Server::start() else { return };
    let limiter = strict(client(&server).blocking().limiter("api", monthly(10)), &[]).atomic().unwrap();
    assert!(limiter.check("a").is_allowed());
    let key = "tollgate:v1:{api|a}:c0:month from day 15 at 06:00 in Europe/Berlin";
    let life_ms: u64 = server.command(&["PTTL", key]);
    assert!((1..=32 * DAY * 1_000).contains(&life_ms), "{life_ms}");
    server.command::<()>(&["SET", key, "x"]);
    assert_eq!(limiter.block_on(|l| l.charge_unchecked("a", 1)).unwrap_err().kind(), ErrorKind::Reply);
}

/// The times in a call come from the clock of a process. If it is wrong by a period, the server still selects the present
/// one. The test repeats a limiter's call with the times that such a process would send.
// G126
#[test]
fn a_wrong_clock_selects_no_other_period() {
    let Some(server) = Server::start() else { return };
    server.command::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let limiter = strict(client(&server).blocking().limiter("api", monthly(10)), &[]).atomic().unwrap();
    assert!(limiter.check("a").is_allowed() && limiter.check("a").is_allowed());
    type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);
    let log: Vec<Entry> = server.command(&["SLOWLOG", "GET", "20"]);
    let sent = log.into_iter().map(|entry| entry.3).find(|words| words[0] == b"EVALSHA");
    let sent = sent.expect("the second check sends a hash").into_iter().map(String::from_utf8);
    let sent: Vec<String> = sent.map(Result::unwrap).collect();
    let time: (u64, u64) = server.command(&["TIME"]);
    // The beginnings of the present period, of the two before it, and of the four after it.
    let present = months().period_at(at(time.0));
    let before = |start: Timestamp| months().period_at(Timestamp::from_nanos(start.as_nanos() - 1)).start;
    let mut starts = vec![before(before(present.start)), before(present.start), present.start];
    for _ in 0..4 {
        starts.push(months().period_at(*starts.last().unwrap()).end);
    }
    let us = |index: usize| (starts[index].as_nanos() / 1_000).to_string();
    assert_eq!(sent[4..], ["1".to_owned(), "10".to_owned(), us(2), us(3), us(4)]);
    let mut connection = server.connection();
    let mut ask = |key: &str, first: usize| -> Result<Vec<u64>, redis::RedisError> {
        let key = sent[3].replace("|a}", &format!("|{key}}}"));
        let times = [us(first), us(first + 1), us(first + 2)];
        let mut command = redis::cmd("EVALSHA");
        command.arg(&sent[1]).arg(1).arg(key).arg(1).arg(10).arg(&times[..]);
        let reply: Vec<u8> = command.query(&mut connection)?;
        let (numbers, _) = reply.as_chunks();
        Ok(numbers.iter().map(|number| u64::from_be_bytes(*number)).collect())
    };
    let end = starts[3].as_nanos() / 1_000;
    for (first, used) in [(2, 3), (1, 4), (3, 5), (4, 6)] {
        let reply = ask("a", first).unwrap();
        assert_eq!((reply[0], &reply[2..]), (1, &[end, used][..]), "a clock that sends {first}");
    }
    for (first, ends) in [(1, 3), (3, 3), (4, 4)] {
        let reply = ask(&format!("new{first}"), first).unwrap();
        assert_eq!(reply[2], starts[ends].as_nanos() / 1_000, "a new key, and a clock that sends {first}");
    }
    let error = ask("a", 0).unwrap_err().to_string();
    assert!(error.contains("a whole period behind the server"), "{error}");
}

/// Without the server, each process admits its part in each month, and at least one unit.
#[test]
fn local_policy_divides_the_month() {
    for (limit, part) in [(10, 2), (3, 1)] {
        let builder = absent().blocking().limiter("api", monthly(limit));
        let limiter = builder.on_failure(OnFailure::Local { processes: 5 }).atomic().unwrap();
        let admitted = [START, END - 1, END].map(|seconds| {
            (0..9).filter(|_| limiter.block_on(|l| l.at(at(seconds)).check("a")).is_allowed()).count()
        });
        assert_eq!(admitted, [part, 0, part], "{limit}");
    }
}
