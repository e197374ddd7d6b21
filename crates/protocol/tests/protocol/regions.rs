//! What the servers of regions answer to posts and exchanges, by their model.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::Quota;
use tollgate_protocol::region::{Claim, RegionLink, RegionLinks, RegionState, pause};
use tollgate_protocol::{LinkReport, Portion, RegionPolicy, RegionScope, RegionTerms, RegionUse};
use tollgate_testing::operations::config;

use super::*;

const SEC: u64 = 1_000_000;
const NOW: u64 = 1_700_000_040 * SEC;
const MINUTE: u64 = NOW / (60 * SEC);

/// Some regions, each with a server, and a way to carry a claim to all others.
struct Regions {
    names: Vec<Box<str>>,
    plan: Arc<Plan>,
    terms: Vec<Arc<RegionTerms>>,
    states: Vec<RegionState>,
}

impl Regions {
    fn new(regions: usize, limit: Limit, policy: RegionPolicy) -> Self {
        let plan = plan(&[limit]);
        let windows = plan.parts()[0].windows().expect("the limit has windows");
        let names: Vec<Box<str>> = (0..regions).map(|region| format!("r{region}").into()).collect();
        let terms = (0..regions).map(|region| {
            let others = names.iter().filter(|name| **name != names[region]).cloned().collect();
            let portion = Portion { from: region as u64, to: region as u64 + 1, of: regions as u64 };
            Arc::new(RegionTerms { windows, policy, portion, others })
        });
        Self { terms: terms.collect(), states: vec![RegionState::default(); regions], names, plan }
    }

    /// The region asks its server. Returns the units that were charged, and what the server knows.
    fn ask(&mut self, region: usize, ask: Question, now_us: u64) -> (u64, RegionUse, Option<Claim>) {
        self.ask_of(region, None, ask, now_us)
    }

    /// Another region is named in the question.
    fn ask_of(
        &mut self,
        region: usize,
        from: Option<&str>,
        ask: Question,
        now_us: u64,
    ) -> (u64, RegionUse, Option<Claim>) {
        let terms = Arc::clone(&self.terms[region]);
        let scope = RegionScope { terms, pause_us: 5 * SEC, from: from.map(Into::into) };
        let call = Call { scope: Scope::Region(scope.clone()), ..call("", &self.plan, ask, None) };
        let reply = self.states[region].answer(&call.ask, &scope, now_us);
        let claim = Claim::of(&call, &reply);
        (reply.granted, *reply.region.expect("a region answers"), claim)
    }

    /// A call of a claim, to the server of a region.
    fn send(&mut self, region: usize, call: &Call, now_us: u64) -> RegionUse {
        let Scope::Region(scope) = &call.scope else { panic!("a claim is about a region") };
        self.ask_of(region, scope.from.as_deref(), call.ask, now_us).1
    }

    fn peek(&mut self, region: usize, now_us: u64) -> RegionUse {
        self.ask(region, Question::Peek { cost: 0 }, now_us).1
    }

    fn post(&mut self, region: usize, total: u64, now_us: u64) -> (u64, RegionUse, Option<Claim>) {
        let epoch = now_us / self.terms[region].windows.period_us;
        self.ask(region, Question::Post { process: 1, epoch, total }, now_us)
    }

    fn check(&mut self, region: usize, cost: u64, now_us: u64) -> bool {
        self.ask(region, Question::Check { cost }, now_us).0 > 0
    }

    /// Carries a claim to these regions, and their replies back.
    fn carry(&mut self, region: usize, claim: &Claim, to: &[usize], now_us: u64) -> RegionUse {
        for &other in to {
            let theirs = self.send(other, &claim.tell(&self.names[region]), now_us);
            let _ = self.send(region, &claim.hear(&self.names[other], &theirs), now_us);
        }
        self.peek(region, now_us)
    }
}

fn per_minute(limit: u64) -> Limit {
    Limit::fixed_window(Quota::per_minute(limit))
}

