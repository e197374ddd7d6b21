//! Rules as a surface of `alike`: the rules of one process, which other surfaces ask, too.

use std::sync::Arc;
use std::time::Duration;

use tollgate::holds::HoldId;
use tollgate::{ManualClock, Timestamp};
use tollgate_rules::{Answer, Applied, Config, Descriptor, Rules, RulesBuilder, RulesSnapshot};

use crate::alike::{Case, Entries, Seen, Surface, text};

pub(crate) struct Process {
    pub(crate) rules: Arc<Rules<ManualClock>>,
    settings: &'static str,
    descriptors: String,
    builder: Box<dyn Fn() -> RulesBuilder<ManualClock>>,
    clock: ManualClock,
    holds: Vec<HoldId>,
}

pub(crate) fn config(rules: &str, settings: &str) -> Config {
    Config::from_yaml("alike.yaml", &text(rules, settings)).unwrap_or_else(|error| panic!("{error}\n{rules}"))
}

impl Process {
    /// Starts a process with the rules of a case, and with what `build` adds.
    pub(crate) fn new(
        case: &Case,
        settings: &'static str,
        clock: ManualClock,
        build: impl Fn(RulesBuilder<ManualClock>) -> RulesBuilder<ManualClock> + 'static,
    ) -> Self {
        let of_builder = clock.clone();
        let builder = Box::new(move || build(Rules::builder().clock(of_builder.clone())));
        let rules = Arc::new(builder().load([config(case.rules, settings)]).unwrap());
        Self { rules, settings, descriptors: case.rules.to_owned(), builder, clock, holds: Vec::new() }
    }

    /// Returns the rules at a time in seconds.
    pub(crate) fn at(&self, now: u64) -> &Arc<Rules<ManualClock>> {
        self.clock.set(Timestamp::from_secs(now));
        &self.rules
    }
}

fn seen(answer: &Answer) -> Seen {
    let blocks = |limit: Applied<'_>| limit.decision().is_some_and(|decision| decision.is_block());
    Seen {
        is_allowed: answer.is_allowed(),
        left: Some(answer.remaining(0).into()),
        wait: Some(answer.retry_after().map_or(u64::MAX, |wait| wait.as_secs())),
        is_block: Some(answer.limits().any(blocks)),
    }
}

impl Surface for Process {
    fn ask(&mut self, now: u64, entries: Entries, units: u64) -> Seen {
        seen(&self.at(now).check_n("alike", &[Descriptor::new(entries)], units))
    }

    fn load(&mut self, _: &str, rules: &str) -> bool {
        rules.clone_into(&mut self.descriptors);
        self.rules.replace([config(rules, self.settings)]).unwrap();
        true
    }

    fn restart(&mut self) {
        let mut bytes = Vec::new();
        self.rules.snapshot(&mut bytes).unwrap();
        let next = (self.builder)().restore(RulesSnapshot::read(bytes).unwrap());
        self.rules = Arc::new(next.load([config(&self.descriptors, self.settings)]).unwrap());
    }

    fn hold(&mut self, now: u64, entries: Entries, units: u64, life: u64) -> Seen {
        let life = Duration::from_secs(life);
        let (answer, id) = self.at(now).hold("alike", &[Descriptor::new(entries)], units, life);
        self.holds.extend(id);
        seen(&answer)
    }

    fn commit(&mut self, now: u64, entries: Entries, hold: usize, used: u64) -> Option<bool> {
        Some(self.at(now).commit("alike", &[Descriptor::new(entries)], self.holds[hold], used))
    }
}
