//! What the server of a region stores and answers, in Rust. `region.lua` does the same on a server; tests compare the
//! two.
//!
//! *News.* A share is renewed when every other region has answered an exchange that was claimed after the last renewal.
//! The number of an exchange is the time of its claim, made larger where the clock stepped back. So an answer that is
//! late or repeated does not renew, and only the own clock is compared with itself.
//!
//! *Windows* follow the own server's time. A total belongs to the window that it names:
//!
//! - a total for the next window, from a server whose clock is ahead, is kept for that window;
//! - a total that is further ahead is ignored, and an old total is dropped.
//!
//! *Sliding windows.* The weight of the window before declines, so the share grows with time. At the start of a window
//! the final totals of the others may be unknown. Until the first renewal in the window, the region therefore also
//! stays below its share of the limit with its own units alone: in a partition the others can do the same, and the sum
//! is the limit.

use std::collections::BTreeMap;

use super::call::{RegionCall, RegionQuestion, RegionReply};
use super::policy::{RegionPolicy, RegionTerms};
use super::totals::Totals;
use crate::edge::redis::protocol::{EXACT, Windows};

/// The last time, and the largest count.
const LAST: u64 = 1 << 52;

/// The stored data of one limit of one key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RegionState {
    windows: Option<OwnWindows>,
    /// The totals that the processes of this region posted.
    posts: BTreeMap<u64, Totals>,
    others: BTreeMap<Box<str>, Other>,
}

/// The region's own windows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct OwnWindows {
    index: u64,
    /// The current window, and the window before.
    own: [OwnTotal; 2],
    /// The own total at the last renewal in this window.
    base: u64,
    /// Whether the share was renewed in this window.
    is_renewed: bool,
    /// The time of the last renewal, as the number of an exchange.
    renewed: u64,
    /// The number of the last exchange.
    round: u64,
    /// When the next exchange may be claimed.
    next_us: u64,
}

/// The region's own total in one window.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
struct OwnTotal {
    /// The units that its processes posted.
    counted: u64,
    /// The total that another region knows. It is larger after the server lost its data.
    floor: u64,
}

impl OwnTotal {
    fn units(self) -> u64 {
        self.counted.max(self.floor)
    }
}

/// The total of a window. A later window is larger.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct KnownTotal {
    index: u64,
    units: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
struct Other {
    totals: Totals,
    /// The number of the last exchange that this region answered.
    heard: u64,
    /// What it knows of the own total.
    acked: KnownTotal,
}

/// What counts in the current window.
#[derive(Copy, Clone, Debug)]
struct WindowUse {
    own: u64,
    /// The units of the other regions.
    known: u64,
    /// The weighted units of the window before: of all regions, and of this region.
    weighed: u64,
    own_weighed: u64,
    /// The own total that every other region knows.
    acked: u64,
}

impl OwnWindows {
    const fn new(index: u64, now_us: u64) -> Self {
        let none = OwnTotal { counted: 0, floor: 0 };
        Self { index, own: [none; 2], base: 0, is_renewed: false, renewed: now_us, round: 0, next_us: 0 }
    }

    /// Moves to the window of this time. Returns whether the state came from too far in the future.
    fn turn(&mut self, present: u64, now_us: u64) -> bool {
        if self.index > present.saturating_add(1) {
            // The clock stepped back. The counts stay.
            self.index = present;
            self.next_us = 0;
            return true;
        }
        if self.index < present {
            let is_next = self.index + 1 == present;
            let before = if is_next { self.own[0] } else { OwnTotal::default() };
            let renewed = self.renewed.max(self.round).max(now_us);
            let (round, next_us) = (self.round, self.next_us);
            *self = Self {
                own: [OwnTotal::default(), before],
                renewed,
                round,
                next_us,
                ..Self::new(present, now_us)
            };
        }
        false
    }