// G98
#[test]
fn region_admits_its_share_until_all_others_answer() {
    let mut world = Regions::new(3, per_minute(300), RegionPolicy::Share);
    assert!(world.check(0, 100, NOW) && !world.check(0, 1, NOW), "a third of the limit");
    let claim = world.ask(0, Question::Peek { cost: 0 }, NOW + 5 * SEC).2.unwrap();
    assert_eq!(claim.totals, [100, 0]);
    assert_eq!(world.carry(0, &claim, &[1], NOW + 5 * SEC).room, 0, "one region has not answered");
    assert_eq!(world.carry(0, &claim, &[1], NOW + 6 * SEC).room, 0, "a repeated answer is not news");
    assert_eq!(world.carry(0, &claim, &[2], NOW + 6 * SEC).room, 66, "a third of the 200 units left");
    let after = world.carry(0, &claim, &[1, 2], NOW + 7 * SEC);
    assert_eq!(after.room, 66, "the answers are older than the renewal");
    let known = world.peek(1, NOW + 7 * SEC);
    assert_eq!((known.used, known.room), (100, 67), "the share is a part of the units left");
}

#[test]
fn as_last_known_admits_all_units_left() {
    let mut world = Regions::new(3, per_minute(300), RegionPolicy::AsLastKnown);
    assert!(world.check(0, 200, NOW) && world.check(1, 300, NOW), "neither knows the other");
    let claim = world.ask(0, Question::Peek { cost: 0 }, NOW + 6 * SEC).2;
    assert!(claim.is_some(), "the first claim was not carried out");
    let claim = world.post(2, 10, NOW).2.unwrap();
    let reply = world.carry(2, &claim, &[0, 1], NOW);
    assert_eq!((reply.used, reply.room), (510, 0));
    assert_eq!(world.peek(0, NOW).room, 90);
}

#[test]
fn claims_keep_the_interval_and_the_quantum() {
    let mut world = Regions::new(2, per_minute(6_400), RegionPolicy::Share);
    assert!(world.post(0, 1, NOW).2.is_some(), "the window is new");
    assert!(world.post(0, 500, NOW + 4 * SEC).2.is_none(), "the interval is not over");
    let claim = world.post(0, 501, NOW + 5 * SEC).2.unwrap();
    world.carry(0, &claim, &[1], NOW + 5 * SEC);
    assert!(world.post(0, 600, NOW + 11 * SEC).2.is_none(), "99 units are not worth an exchange");
    let lost = world.post(0, 601, NOW + 11 * SEC).2;
    assert!(lost.is_some());
    assert!(world.post(0, 601, NOW + 15 * SEC).2.is_none(), "the next exchange is not due yet");
    assert!(world.post(0, 602, NOW + 17 * SEC).2.is_some(), "the lost exchange is repeated");
    let mut alone = Regions::new(1, per_minute(100), RegionPolicy::Share);
    assert!(alone.post(0, 60, NOW).2.is_none());
    assert_eq!(alone.post(0, 60, NOW).1.room, 40);
}

// G100
#[test]
fn foreign_totals_are_never_reported() {
    let mut world = Regions::new(2, per_minute(1_000), RegionPolicy::AsLastKnown);
    for round in 0..20 {
        for region in 0..2 {
            let now_us = NOW + round * SEC / 2;
            if let Some(claim) = world.post(region, 100 + round, now_us).2 {
                let reply = world.carry(region, &claim, &[1 - region], now_us);
                assert_eq!(reply.own[0], 100 + round);
                assert!(reply.used <= 2 * (100 + round), "{reply:?}");
            }
        }
    }
}

/// The control of the test above: a region that reports what it heard.
#[test]
fn echo_of_foreign_totals_grows_without_end() {
    let mut world = Regions::new(2, Limit::fixed_window(Quota::per_day(1_000)), RegionPolicy::AsLastKnown);
    for round in 0..20 {
        for region in 0..2 {
            let now_us = NOW + round * 6 * SEC;
            let (_, own, claim) = world.post(region, 10 + round, now_us);
            if let Some(mut claim) = claim {
                claim.totals[0] = own.used;
                let _ = world.send(1 - region, &claim.tell(&world.names[region]), now_us);
                let told = world.peek(1 - region, now_us);
                let echoed = RegionUse { own: [told.used, 0], ..told };
                let _ = world.send(region, &claim.hear(&world.names[1 - region], &echoed), now_us);
            }
        }
    }
    assert!(world.peek(0, NOW + 120 * SEC).used > 500, "58 units were admitted");
}

