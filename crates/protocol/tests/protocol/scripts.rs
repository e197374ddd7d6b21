//! Properties, tested on a server that the tests start:
//! - The script and the model give the same reply to every call, after any sequence of calls. The sequences have all
//!   algorithms, several limits, quotas that change and costs from 0 to 2^64 - 1. Posts arrive twice, late or out of
//!   order; times step back.
//! - A denial and a peek write nothing. Every key that is written expires.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::{Block, LimitKind, Quota};
use tollgate_protocol::ErrorKind;
use tollgate_testing::limits::{all_kinds, made};
use tollgate_testing::redis::Server;

use super::*;

/// How time moves before a call.
#[derive(Copy, Clone, Debug)]
enum Move {
    Us(i64),
    /// In sixteenths of the first limit's refill.
    Share(i64),
}

#[derive(Copy, Clone, Debug)]
struct Step {
    time: Move,
    /// The index of the plan that asks.
    plan: usize,
    ask: Asked,
}

#[derive(Copy, Clone, Debug)]
enum Asked {
    Plain(Question),
    /// A refund of a charge. The second number is the greatest number of steps since the charge.
    Refund(u64, usize),
    /// A check. The first number is in sixteenths of the greatest cost; the second is added in units.
    Share(u64, u64),
    /// A post to an earlier window. The second number tells how many windows earlier.
    Post(u64, i64, u64),
}

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0_u64),
        10 => 1_u64..=4,
        4 => 1_u64..=2_000,
        1 => select(vec![u64::MAX, 1 << 53, (1 << 53) - 1, 1 << 52, 1 << 40]),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = prop_oneof![
        4 => Just(Move::Us(0)),
        3 => (0_i64..=5).prop_map(Move::Us),
        3 => (0_i64..2_000_000).prop_map(Move::Us),
        4 => (0_i64..=16).prop_map(Move::Share),
        1 => (0_i64..1 << 50).prop_map(Move::Us),
        1 => Just(Move::Us(1 << 52)),
        2 => (-3_000_000_i64..0).prop_map(Move::Us),
        1 => (-40_i64..0).prop_map(Move::Share),
        1 => (-(1_i64 << 50)..0).prop_map(Move::Us),
    ];
    let ask = prop_oneof![
        8 => units().prop_map(|cost| Asked::Plain(Question::Check { cost })),
        4 => (0_u64..=16, 0_u64..=3).prop_map(|(share, more)| Asked::Share(share, more)),
        1 => Just(Asked::Plain(Question::Peek { cost: 0 })),
        2 => units().prop_map(|cost| Asked::Plain(Question::Force { cost })),
        2 => (units(), 0_usize..4).prop_map(|(units, ago)| Asked::Refund(units, ago)),
        2 => (units(), units(), units()).prop_map(|(least, wanted, share)| Asked::Plain(Question::Lease { least, wanted, share })),
        6 => (select(vec![0, 1, u64::MAX]), -1_i64..=3, units()).prop_map(|(process, ago, total)| Asked::Post(process, ago, total)),
    ];
    steps_of(time, 16, ask, 40)
}

fn quota() -> impl Strategy<Value = Quota> {
    let limit = prop_oneof![6 => 1_u64..=12, 2 => 1_u64..=2_000, 2 => select(vec![1_000_000, 1_000_000_007, 1_234_567_890, 1 << 40])];
    let period_us =
        select(vec![1, 7, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 1_u64 << 48]);
    let burst = prop_oneof![2 => Just(None), 1 => (1_u64..=3_000).prop_map(Some)];
    (limit, period_us, burst).prop_filter_map("a quota", |(limit, period_us, burst)| {
        let quota = Quota::try_new(limit, Duration::from_micros(period_us)).ok()?;
        burst.map_or(Some(quota), |burst| quota.try_burst(burst).ok())
    })
}

/// A limit, and the same kind with another quota.
fn limits() -> impl Strategy<Value = [Limit; 2]> {
    let [lenient, strict] = [false, true].map(|strict| LimitKind::SlidingWindow { strict });
    let kind = select(vec![LimitKind::Gcra, LimitKind::FixedWindow, lenient, strict]);
    (kind, quota(), quota()).prop_filter_map("limits that exist", |(kind, quota, other)| {
        Some([Limit::try_new(kind, quota).ok()?, Limit::try_new(kind, other).ok()?])
    })
}

/// Plans with the first and with the second limit of each pair.
fn plans(pairs: impl Strategy<Value = Vec<[Limit; 2]>>) -> impl Strategy<Value = [Arc<Plan>; 2]> {
    pairs.prop_filter_map("limits that can be shared", |pairs| {
        let of = |which: usize| {
            Plan::new(&pairs.iter().map(|pair| pair[which]).collect::<Vec<_>>()).ok().map(Arc::new)
        };
        Some([of(0)?, of(1)?])
    })
}