    /// The own total of this window, if it is one of the two that count.
    fn own_of(&mut self, index: u64) -> Option<&mut OwnTotal> {
        let age = usize::try_from(self.index.checked_sub(index)?).ok()?;
        self.own.get_mut(age)
    }

    /// Raises the own totals to those that another region knows, of this window and of the window before it.
    fn raise_floor(&mut self, index: u64, floor: [u64; 2]) {
        for (age, floor) in (0..).zip(floor) {
            if let Some(own) = index.checked_sub(age).and_then(|of| self.own_of(of)) {
                own.floor = own.floor.max(floor.min(LAST));
            }
        }
    }

    /// The units that the region may admit now.
    fn room(&self, terms: &RegionTerms, tally: &WindowUse) -> u64 {
        let RegionTerms { windows: Windows { limit, slides, .. }, policy, portion, .. } = *terms;
        let left = limit.saturating_sub(tally.used());
        if policy == RegionPolicy::AsLastKnown {
            return left;
        }
        // News of the others makes the share smaller at once. Only a renewal makes it larger.
        let rest = limit.saturating_sub(self.base + tally.known + tally.weighed);
        let share = (self.base + portion.part(rest)).saturating_sub(tally.own);
        let alone = portion.part(limit).saturating_sub(tally.own + tally.own_weighed);
        if slides && !self.is_renewed { left.min(share).min(alone) } else { left.min(share) }
    }

    /// Claims an exchange, if one is due. Returns its number, or 0.
    fn claim(
        &mut self,
        terms: &RegionTerms,
        tally: &WindowUse,
        room: u64,
        now_us: u64,
        pause_us: u64,
    ) -> u64 {
        let quantum = terms.quantum();
        let grew = tally.own.saturating_sub(tally.acked);
        let is_worth = grew >= quantum || (grew > 0 && (tally.acked == 0 || room < quantum));
        // Without units, the region needs news to renew its share.
        let is_hungry = room == 0 && tally.used() < terms.windows.limit;
        // A time far in the future comes from before a step back of the clock.
        let is_time =
            now_us >= self.next_us || self.next_us > now_us.saturating_add(pause_us.saturating_mul(2));
        if terms.others.is_empty() || !is_time || !(is_worth || is_hungry) {
            return 0;
        }
        self.round = now_us.max(self.round + 1).max(self.renewed + 1);
        self.next_us = now_us.saturating_add(pause_us);
        self.round
    }
}

impl WindowUse {
    const fn used(&self) -> u64 {
        self.own + self.known + self.weighed
    }
}

impl RegionState {
    /// Answers a question.
    pub fn answer(&mut self, call: &RegionCall, now_us: u64) -> RegionReply {
        let terms = &*call.terms;
        let now_us = now_us.min(LAST);
        let Windows { period_us, slides, .. } = terms.windows;
        let present = now_us / period_us;
        let mut windows = self.windows.unwrap_or(OwnWindows::new(present, now_us));
        let mut writes = windows.turn(present, now_us);
        let index = windows.index;
        let mut reply =
            RegionReply { granted: 0, now_us, index, own: [0; 2], used: 0, room: 0, round: 0, known: [0; 2] };
        match call.ask {
            RegionQuestion::Peek => {}
            RegionQuestion::Check { cost } => {
                let tally = self.tally(&windows, terms, now_us);
                if cost <= windows.room(terms, &tally) {
                    reply.granted = cost;
                    windows.own[0].counted += cost;
                }
            }
            RegionQuestion::Post { process, epoch, total } => {
                reply.granted = self.post(&mut windows, slides, process, [epoch, total]);
            }
            RegionQuestion::Tell { ref from, index: of, totals } => {
                let other = self.hear(from, index, of, totals);
                reply.known = [other.of(of), other.of(of.saturating_sub(1))];
                writes = true;
            }
            RegionQuestion::Hear { ref from, round, index: of, totals, of: own_index, floor } => {
                self.hear(from, index, of, totals);
                windows.raise_floor(own_index, floor);
                // A larger round comes from before the server lost its data.
                if let Some(other) = self.others.get_mut(from).filter(|_| round <= windows.round) {
                    other.heard = other.heard.max(round);
                    other.acked = other.acked.max(KnownTotal { index: own_index, units: floor[0] });
                }
                writes = true;
                self.renew(&mut windows, terms, now_us);
            }
        }
        let tally = self.tally(&windows, terms, now_us);
        reply.room = windows.room(terms, &tally);
        if matches!(
            call.ask,
            RegionQuestion::Peek | RegionQuestion::Check { .. } | RegionQuestion::Post { .. }
        ) {
            reply.round = windows.claim(terms, &tally, reply.room, now_us, call.pause_us);
        }
        reply.own = windows.own.map(OwnTotal::units);
        reply.used = tally.used();
        if writes || reply.granted > 0 || reply.round > 0 {
            self.windows = Some(windows);
        }
        reply
    }