// G100
#[test]
fn server_without_data_recovers_by_floor() {
    let mut world = Regions::new(2, per_minute(1_000), RegionPolicy::Share);
    let claim = world.post(0, 300, NOW).2.unwrap();
    assert_eq!(world.carry(0, &claim, &[1], NOW).own[0], 300);
    world.states[0] = RegionState::default();
    let (granted, known, _) = world.post(0, 300, NOW + SEC);
    assert_eq!((granted, known.own[0]), (300, 300), "the process posts its whole total");
    world.states[0] = RegionState::default();
    let claim = world.ask(0, Question::Post { process: 2, epoch: MINUTE, total: 20 }, NOW + SEC).2;
    let reply = world.carry(0, &claim.unwrap(), &[1], NOW + SEC);
    assert_eq!(reply.own[0], 300, "the floor");
    assert_eq!(world.post(0, 310, NOW + SEC).1.own[0], 330, "the floor is not added to the posts");
    // An answer to an exchange from before the restart is not news.
    world.states[0] = RegionState::default();
    assert!(world.check(0, 500, NOW + 2 * SEC));
    for round in [NOW + 1, NOW + SEC + 1, u64::MAX] {
        let (index, none) = (MINUTE, [0, 0]);
        let old = Question::Hear { round, index, totals: none, of: index, floor: none };
        assert_eq!(world.ask_of(0, Some("r1"), old, NOW + 2 * SEC).1.room, 0);
    }
}

#[test]
fn total_counts_in_the_window_that_it_names() {
    let mut world = Regions::new(2, per_minute(100), RegionPolicy::AsLastKnown);
    let tell = |world: &mut Regions, index: u64, totals| {
        let _ = world.ask_of(0, Some("r1"), Question::Tell { index, totals }, NOW);
    };
    let used = |world: &mut Regions, now_us| world.peek(0, now_us).used;
    tell(&mut world, MINUTE + 1, [30, 7]);
    assert_eq!(used(&mut world, NOW), 7, "a clock that is ahead does not end the window");
    assert_eq!(used(&mut world, NOW + 60 * SEC), 30);
    tell(&mut world, MINUTE + 5, [90, 90]);
    assert_eq!(used(&mut world, NOW), 7, "a total from the far future is ignored");
    tell(&mut world, MINUTE - 3, [90, 90]);
    assert_eq!((used(&mut world, NOW), used(&mut world, NOW + 60 * SEC)), (7, 30), "an old total is dropped");
}

#[test]
fn sliding_share_declines_with_the_window_before() {
    let mut world = Regions::new(2, Limit::sliding_window(Quota::per_minute(100)), RegionPolicy::Share);
    assert!(world.check(0, 50, NOW - SEC));
    let room = |world: &mut Regions, now_us| world.peek(0, now_us).room;
    assert_eq!(room(&mut world, NOW), 0, "50 units of its own count in full");
    assert_eq!(room(&mut world, NOW + 30 * SEC), 25);
    assert_eq!(world.peek(1, NOW).room, 50);
    // Before the first exchange in this window, region 1 does not know the 50 units.
    let claim = world.post(1, 10, NOW).2.unwrap();
    let reply = world.carry(1, &claim, &[0], NOW);
    assert_eq!((reply.used, reply.room), (60, 20));
}

#[test]
fn parts_of_all_regions_have_the_whole_sum() {
    for weights in [&[1][..], &[1, 1, 1], &[3, 1, 4, 1, 5], &[1; 10]] {
        let of = weights.iter().sum();
        for units in [0, 1, 2, 9, 100, 6_000, 1 << 51] {
            let mut from = 0;
            let parts = weights.iter().map(|weight| {
                let portion = Portion { from, to: from + weight, of };
                from += weight;
                portion.part(units)
            });
            assert_eq!(parts.sum::<u64>(), units, "{weights:?}");
        }
    }
}

#[test]
fn pause_is_within_ten_percent() {
    assert_eq!((pause(1_000, 0), pause(1_000, u64::MAX), pause(1_000, 1 << 63)), (900, 1_099, 1_000));
    assert_eq!(pause(0, 7), 0);
}

// G101
#[test]
fn silent_region_is_cut_off_after_three_intervals() {
    let link = RegionLink::default();
    assert!(!link.is_cut_off(10), "no call was sent");
    link.failed(1_000);
    link.failed(1_019);
    assert!(!link.is_cut_off(10));
    link.failed(1_020);
    assert!(link.is_cut_off(10));
    link.answered(1_040);
    assert_eq!((link.is_cut_off(10), link.age_ns(1_050)), (false, Some(10)));
    link.failed(1_030);
    link.failed(9_000);
    assert!(!link.is_cut_off(10), "one lost answer is not a cut");
}

