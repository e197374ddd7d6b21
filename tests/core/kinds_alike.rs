//! The library decides each kind of limit as rules and the service do.
//!
//! Restarts are in `stores`: `keyed_snapshot` and `compact_snapshot` compare limiters that are restored with those that
//! continue, for all algorithms.

use std::time::Duration;

use tollgate::holds::{HoldId, Holding, InProgress};
use tollgate::{
    AnyLimiter, Carry, Decision, Distinct, FixedWindow, Keyed, ManualClock, Quota, RateLimiter, StoreKind,
    Timestamp,
};
use tollgate_testing::build;

use crate::alike::{Between, Entries, Kind, Seen, Surface, cases};
use crate::alike_limits::{class, limit};

const TEN: Quota = Quota::per_hour(10);

fn seen(decision: &Decision) -> Seen {
    Seen {
        is_allowed: decision.is_allowed(),
        left: Some(decision.remaining()),
        wait: Some(decision.retry_after().map_or(u64::MAX, |wait| wait.as_secs())),
        is_block: Some(decision.is_block()),
    }
}

/// A limiter whose limit can change.
struct Changing {
    limiter: AnyLimiter<String, ManualClock>,
    kind: Kind,
    rules: String,
}

impl Surface for Changing {
    fn ask(&mut self, now: u64, entries: Entries, units: u64) -> Seen {
        let limiter = self.limiter.at(Timestamp::from_secs(now));
        seen(&match class(&self.rules, entries) {
            Some(class) => limiter.check_class("all", units, class),
            None => limiter.check_n(entries[0].1, units),
        })
    }

    fn load(&mut self, text: &str, rules: &str) -> bool {
        rules.clone_into(&mut self.rules);
        self.limiter.set_limit(limit(self.kind, text), Carry::Used).unwrap();
        true
    }
}

/// Limits on different values.
struct Values(Distinct<ManualClock>);

impl Surface for Values {
    fn ask(&mut self, now: u64, entries: Entries, _: u64) -> Seen {
        seen(&self.0.at(Timestamp::from_secs(now)).check(entries[0].1, entries[1].1))
    }
}

/// A limiter with holds.
struct Holds {
    limiter: RateLimiter<Holding<Keyed<String, FixedWindow>>, ManualClock>,
    ids: Vec<HoldId>,
}

impl Surface for Holds {
    fn ask(&mut self, now: u64, entries: Entries, units: u64) -> Seen {
        seen(&self.limiter.at(Timestamp::from_secs(now)).check_n(entries[0].1, units))
    }

    fn hold(&mut self, now: u64, entries: Entries, units: u64, life: u64) -> Seen {
        let (at, life) = (self.limiter.at(Timestamp::from_secs(now)), Duration::from_secs(life));
        match at.hold(entries[0].1, units, life) {
            Ok(id) => {
                self.ids.push(id);
                seen(&at.check_n(entries[0].1, 0))
            }
            Err(denied) => seen(&denied.decision()),
        }
    }

    fn commit(&mut self, now: u64, entries: Entries, hold: usize, used: u64) -> Option<bool> {
        let _ = self.limiter.at(Timestamp::from_secs(now)).commit(entries[0].1, self.ids[hold], used);
        None
    }
}

/// A limit on requests in progress.
struct Progress(InProgress<ManualClock>, Vec<HoldId>);

impl Surface for Progress {
    fn ask(&mut self, _: u64, _: Entries, _: u64) -> Seen {
        unreachable!("its requests are held")
    }

    fn hold(&mut self, now: u64, entries: Entries, units: u64, _: u64) -> Seen {
        match self.0.at(Timestamp::from_secs(now)).try_enter(entries[0].1, units) {
            Ok(permit) => {
                let decision = permit.decision();
                self.1.push(permit.detach());
                seen(&decision)
            }
            Err(denied) => seen(&denied.decision()),
        }
    }

    fn commit(&mut self, _: u64, entries: Entries, hold: usize, _: u64) -> Option<bool> {
        Some(self.0.leave(entries[0].1, self.1[hold]))
    }
}

// G117, G118, G119, G120, G126, G127, G130
#[test]
fn library_decides_each_kind_alike() {
    for case in cases(cfg!(feature = "calendar")) {
        let stores: &[StoreKind] = match case.kind {
            Kind::Counts | Kind::Times => &[StoreKind::Keyed, StoreKind::Compact],
            Kind::OtherAlgorithm | Kind::Block | Kind::Classes | Kind::Calendar | Kind::CalendarClasses => {
                &[StoreKind::Keyed]
            }
            Kind::CompactBlock => &[StoreKind::Compact],
            // The library finds no rule for an address, and the layer's `PrefixLimits` has tests of its own.
            Kind::Ranges | Kind::Prefixes => &[],
            Kind::Distinct => {
                let window = FixedWindow::new(Quota::per_hour(2));
                let limiter = build(window, &ManualClock::default()).compact().unwrap();
                case.play(&mut Values(Distinct::new(limiter, 1_000).unwrap()), Between::Nothing);
                &[]
            }
            Kind::Holds => {
                let limiter = build(FixedWindow::new(TEN), &ManualClock::default()).keyed::<String>();
                let limiter = limiter.with_holds(10).unwrap();
                case.play(&mut Holds { limiter, ids: Vec::new() }, Between::Nothing);
                &[]
            }
            Kind::InProgress => {
                let limit = InProgress::new(2).life(Duration::from_secs(60)).clock(ManualClock::default());
                case.play(&mut Progress(limit, Vec::new()), Between::Nothing);
                &[]
            }
        };
        for &store in stores {
            for between in [Between::Nothing, Between::Load] {
                let builder = RateLimiter::any(limit(case.kind, case.limit)).clock(ManualClock::default());
                let Ok(limiter) = builder.build(store) else { continue };
                case.play(&mut Changing { limiter, kind: case.kind, rules: case.rules.to_owned() }, between);
            }
        }
    }
}