/// Steps. One in `odds` is asked with the second plan.
fn steps_of(
    time: impl Strategy<Value = Move>,
    odds: usize,
    ask: impl Strategy<Value = Asked>,
    most: usize,
) -> impl Strategy<Value = Vec<Step>> {
    let step = (time, 0..odds, ask);
    prop::collection::vec(
        step.prop_map(|(time, plan, ask)| Step { time, plan: usize::from(plan == 0), ask }),
        1..most,
    )
}

/// Asserts that a server and the model give the same replies, and that each key on the server expires.
fn assert_agree(
    cases: u32,
    seed: u64,
    pairs: impl Strategy<Value = Vec<[Limit; 2]>>,
    steps: impl Strategy<Value = Vec<Step>>,
) {
    let Some(server) = Server::start() else { return };
    let client = Direct::of(&server);
    run_cases(&server, cases, seed, (plans(pairs), steps), |tag, (plans, steps)| {
        same(&client, tag, &plans, &steps)
    });
}

// G74
#[test]
fn script_and_model_agree() {
    assert_agree(400, 0x5C41, prop::collection::vec(limits(), 1..=3), steps());
}

fn blocked(quota: Quota, first: Duration) -> Limit {
    Limit::gcra(quota).with_block(Block::of(first).at_most(first * 3)).unwrap()
}

/// A kind with a block.
const BLOCKED: u8 = 12;

/// Limits of several kinds.
fn many_limits() -> impl Strategy<Value = [Limit; 2]> {
    let limit = prop_oneof![6 => 1_u64..=12, 3 => 13_u64..=300];
    let period_us = select(vec![1, 7, 1_000, 1_000_000, 60_000_000, 3_600_000_000]);
    let start = prop_oneof![Just(0_u64), Just(1_700_000_000_000_000), 0_u64..10_000_000];
    let burst = prop_oneof![1 => Just(None), 1 => (1_u64..=30).prop_map(Some)];
    let kind = select(vec![0, 0, 0, 2, 2, 3, 3, 4, 5, 6, 7, 8, BLOCKED, BLOCKED]);
    let kind = (kind, select(vec![1_u32, 2, 3, 5, 12, 60, 600]), start);
    let many = (kind, limit.clone(), limit, period_us, burst).prop_map(
        |((kind, parts, start), limit, other, period_us, burst)| {
            [limit, other].map(|limit| {
                let plain = Quota::new(limit, Duration::from_micros(period_us));
                let quota = burst.map_or(plain, |burst| plain.burst(burst));
                if kind != BLOCKED {
                    return made(kind, quota, parts, start);
                }
                // Also blocks that were shorter or longer, and quotas that changed with them.
                let first = Duration::from_micros(1 + start % 50_000_000 * limit);
                let block = Block::of(first).at_most(first * (1 + parts * 25 % 16_384));
                Limit::gcra(quota).with_block(block).unwrap()
            })
        },
    );
    prop_oneof![9 => many, 1 => limits()]
}

/// The questions of the atomic mode, at times that mostly stay within a period.
fn atomic_steps() -> impl Strategy<Value = Vec<Step>> {
    let time = prop_oneof![
        6 => Just(Move::Us(0)),
        3 => (0_i64..=5).prop_map(Move::Us),
        6 => (0_i64..=6).prop_map(Move::Share),
        2 => (0_i64..=40).prop_map(Move::Share),
        1 => (0_i64..1 << 50).prop_map(Move::Us),
        1 => (-20_i64..0).prop_map(Move::Share),
        1 => (-(1_i64 << 50)..0).prop_map(Move::Us),
    ];
    let ask = prop_oneof![
        8 => units().prop_map(|cost| Asked::Plain(Question::Check { cost: cost.max(1) })),
        6 => (0_u64..=16, 1_u64..=3).prop_map(|(share, more)| Asked::Share(share, more)),
        2 => units().prop_map(|cost| Asked::Plain(Question::Peek { cost })),
        2 => (units(), units()).prop_map(|(least, share)| Asked::Plain(Question::Lease { least, wanted: least, share })),
        2 => units().prop_map(|cost| Asked::Plain(Question::Force { cost })),
        3 => (units(), 0_usize..4).prop_map(|(units, ago)| Asked::Refund(units, ago)),
    ];
    steps_of(time, 6, ask, 60)
}

// G74, G132
#[test]
fn scripts_of_all_kinds_and_model_agree() {
    let several = prop_oneof![3 => 1_usize..=1, 1 => 2_usize..=3]
        .prop_flat_map(|count| prop::collection::vec(many_limits(), count));
    assert_agree(1_000, 0x5C43, several, atomic_steps());
}