    /// Counts the total that a process reports of a window. Returns the units that it adds.
    fn post(&mut self, windows: &mut OwnWindows, slides: bool, process: u64, report: [u64; 2]) -> u64 {
        let [epoch, total] = report.map(|number| number.min(EXACT - 1));
        let index = windows.index;
        let counts = epoch == index || (slides && epoch + 1 == index);
        if !counts || total == 0 {
            return 0;
        }
        if !self.posts.contains_key(&process) {
            // Processes come and go.
            self.posts.retain(|_, posts| posts.of(index) + posts.of(index.saturating_sub(1)) > 0);
        }
        let grown = self.posts.entry(process).or_default().report(epoch, total);
        let Some(own) = windows.own_of(epoch) else { return 0 };
        let granted = grown.min(LAST.saturating_sub(own.counted));
        own.counted += granted;
        granted
    }

    /// Renews the share if every other region has answered an exchange that began after the last renewal.
    fn renew(&self, windows: &mut OwnWindows, terms: &RegionTerms, now_us: u64) {
        let is_news = |name: &str| self.others.get(name).is_some_and(|other| other.heard > windows.renewed);
        if terms.others.iter().all(|name| is_news(name)) {
            windows.base = self.tally(windows, terms, now_us).own;
            windows.is_renewed = true;
            windows.renewed = windows.round.max(now_us);
        }
    }

    /// Returns whether no window counts any more.
    pub(crate) fn is_over(&self, period_us: u64, now_us: u64) -> bool {
        self.windows.is_none_or(|windows| windows.index.saturating_add(3) <= now_us / period_us.max(1))
    }

    /// Returns what is known of a region's total in this window.
    #[cfg(tollgate_simulation)]
    pub fn known_of(&self, name: &str, index: u64) -> u64 {
        self.others.get(name).map_or(0, |other| other.totals.of(index))
    }

    /// Merges the totals that a region reported, if they are not too far in the future. Returns what is known of it.
    fn hear(&mut self, from: &str, present: u64, index: u64, totals: [u64; 2]) -> Totals {
        let totals = totals.map(|units| units.min(LAST));
        if index > present.saturating_add(1) {
            return self.others.get(from).map(|other| other.totals).unwrap_or_default();
        }
        if !self.others.contains_key(from) {
            self.others.insert(from.into(), Other::default());
        }
        let Some(other) = self.others.get_mut(from) else { return Totals::default() };
        other.totals.merge(&Totals::new(index, [totals[0], if index > 0 { totals[1] } else { 0 }, 0]));
        other.totals
    }

