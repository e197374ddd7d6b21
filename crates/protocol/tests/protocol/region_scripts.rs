//! The scripts of regions decide like their models, and the model of a server keeps a region's state while it counts.

use std::sync::Arc;

use tollgate::{Limit, Quota, Timestamp};
use tollgate_protocol::region::{RegionLinks, RegionState};
use tollgate_protocol::script::{self, By};
use tollgate_protocol::{
    Call, LinkReport, Place, Plan, Portion, Question, RegionPolicy, RegionScope, RegionTerms, Scope,
    ServerModel,
};
use tollgate_testing::accuracy::random::Random;
use tollgate_testing::redis::Server;

const SECOND: u64 = 1_000_000;

/// Asks the script and its model the same random questions about one key.
fn compare_region_script(server: &Server, limit: Limit, policy: RegionPolicy, seed: u64, questions: u64) {
    let (mut connection, plan) = (server.connection(), Arc::new(Plan::new(&[limit]).unwrap()));
    let windows = plan.parts()[0].windows().expect("the limit has windows");
    let others = ["east", "south pole"].map(Box::<str>::from).into();
    let portion = Portion { from: 1, to: 3, of: 4 };
    let terms = Arc::new(RegionTerms { windows, policy, portion, others });
    let mut random = Random::new(seed);
    let mut state = RegionState::default();
    let tag = format!("compare:{{{seed}}}").into_bytes();
    let mut now_us = 1_700_000_000 * SECOND;
    let mut round = 0;
    for _ in 0..questions {
        match random.below(40) {
            0 => now_us -= random.below(3) * windows.period_us,
            1 => now_us += random.below(3) * windows.period_us,
            _ => now_us += random.below(windows.period_us / 16),
        }
        let index = (now_us / windows.period_us + random.below(5)).saturating_sub(2);
        let from = ["east", "south pole", "north"][usize::try_from(random.below(3)).unwrap_or(0)];
        let mut units = || random.below(windows.limit / 2 + 2);
        let (totals, floor, total, cost) = ([units(), units()], [units(), units()], units(), units() / 4);
        let ask = match random.below(6) {
            0 => Question::Peek { cost: 0 },
            1 => Question::Check { cost },
            2 | 3 => Question::Post { process: random.below(4), epoch: index, total },
            4 => Question::Tell { index, totals },
            _ => {
                let round = round + random.below(2);
                Question::Hear { round, index, totals, of: index, floor }
            }
        };
        let pause_us = 5 * SECOND + random.below(SECOND);
        let scope = RegionScope { terms: Arc::clone(&terms), pause_us, from: Some(from.into()) };
        let expected = state.answer(&ask, &scope, now_us);
        let call = Call {
            tag: tag.clone(),
            plan: Arc::clone(&plan),
            ask,
            now: Some(Timestamp::from_nanos(now_us * 1_000)),
            place: Place::default(),
            scope: Scope::Region(scope),
        };
        let value = script::command(&call, By::Text).query(&mut connection).unwrap();
        let found = script::reply(&call, &value).unwrap();
        assert_eq!(found, expected, "{call:?} at {now_us}");
        round = round.max(found.region.map_or(0, |region| region.round));
    }
}

/// Makes the same random reports of calls to other regions to the script and its model.
fn compare_link_script(server: &Server, seed: u64, reports: u64) {
    let (mut connection, mut random) = (server.connection(), Random::new(seed));
    let mut model = RegionLinks::default();
    let mut now_us = 1_700_000_000 * SECOND;
    for _ in 0..reports {
        now_us = now_us + random.below(3 * SECOND) - random.below(SECOND);
        let names = ["east", "south pole"].into_iter().filter(|_| random.below(4) > 0).collect::<Vec<_>>();
        let mut age = || (random.below(3) > 0).then(|| random.below(5 * SECOND));
        let links = names.into_iter().map(|name| {
            let [first, last] = [age(), age()];
            let failed = first.zip(last).map(|(first, last)| (first.max(last), first.min(last)));
            (name.into(), [failed.map(|failed| failed.0), failed.map(|failed| failed.1), age()])
        });
        let (name, links) = (format!("links:{{{seed}}}").into_bytes(), links.collect());
        let report = LinkReport { name, life_us: u64::from(u32::MAX), links };
        if report.links.is_empty() {
            continue;
        }
        let expected = model.merge(&report, now_us);
        let value = script::links(&report, Some(now_us), By::Text).query(&mut connection).unwrap();
        let found = script::link_ages(&report, &value).unwrap();
        assert_eq!(found, expected, "{report:?} at {now_us}");
    }
}

// G101
#[test]
fn link_script_matches_model() {
    let Some(server) = Server::start() else { return };
    for seed in 30..34 {
        compare_link_script(&server, seed, 500);
    }
}

// G100
#[test]
fn region_script_matches_model() {
    let Some(server) = Server::start() else { return };
    let limits = [
        Limit::fixed_window(Quota::per_minute(7)),
        Limit::fixed_window(Quota::per_minute(10_000)),
        Limit::sliding_window(Quota::per_minute(100)),
        Limit::sliding_window(Quota::per_minute(1_000)).strict(),
    ];
    for (number, limit) in (0..).zip(limits) {
        for (policy, seed) in [(RegionPolicy::Share, 10), (RegionPolicy::AsLastKnown, 20)] {
            compare_region_script(&server, limit, policy, seed + number, 400);
        }
    }
}

/// The state of a long period stays, although the states of many short periods have ended.
#[test]
fn states_of_long_periods_outlive_those_of_short_periods() {
    let mut server = ServerModel::default();
    let mut used = |key: u32, quota, now_us| {
        let plan = Arc::new(Plan::new(&[Limit::fixed_window(quota)]).unwrap());
        let windows = plan.parts()[0].windows().unwrap();
        let (policy, portion) = (RegionPolicy::AsLastKnown, Portion { from: 0, to: 1, of: 1 });
        let terms = Arc::new(RegionTerms { windows, policy, portion, others: Box::default() });
        let call = Call {
            tag: key.to_string().into_bytes(),
            plan,
            ask: Question::Check { cost: 1 },
            now: None,
            place: Place::default(),
            scope: Scope::Region(RegionScope { terms, pause_us: SECOND, from: None }),
        };
        server.answer(&call, now_us).region.unwrap().used
    };
    let now_us = 1_700_000_000 * SECOND;
    assert_eq!(used(0, Quota::per_day(9), now_us), 1);
    for key in 0..3_000 {
        let (now_us, second) = (now_us + u64::from(key) * SECOND, Quota::per_second(9));
        assert_eq!(used(key, second, now_us), 1);
    }
    assert_eq!(used(0, Quota::per_day(9), now_us + 3_000 * SECOND), 2);
}