/// With counts this large, the weights use a unit of time longer than a microsecond.
// G74
#[test]
fn script_and_model_agree_in_coarse_units() {
    let Some(server) = Server::start() else { return };
    let client = Direct::of(&server);
    let quota = Quota::new(1_000_000, Duration::from_secs(86_400));
    for (tag, limit) in
        [("{floor}", Limit::sliding_window(quota)), ("{ceil}", Limit::sliding_window(quota).strict())]
    {
        let (plan, model) = (plan(&[limit]), Model::default());
        let day_us = 86_400_000_000;
        let both = |ask, now_us: u64| {
            let call = call(tag, &plan, ask, Some(now_us));
            let theirs = client.call(&call).unwrap();
            assert_eq!(theirs, model.call(&call), "{ask:?} at {now_us}");
            theirs.granted
        };
        assert_eq!(both(Question::Check { cost: 1_000_000 }, day_us * 20_000 - 1), 1_000_000);
        // One unit becomes free every 86,400 µs, in steps of the weights' unit of time: ten microseconds.
        for unit in 1..40_u64 {
            for by_us in [-20, -11, -10, -9, -1, 0, 1, 9, 10] {
                let now_us = (day_us * 20_000 + unit * 86_400).saturating_add_signed(by_us);
                both(Question::Check { cost: 1 }, now_us);
            }
        }
    }
}

fn same(client: &Direct, tag: &str, plans: &[Arc<Plan>; 2], steps: &[Step]) -> Result<(), TestCaseError> {
    let model = Model::default();
    let mut now_us: u64 = 1_700_000_000_000_000;
    let mut times = vec![now_us];
    for step in steps {
        let plan = &plans[step.plan];
        let by = match step.time {
            Move::Us(by) => by,
            Move::Share(share) => (i64::try_from(plan.refill_us()).unwrap() / 16).saturating_mul(share),
        };
        now_us = now_us.saturating_add_signed(by).min(1 << 54);
        times.push(now_us);
        let ask = match step.ask {
            Asked::Plain(ask) => ask,
            Asked::Share(share, more) => {
                Question::Check { cost: (plan.most() / 16).saturating_mul(share).saturating_add(more) }
            }
            Asked::Refund(units, ago) => {
                Question::Refund { units, at_us: times[times.len().saturating_sub(1 + ago)] }
            }
            Asked::Post(process, ago, total) => {
                let period_us =
                    plan.parts()[0].windows().map_or(1_000_000, |windows| windows.period_us.max(1_000_000));
                Question::Post { process, epoch: (now_us / period_us).saturating_add_signed(-ago), total }
            }
        };
        let call = call(tag, plan, ask, Some(now_us));
        let theirs = client.call(&call).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let ours = model.call(&call);
        prop_assert_eq!(theirs, ours, "{:?} at {}", ask, now_us);
    }
    Ok(())
}

