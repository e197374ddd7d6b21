//! Rules decide requests: the samples in Envoy's language row by row, and Tollgate's additions.

mod alike;
mod blocks;
#[cfg(feature = "calendar")]
mod calendars;
mod charging;
mod classes;
mod count_denials;
mod distinct;
mod envoy;
mod explain;
mod gateway;
mod holds;
mod in_use;
mod late_charges;
mod load_errors;
mod load_report;
mod long_keys;
mod modes;
mod operate;
mod prefixes;
mod refund_n;
mod reload;
mod report;
mod samples;
mod together;
mod unmatched;

use std::time::Duration;

use tollgate::{ManualClock, Timestamp};
use tollgate_rules::{Answer, Charging, Descriptor, Rules, RulesError};

pub(crate) use crate::files::{config, file};

/// Rules with a manual clock, which starts at the beginning of an hour.
pub(crate) struct Scene {
    pub(crate) rules: Rules<ManualClock>,
    pub(crate) clock: ManualClock,
    domain: String,
}

pub(crate) const START: Timestamp = Timestamp::from_secs(3_600 * 500_000);

/// Returns a file with `tollgate: {}` and one rule.
pub(crate) fn one(limit: &str) -> String {
    format!("{{ domain: d, tollgate: {{}}, descriptors: [ {{ key: a, rate_limit: {limit} }} ] }}")
}

impl Scene {
    pub(crate) fn new(text: &str) -> Self {
        Self::try_new(text, None).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The rules of a [`file`] with these descriptors.
    pub(crate) fn of(descriptors: &[&str]) -> Self {
        Self::new(&file(descriptors))
    }

    /// Counts before it decides, as Envoy's service does.
    pub(crate) fn counting_first(text: &str) -> Self {
        Self::try_new(text, Some(Charging::CountFirst)).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_new(text: &str, charging: Option<Charging>) -> Result<Self, RulesError> {
        let clock = ManualClock::new(START);
        let config = config(text);
        let domain = config.domain().to_owned();
        let mut builder = Rules::builder().clock(clock.clone());
        if let Some(charging) = charging {
            builder = builder.charging(charging);
        }
        Ok(Self { rules: builder.load([config])?, clock, domain })
    }

    pub(crate) fn ask(&self, entries: &[(&str, &str)]) -> Answer {
        self.ask_n(entries, 1)
    }

    pub(crate) fn ask_n(&self, entries: &[(&str, &str)], hits: u64) -> Answer {
        self.rules.check_n(&self.domain, &[Descriptor::new(entries)], hits)
    }

    pub(crate) fn ask_both(&self, one: &[(&str, &str)], other: &[(&str, &str)]) -> Answer {
        self.rules.check(&self.domain, &[Descriptor::new(one), Descriptor::new(other)])
    }

    /// Sends `times` equal requests and returns how many are admitted.
    pub(crate) fn admitted(&self, entries: &[(&str, &str)], times: usize) -> usize {
        (0..times).filter(|_| self.ask(entries).is_allowed()).count()
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn reload(&self, text: &str) {
        self.rules.replace([config(text)]).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
}

/// Returns the units that remain for a request's only descriptor. This does not charge anything.
pub(crate) fn left(scene: &Scene, entries: &[(&str, &str)]) -> u32 {
    scene.ask_n(entries, 0).remaining(0)
}

/// The codes of Envoy's service, as `is_denied` and `is_over_limit` return them.
pub(crate) const OK: bool = false;
pub(crate) const OVER: bool = true;

/// A request is admitted if its domain has no rules, or if it has no descriptors.
#[test]
fn request_without_rules_is_admitted() {
    let scene = Scene::new(
        "{ domain: edge, descriptors: [ { key: a, rate_limit: { unit: second, requests_per_unit: 0 } } ] }",
    );
    let nope = scene.rules.check("nope", &[Descriptor::new(&[("a", "b")])]);
    assert!(nope.is_allowed() && !nope.has_domain() && nope.limits().count() == 0);
    assert_eq!((nope.is_over_limit(0), nope.remaining(0)), (OK, 0));
    let none = scene.rules.check("edge", &[]);
    assert!(none.is_allowed() && none.has_domain());
    let empty = scene.rules.check("edge", &[Descriptor::new(&[])]);
    assert!(empty.is_allowed() && empty.limits().count() == 0);
    assert!(scene.ask(&[("a", "b")]).is_never());
    assert_eq!(scene.ask(&[("a", "b")]).retry_after(), None, "a limit of 0 reports no wait");
}
