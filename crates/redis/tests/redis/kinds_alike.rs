//! Limits that processes share decide each kind of limit as the library and rules do. Two processes take turns, and all
//! state is on a model of a server, or on a server.
//!
//! `holds` compares shared holds with a list of holds.

use tollgate::Timestamp;
use tollgate_redis::{AtomicLimiter, Blocking, Limit, SharedDecision};

use crate::alike::{ALL, Entries, Kind, Seen, Surface, cases};
use crate::alike_limits::{class, limit};
use crate::hosts::on_each;

fn seen(answer: &SharedDecision) -> Seen {
    let decision = answer.decision();
    Seen {
        is_allowed: answer.is_allowed(),
        left: Some(decision.remaining()),
        wait: Some(answer.retry_after().map_or(u64::MAX, |wait| wait.as_secs())),
        is_block: Some(decision.is_block()),
    }
}

/// The limiters of two processes. A load or a restart makes them again.
struct Atomic<'m> {
    make: &'m dyn Fn(Limit) -> Blocking<AtomicLimiter>,
    kind: Kind,
    /// The limit and the descriptors that were loaded last.
    loaded: (String, String),
    processes: [Blocking<AtomicLimiter>; 2],
}

impl Surface for Atomic<'_> {
    fn ask(&mut self, now: u64, entries: Entries, units: u64) -> Seen {
        self.processes.rotate_left(1);
        let (limiter, at) = (&self.processes[0], Timestamp::from_secs(now));
        seen(&match class(&self.loaded.1, entries) {
            Some(class) => limiter.block_on(|limiter| {
                let limiter = limiter.class(class).unwrap();
                async move { limiter.at(at).check_n("all", units).await }
            }),
            None => limiter.block_on(|limiter| limiter.at(at).check_n(entries[0].1, units)),
        })
    }

    fn load(&mut self, text: &str, rules: &str) -> bool {
        let is_same = self.loaded.0 == text;
        self.loaded = (text.to_owned(), rules.to_owned());
        self.restart();
        // The times of a rate are not those of another rate, and other algorithms have counts of their own.
        is_same || !matches!(self.kind, Kind::Times | Kind::OtherAlgorithm)
    }

    fn restart(&mut self) {
        self.processes = [(); 2].map(|()| (self.make)(limit(self.kind, &self.loaded.0)));
    }
}

// G126, G132, G133
#[test]
fn shared_limits_decide_each_kind_alike() {
    use Kind::{Block, Calendar, CalendarClasses, Classes, Counts, OtherAlgorithm, Times};
    let shared = [Block, Calendar, CalendarClasses, Classes, Counts, OtherAlgorithm, Times];
    on_each(|host| {
        for (case, number) in cases(cfg!(feature = "calendar")).zip(0..) {
            if !shared.contains(&case.kind) {
                continue;
            }
            for between in ALL {
                let make = |limit| host.named(&format!("{number}-{between:?}"), &[limit]);
                let processes = [(); 2].map(|()| make(limit(case.kind, case.limit)));
                let loaded = (case.limit.to_owned(), case.rules.to_owned());
                case.play(&mut Atomic { make: &make, kind: case.kind, loaded, processes }, between);
            }
        }
    });
}