/// Without a time, a check has a script of its own. The model decides at the time of the server's reply.
#[test]
fn check_at_server_time_and_model_agree() {
    let Some(server) = Server::start() else { return };
    let client = Direct::of(&server);
    let quota = Quota::new(3, Duration::from_millis(20));
    let blocked = blocked(quota, Duration::from_millis(15));
    let kinds: Vec<Limit> = all_kinds(quota).into_iter().chain([blocked]).collect();
    let pairs = kinds.iter().flat_map(|first| kinds.iter().map(move |second| vec![*first, *second]));
    for (index, limits) in kinds.iter().map(|limit| vec![*limit]).chain(pairs).enumerate() {
        let (plan, model, tag) = (plan(&limits), Model::default(), format!("{{{index}}}"));
        for round in 0..24 {
            let cost = [1, 1, 2, 1, 4][round % 5];
            let reply = client.call(&call(&tag, &plan, Question::Check { cost }, None)).unwrap();
            let call = call(&tag, &plan, Question::Check { cost }, Some(reply.now_us));
            assert_eq!(reply, model.call(&call), "{limits:?}, round {round}");
            if round % 6 == 5 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Version 0.1 wrote the states of GCRA and of windows as texts. A text can have the length of a binary state.
#[test]
fn text_states_are_read_and_replaced() {
    let Some(server) = Server::start() else { return };
    let client = Direct::of(&server);
    let now_us: u64 = 1_700_000_000_000_000;
    let (minute, day) = (60_000_000, 86_400_000_000);
    let gcra = Limit::gcra(Quota::per_minute(10));
    let large = Limit::sliding_window(Quota::per_minute(200_000_000));
    let pace = |ahead| LimitStanding::Pace { ahead, is_blocked: false };
    let windows = |start_us, previous, current| LimitStanding::Windows { start_us, previous, current };
    let fixed = Limit::fixed_window(Quota::per_day(10));
    let (of_day, of_minute) = (now_us / day, now_us / minute);
    let filled = windows(of_minute * minute, 20_000, 100_000_001);
    for (limit, end, text, expected, bytes) in [
        (gcra, "g0", format!("6000000 1 {now_us} 12000000"), pace(18_000_000), 32),
        // 32 bytes.
        (gcra, "g0", format!("600000 1 {now_us} 120000"), pace(7_200_000), 32),
        // The debt of two units under another interval.
        (gcra, "g0", format!("1000000 1 {now_us} 2000000"), pace(18_000_000), 32),
        (fixed, "f0:1d", format!("{of_day} 3 0"), windows(of_day * day, 0, 4), 24),
        // 24 bytes.
        (large, "s0:1m", format!("{of_minute} 100000000 20000"), filled, 24),
    ] {
        let key = format!("{{text}}:{end}");
        server.command::<()>(&["SET", &key, &text]);
        let check = call("{text}", &plan(&[limit]), Question::Check { cost: 1 }, Some(now_us));
        let reply = client.call(&check).unwrap();
        assert_eq!((reply.granted, &reply.limits[..]), (1, &[expected][..]), "{text}");
        assert_eq!(server.command::<usize>(&["STRLEN", &key]), bytes, "{text}");
        for foreign in [&text[..text.len() - 1].replace(' ', "_"), &"x".repeat(bytes), "0 0 0 0"] {
            server.command::<()>(&["SET", &key, foreign]);
            assert_eq!(client.call(&check).unwrap_err().kind(), ErrorKind::Reply, "{foreign}");
        }
    }
}

// G76
#[test]
fn denial_and_peek_write_nothing_and_keys_expire() {
    let Some(server) = Server::start() else { return };
    let client = Direct::of(&server);
    let day = Quota::per_day(3);
    let plan =
        plan(&[Limit::gcra(Quota::per_minute(3)), Limit::fixed_window(day), Limit::sliding_window(day)]);
    let dirty = || server.writes();
    let expires = |count: usize| {
        let mut connection = server.connection();
        let keys = redis_keys(&mut connection);
        assert_eq!(keys.len(), count, "{keys:?}");
        for key in keys {
            let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap();
            assert!((1..3 * 86_400_000).contains(&left), "{key} lives for {left} ms");
        }
    };
    let ask = |ask| client.call(&call("{k}", &plan, ask, None)).unwrap();
    for look in [
        Question::Peek { cost: 0 },
        Question::Check { cost: 4 },
        Question::Lease { least: 4, wanted: 9, share: 1 },
        Question::Check { cost: u64::MAX },
    ] {
        assert_eq!(ask(look).granted, 0);
    }
    assert_eq!(dirty(), 0);
    assert_eq!(ask(Question::Check { cost: 3 }).granted, 3);
    expires(3);
    let before = dirty();
    let now_us = ask(Question::Peek { cost: 0 }).now_us;
    for look in [
        Question::Check { cost: 1 },
        Question::Lease { least: 1, wanted: 9, share: 2 },
        Question::Refund { units: 0, at_us: now_us },
    ] {
        assert_eq!(ask(look).granted, 0, "{look:?}");
    }
    assert_eq!(dirty(), before);
    let day = Question::Post { process: 7, epoch: now_us / 86_400_000_000, total: 5 };
    assert_eq!((ask(day).granted, ask(day).granted), (5, 0));
    expires(6);
    assert!(ask(Question::Refund { units: 2, at_us: now_us }).granted >= 1);
    expires(6);
    ask(Question::Force { cost: 100 });
    expires(6);
}

// G85
#[test]
fn foreign_key_is_kept_and_nothing_charged() {
    let Some(server) = Server::start() else { return };
    let client = Direct::of(&server);
    let plan = plan(&[Limit::gcra(Quota::per_day(10)), Limit::fixed_window(Quota::per_day(10))]);
    let post = Question::Post { process: 1, epoch: 1, total: 1 };
    for (ask, foreign) in [
        (Question::Check { cost: 1 }, ["HSET", "{other}:f1:1d", "a", "b"]),
        (Question::Check { cost: 1 }, ["SET", "{other}:f1:1d", "x", "KEEPTTL"]),
        (post, ["SET", "{other}:pg0", "x", "KEEPTTL"]),
        (post, ["HSET", "{other}:pg0", "1", "x"]),
    ] {
        server.command::<()>(&["FLUSHALL"]);
        server.command::<()>(&foreign);
        let error = client.call(&call("{other}", &plan, ask, None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reply, "{foreign:?}: {error}");
        assert!(!error.to_string().contains("other"), "{error}");
        let there: bool = server.command(&["EXISTS", "{other}:g0"]);
        assert!(!there, "{foreign:?}: a failed call must not charge the other limit");
    }
}