    fn tally(&self, windows: &OwnWindows, terms: &RegionTerms, now_us: u64) -> WindowUse {
        let others = || terms.others.iter().filter_map(|name| self.others.get(name));
        let known = |index: u64| others().map(|other| other.totals.of(index)).sum::<u64>();
        let index = windows.index;
        let own = windows.own.map(OwnTotal::units);
        let Windows { period_us, slides, .. } = terms.windows;
        let into_us = if index == now_us / period_us { now_us % period_us } else { 0 };
        let weigh = |units: u64| {
            if slides && index > 0 { terms.windows.weighed(units, period_us - into_us) } else { 0 }
        };
        let before = own[1].saturating_add(known(index.saturating_sub(1)));
        let acked = |name: &str| {
            self.others
                .get(name)
                .filter(|other| other.acked.index == index)
                .map_or(0, |other| other.acked.units)
        };
        WindowUse {
            own: own[0],
            known: known(index),
            weighed: weigh(before),
            own_weighed: weigh(own[1]),
            acked: terms.others.iter().map(|name| acked(name)).min().unwrap_or(0),
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::algorithm::Limit;
    use crate::base::quota::Quota;
    use crate::edge::redis::protocol::{Arithmetic, Plan};
    use crate::edge::redis::region::{Claim, Portion};

    const SEC: u64 = 1_000_000;
    const NOW: u64 = 1_700_000_040 * SEC;
    const MINUTE: u64 = NOW / (60 * SEC);

    /// Some regions, each with a server, and a way to carry a claim to all others.
    struct TwoRegions {
        names: Vec<Box<str>>,
        terms: Vec<Arc<RegionTerms>>,
        states: Vec<RegionState>,
    }

    impl TwoRegions {
        fn new(regions: usize, limit: Limit, policy: RegionPolicy) -> Self {
            let Arithmetic::Windows(windows) = Plan::new(&[limit]).unwrap().parts()[0].kind else { panic!() };
            let names: Vec<Box<str>> = (0..regions).map(|region| format!("r{region}").into()).collect();
            let terms = (0..regions).map(|region| {
                let others = names.iter().filter(|name| **name != names[region]).cloned().collect();
                let portion = Portion { from: region as u64, to: region as u64 + 1, of: regions as u64 };
                Arc::new(RegionTerms { windows, policy, portion, others })
            });
            Self { terms: terms.collect(), states: vec![RegionState::default(); regions], names }
        }

        fn ask(&mut self, region: usize, ask: RegionQuestion, now_us: u64) -> (RegionReply, Option<Claim>) {
            let terms = Arc::clone(&self.terms[region]);
            let call = RegionCall { name: Vec::new(), terms, pause_us: 5 * SEC, ask };
            let reply = self.states[region].answer(&call, now_us);
            let claim = reply.claim(&call);
            (reply, claim)
        }

        fn post(&mut self, region: usize, total: u64, now_us: u64) -> (RegionReply, Option<Claim>) {
            let epoch = now_us / self.terms[region].windows.period_us;
            self.ask(region, RegionQuestion::Post { process: 1, epoch, total }, now_us)
        }

        fn check(&mut self, region: usize, cost: u64, now_us: u64) -> bool {
            self.ask(region, RegionQuestion::Check { cost }, now_us).0.granted > 0
        }

        /// Carries a claim to these regions, and their replies back.
        fn carry(&mut self, region: usize, claim: &Claim, to: &[usize], now_us: u64) -> RegionReply {
            for &other in to {
                let reply = self.ask(other, claim.tell(&self.names[region].clone()), now_us).0;
                let heard = claim.hear(&self.names[other].clone(), &reply);
                let _ = self.ask(region, heard, now_us);
            }
            self.ask(region, RegionQuestion::Peek, now_us).0
        }
    }

    fn per_minute(limit: u64) -> Limit {
        Limit::fixed_window(Quota::per_minute(limit))
    }

    #[test]
    fn region_admits_its_share_until_all_others_answer() {
        let mut world = TwoRegions::new(3, per_minute(300), RegionPolicy::Share);
        assert!(world.check(0, 100, NOW) && !world.check(0, 1, NOW), "a third of the limit");
        let claim = world.ask(0, RegionQuestion::Peek, NOW + 5 * SEC).1.unwrap();
        assert_eq!(claim.totals, [100, 0]);
        assert_eq!(world.carry(0, &claim, &[1], NOW + 5 * SEC).room, 0, "one region has not answered");
        assert_eq!(world.carry(0, &claim, &[1], NOW + 6 * SEC).room, 0, "a repeated answer is not news");
        assert_eq!(world.carry(0, &claim, &[2], NOW + 6 * SEC).room, 66, "a third of the 200 units left");
        assert_eq!(
            world.carry(0, &claim, &[1, 2], NOW + 7 * SEC).room,
            66,
            "the answers are older than the renewal"
        );
        let known = world.ask(1, RegionQuestion::Peek, NOW + 7 * SEC).0;
        assert_eq!((known.used, known.room), (100, 67), "the share is a part of the units left");
    }

    #[test]
    fn as_last_known_admits_all_units_left() {
        let mut world = TwoRegions::new(3, per_minute(300), RegionPolicy::AsLastKnown);
        assert!(world.check(0, 200, NOW) && world.check(1, 300, NOW), "neither knows the other");
        let claim = world.ask(0, RegionQuestion::Peek, NOW + 6 * SEC).1;
        assert!(claim.is_some(), "the first claim was not carried out");
        let claim = world.post(2, 10, NOW).1.unwrap();
        let reply = world.carry(2, &claim, &[0, 1], NOW);
        assert_eq!((reply.used, reply.room), (510, 0));
        assert_eq!(world.ask(0, RegionQuestion::Peek, NOW).0.room, 90);
    }

    #[test]
    fn claims_keep_the_interval_and_the_quantum() {
        let mut world = TwoRegions::new(2, per_minute(6_400), RegionPolicy::Share);
        assert!(world.post(0, 1, NOW).1.is_some(), "the window is new");
        assert!(world.post(0, 500, NOW + 4 * SEC).1.is_none(), "the interval is not over");
        let claim = world.post(0, 501, NOW + 5 * SEC).1.unwrap();
        world.carry(0, &claim, &[1], NOW + 5 * SEC);
        assert!(world.post(0, 600, NOW + 11 * SEC).1.is_none(), "99 units are not worth an exchange");
        let lost = world.post(0, 601, NOW + 11 * SEC).1;
        assert!(
            lost.is_some() && world.post(0, 601, NOW + 15 * SEC).1.is_none(),
            "the next exchange is not due yet"
        );
        assert!(world.post(0, 602, NOW + 17 * SEC).1.is_some(), "the lost exchange is repeated");
        let mut alone = TwoRegions::new(1, per_minute(100), RegionPolicy::Share);
        assert_eq!((alone.post(0, 60, NOW).1, alone.post(0, 60, NOW).0.room), (None, 40));
    }

    #[test]
    fn foreign_totals_are_never_reported() {
        let mut world = TwoRegions::new(2, per_minute(1_000), RegionPolicy::AsLastKnown);
        for round in 0..20 {
            for region in 0..2 {
                let now_us = NOW + round * SEC / 2;
                if let Some(claim) = world.post(region, 100 + round, now_us).1 {
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
        let mut world =
            TwoRegions::new(2, Limit::fixed_window(Quota::per_day(1_000)), RegionPolicy::AsLastKnown);
        for round in 0..20 {
            for region in 0..2 {
                let now_us = NOW + round * 6 * SEC;
                let (reply, claim) = world.post(region, 10 + round, now_us);
                if let Some(mut claim) = claim {
                    claim.totals[0] = reply.used;
                    let name = world.names[region].clone();
                    let _ = world.ask(1 - region, claim.tell(&name), now_us);
                    let name = world.names[1 - region].clone();
                    let told = world.ask(1 - region, RegionQuestion::Peek, now_us).0;
                    let echoed = RegionReply { own: [told.used, 0], ..told };
                    let _ = world.ask(region, claim.hear(&name, &echoed), now_us);
                }
            }
        }
        assert!(world.ask(0, RegionQuestion::Peek, NOW + 120 * SEC).0.used > 500, "58 units were admitted");
    }

    #[test]
    fn server_without_data_recovers_by_floor() {
        let mut world = TwoRegions::new(2, per_minute(1_000), RegionPolicy::Share);
        let claim = world.post(0, 300, NOW).1.unwrap();
        assert_eq!(world.carry(0, &claim, &[1], NOW).own[0], 300);
        world.states[0] = RegionState::default();
        let (reply, claim) = world.post(0, 300, NOW + SEC);
        assert_eq!((reply.granted, reply.own[0]), (300, 300), "the process posts its whole total");
        world.states[0] = RegionState::default();
        let _ = claim;
        let claim = world.ask(0, RegionQuestion::Post { process: 2, epoch: MINUTE, total: 20 }, NOW + SEC).1;
        let reply = world.carry(0, &claim.unwrap(), &[1], NOW + SEC);
        assert_eq!(reply.own[0], 300, "the floor");
        assert_eq!(world.post(0, 310, NOW + SEC).0.own[0], 330, "the floor is not added to the posts");
        // An answer to an exchange from before the restart is not news.
        world.states[0] = RegionState::default();
        assert!(world.check(0, 500, NOW + 2 * SEC));
        for round in [NOW + 1, NOW + SEC + 1, u64::MAX] {
            let (index, none) = (MINUTE, [0, 0]);
            let old = RegionQuestion::Hear {
                from: "r1".into(),
                round,
                index,
                totals: none,
                of: index,
                floor: none,
            };
            assert_eq!(world.ask(0, old, NOW + 2 * SEC).0.room, 0);
        }
    }

    #[test]
    fn total_counts_in_the_window_that_it_names() {
        let mut world = TwoRegions::new(2, per_minute(100), RegionPolicy::AsLastKnown);
        let tell = |index: u64, totals| RegionQuestion::Tell { from: "r1".into(), index, totals };
        let used = |world: &mut TwoRegions, now_us| world.ask(0, RegionQuestion::Peek, now_us).0.used;
        let _ = world.ask(0, tell(MINUTE + 1, [30, 7]), NOW);
        assert_eq!(used(&mut world, NOW), 7, "a clock that is ahead does not end the window");
        assert_eq!(used(&mut world, NOW + 60 * SEC), 30);
        let _ = world.ask(0, tell(MINUTE + 5, [90, 90]), NOW);
        assert_eq!(used(&mut world, NOW), 7, "a total from the far future is ignored");
        let _ = world.ask(0, tell(MINUTE - 3, [90, 90]), NOW);
        assert_eq!(
            (used(&mut world, NOW), used(&mut world, NOW + 60 * SEC)),
            (7, 30),
            "an old total is dropped"
        );
    }

    #[test]
    fn sliding_share_declines_with_the_window_before() {
        let mut world =
            TwoRegions::new(2, Limit::sliding_window(Quota::per_minute(100)), RegionPolicy::Share);
        assert!(world.check(0, 50, NOW - SEC));
        let room = |world: &mut TwoRegions, now_us| world.ask(0, RegionQuestion::Peek, now_us).0.room;
        assert_eq!(room(&mut world, NOW), 0, "50 units of its own count in full");
        assert_eq!(room(&mut world, NOW + 30 * SEC), 25);
        assert_eq!(world.ask(1, RegionQuestion::Peek, NOW).0.room, 50);
        // Before the first exchange in this window, region 1 does not know the 50 units.
        let claim = world.post(1, 10, NOW).1.unwrap();
        let reply = world.carry(1, &claim, &[0], NOW);
        assert_eq!((reply.used, reply.room), (60, 20));
    }
}