// G101
#[test]
fn process_knows_what_its_region_knows() {
    const MS: u64 = 1_000_000;
    let (one, two, mut server) = (RegionLink::default(), RegionLink::default(), RegionLinks::default());
    let mut sync = |link: &RegionLink, now_ms: u64| {
        // The clocks of the processes and of the server differ.
        let report = LinkReport {
            name: Vec::new(),
            life_us: 1_000_000,
            links: vec![("east".into(), link.report(now_ms * MS))],
        };
        let ages = server.merge(&report, 7_000_000 + now_ms * 1_000);
        link.learn(ages[0], now_ms * MS);
    };
    one.failed(100 * MS);
    two.answered(110 * MS);
    sync(&two, 120);
    one.failed(115 * MS);
    sync(&one, 130);
    let known = (one.age_ns(150 * MS), one.is_cut_off(MS));
    assert_eq!(known, (Some(40 * MS), false), "the other process got an answer");
    two.failed(135 * MS);
    sync(&two, 140);
    assert!(two.is_cut_off(10 * MS) && !one.is_cut_off(10 * MS), "20 ms between the calls of both");
    sync(&one, 150);
    assert!(one.is_cut_off(10 * MS), "a process that made no call learns it too");
    for now_ms in 151..1_000 {
        sync(&one, now_ms);
    }
    assert_eq!(one.age_ns(1_000 * MS), Some(890 * MS), "repeated reports change no age");
}

/// What one process reports of its calls to another region: those that failed, and the last answer.
fn reports() -> impl Strategy<Value = LinkReport> {
    (prop::collection::vec(1_u64..9, 0..3), 0_u64..9).prop_map(|(failed, answered)| {
        let link = RegionLink::default();
        failed.into_iter().for_each(|sent| link.failed(sent * 1_000));
        if answered > 0 {
            link.answered(answered * 1_000);
        }
        LinkReport { name: Vec::new(), life_us: 100, links: vec![("east".into(), link.report(10_000))] }
    })
}

/// The totals that two other regions report, in this window and in windows near it.
fn tells() -> impl Strategy<Value = Vec<(&'static str, Question)>> {
    let tell = (select(vec!["r1", "r2"]), MINUTE - 3..=MINUTE + 1, [0_u64..9, 0..9]);
    let tell = tell.prop_map(|(from, index, totals)| (from, Question::Tell { index, totals }));
    prop::collection::vec(tell, 0..12)
}

proptest! {
    #![proptest_config(config(256))]

    // G101
    #[test]
    fn merge_of_calls_is_commutative_and_idempotent(a in reports(), b in reports()) {
        let merged = |reports: &[&LinkReport]| {
            let mut links = RegionLinks::default();
            reports.iter().map(|report| links.merge(report, 10)).last()
        };
        prop_assert_eq!(merged(&[&a, &b]), merged(&[&b, &a]));
        prop_assert_eq!(merged(&[&a, &b, &b, &a]), merged(&[&a, &b]));
        prop_assert_eq!(merged(&[&a, &a]), merged(&[&a]));
    }

    // G100
    #[test]
    fn reports_in_any_order_give_equal_totals(
        tells in tells(),
        again in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let state = |tells: Vec<&(&str, Question)>| {
            let mut world = Regions::new(3, per_minute(100), RegionPolicy::AsLastKnown);
            let _ = world.peek(0, NOW);
            for &(from, tell) in tells {
                let _ = world.ask_of(0, Some(from), tell, NOW);
            }
            [NOW, NOW + 60 * SEC].map(|now_us| world.peek(0, now_us).used)
        };
        let shuffled = again.iter().filter(|_| !tells.is_empty()).map(|at| at.get(&tells));
        prop_assert_eq!(state(tells.iter().collect()), state(shuffled.chain(tells.iter().rev()).collect()));
    }
}

#[test]
fn post_charges_the_growth_of_its_window() {
    let mut world = Regions::new(1, Limit::sliding_window(Quota::per_minute(100)), RegionPolicy::Share);
    let posts = [(0, 5), (0, 8), (0, 3), (1, 2), (3, 9), (1, 4), (0, 9)];
    let granted = posts.map(|(ago, total)| {
        let post = Question::Post { process: 1, epoch: MINUTE - ago, total };
        world.ask(0, post, NOW).0
    });
    assert_eq!(granted, [5, 3, 0, 2, 0, 2, 1]);
}
