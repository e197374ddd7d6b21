//! The `metrics` facade: handles that are registered once, descriptions, and figures that are published when scraped.

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, SharedString, Unit, with_recorder};

use super::clean::clean;
use super::event::Event;
#[cfg(feature = "redis")]
use super::gauges::{BREAKER_STATE, PARTITIONED, SERVER_EVICTS};
use super::gauges::{
    DEBT_DENIALS, ERROR, EVICTIONS, FALSE_DENIAL, FALSE_POSITIVE, KEYS, Reading, Readings, SLOTS,
};

static METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, None);

const REQUESTS: &str = "tollgate_requests_total";
const HITS: &str = "tollgate_hits_total";
const CHECK_DURATION: &str = "tollgate_check_duration_seconds";
const RELOADS: &str = "tollgate_reload_total";
const LAST_SUCCESS: &str = "tollgate_reload_last_success_timestamp_seconds";
const RULES: &str = "tollgate_rules";
#[cfg(feature = "rules")]
const UNMATCHED: &str = "tollgate_rules_unmatched";
const CONFIG_HASH: &str = "tollgate_config_hash";
#[cfg(feature = "tower")]
const WITHOUT_KEY: &str = "tollgate_requests_without_key_total";
#[cfg(feature = "redis")]
const SYNC_DURATION: &str = "tollgate_sync_duration_seconds";
#[cfg(feature = "redis")]
const SYNC_ERRORS: &str = "tollgate_sync_errors_total";
#[cfg(feature = "redis")]
const UNDECIDED: &str = "tollgate_failure_decisions_total";
const UNKNOWN_DOMAINS: &str = "tollgate_domain_not_found_total";

const fn mark(event: Event) -> &'static str {
    match event {
        Event::NearLimit => "tollgate_near_limit_total",
        Event::OverLimit => "tollgate_over_limit_total",
        _ => "tollgate_soft_limited_total",
    }
}

fn counter(name: &'static str, labels: Vec<Label>) -> Counter {
    let key = Key::from_parts(name, labels);
    with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
}

fn gauge(name: &'static str, labels: Vec<Label>) -> Gauge {
    let key = Key::from_parts(name, labels);
    with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
}

/// The value of a label. Shared by all metrics that have it.
fn value(name: &str) -> SharedString {
    SharedString::from(std::sync::Arc::<str>::from(&*clean(name)))
}

/// A rule's counters.
pub(super) struct Handles {
    /// In the order of [`Event::index`].
    events: [Counter; Event::DECISIONS.len() + Event::MARKS.len()],
    hits: Counter,
}

impl Handles {
    pub(super) fn register(domain: &str, rule: &str) -> Self {
        let (domain, rule) = (value(domain), value(rule));
        let labels = || rule_labels(&domain, &rule);
        let events = std::array::from_fn(|index| match Event::DECISIONS.get(index) {
            Some(event) => {
                let mut labels = labels();
                labels.push(Label::from_static_parts("decision", event.as_str()));
                counter(REQUESTS, labels)
            }
            None => counter(mark(Event::MARKS[index - Event::DECISIONS.len()]), labels()),
        });
        Self { events, hits: counter(HITS, labels()) }
    }

    #[inline]
    pub(super) fn record(&self, event: Event, hits: u64) {
        if event.is_decision() {
            self.events[event.index()].increment(1);
            self.hits.increment(hits);
        } else {
            self.events[event.index()].increment(hits);
        }
    }
}

/// The histogram of the checks of a domain.
pub(super) fn check_duration(domain: &str) -> Histogram {
    let key = Key::from_parts(CHECK_DURATION, vec![Label::new("domain", value(domain))]);
    with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
}

/// What is known of loads of rules.
pub(super) struct ReloadHandles {
    pub(super) success: Counter,
    pub(super) error: Counter,
    pub(super) last_success: Gauge,
    pub(super) rules: Gauge,
    pub(super) config_hash: Gauge,
    pub(super) unknown_domains: Counter,
}

impl Default for ReloadHandles {
    /// Registers them.
    fn default() -> Self {
        let result = |result| counter(RELOADS, vec![Label::from_static_parts("result", result)]);
        Self {
            success: result("success"),
            error: result("error"),
            last_success: gauge(LAST_SUCCESS, Vec::new()),
            rules: gauge(RULES, Vec::new()),
            config_hash: gauge(CONFIG_HASH, Vec::new()),
            unknown_domains: counter(UNKNOWN_DOMAINS, Vec::new()),
        }
    }
}

impl ReloadHandles {
    pub(super) fn loaded(&self, rules: u32, config_hash: u64, unix_seconds: f64) {
        self.success.increment(1);
        self.rules.set(rules);
        #[expect(clippy::cast_precision_loss, reason = "48 bits are exact")]
        self.config_hash.set(config_hash as f64);
        self.last_success.set(unix_seconds);
    }
}

/// Requests without a key, by what became of them.
#[cfg(feature = "tower")]
pub(crate) fn without_key(outcome: &'static str) -> Counter {
    counter(WITHOUT_KEY, vec![Label::from_static_parts("outcome", outcome)])
}

/// The server of a shared limiter.
#[cfg(feature = "redis")]
pub(crate) struct SharedHandles {
    duration: Histogram,
    /// In the order of the labels.
    errors: Box<[Counter]>,
    /// Open, closed, local.
    decided: [Counter; 3],
}

#[cfg(feature = "redis")]
impl SharedHandles {
    const DECIDED: [Event; 3] = [Event::ErrorOpen, Event::ErrorClosed, Event::ErrorLocal];

    /// `kinds`: the labels of errors.
    pub(crate) fn register(limiter: &str, kinds: &[&'static str]) -> Self {
        let name = value(limiter);
        let labels = |label: Option<(&'static str, &'static str)>| {
            let label = label.map(|(label, value)| Label::from_static_parts(label, value));
            std::iter::once(Label::new("limiter", name.clone())).chain(label).collect::<Vec<_>>()
        };
        let key = Key::from_parts(SYNC_DURATION, labels(None));
        Self {
            duration: with_recorder(|recorder| recorder.register_histogram(&key, &METADATA)),
            errors: kinds.iter().map(|kind| counter(SYNC_ERRORS, labels(Some(("kind", kind))))).collect(),
            decided: Self::DECIDED
                .map(|event| counter(UNDECIDED, labels(Some(("decision", event.as_str()))))),
        }
    }

    pub(crate) fn took(&self, duration: std::time::Duration) {
        self.duration.record(duration);
    }

    /// `index`: of the kind, in the order of all.
    pub(crate) fn error(&self, index: usize) {
        if let Some(errors) = self.errors.get(index) {
            errors.increment(1);
        }
    }

    pub(crate) fn decided(&self, event: Event) {
        for (decided, counter) in Self::DECIDED.iter().zip(&self.decided) {
            if *decided == event {
                counter.increment(1);
            }
        }
    }
}

/// Publishes a limiter's [`Readings`] under the label `limiter`. Call it when metrics are scraped, or now and then.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter, telemetry};
///
/// let limiter = RateLimiter::new(Quota::per_minute(60));
/// // In the handler of /metrics, before it renders:
/// telemetry::publish("per-ip", &limiter);
/// ```
pub fn publish(name: &str, limiter: &(impl Readings + ?Sized)) {
    let name = value(name);
    publish_readings(&limiter.readings(), || vec![Label::new("limiter", name.clone())]);
}

/// Publishes the readings of a rule's store.
#[cfg(feature = "rules")]
pub(crate) fn publish_rule(domain: &str, rule: &str, readings: &[Reading]) {
    let (domain, rule) = (value(domain), value(rule));
    publish_readings(readings, || rule_labels(&domain, &rule));
}

/// Publishes how many rules of a domain have applied to no request.
#[cfg(feature = "rules")]
pub(crate) fn publish_unmatched(domain: &str, rules: usize) {
    let domain = Label::new("domain", value(domain));
    gauge(UNMATCHED, vec![domain]).set(u32::try_from(rules).unwrap_or(u32::MAX));
}

fn rule_labels(domain: &SharedString, rule: &SharedString) -> Vec<Label> {
    vec![Label::new("domain", domain.clone()), Label::new("rule", rule.clone())]
}

fn publish_readings(readings: &[Reading], labels: impl Fn() -> Vec<Label>) {
    for &reading in readings {
        let (metric, value) = match reading {
            Reading::Gauge(metric, value) => (metric, value),
            // A counter of the facade never goes back, and this begins anew with the store.
            #[expect(clippy::cast_precision_loss, reason = "a gauge; exact below 2^53")]
            Reading::Counter(metric, value) => (metric, value as f64),
        };
        gauge(metric, labels()).set(value);
    }
}

/// Gives the recorder the units and descriptions of all of this crate's metrics. Call it once, after the recorder is installed.
pub fn describe() {
    let counters = [
        (REQUESTS, "Requests under a rule, by what became of them"),
        (HITS, "Units that requests under a rule asked for"),
        (mark(Event::NearLimit), "Units that went through above four fifths of the limit"),
        (mark(Event::OverLimit), "Units above the limit"),
        (mark(Event::SoftLimited), "Units that went through above the soft limit"),
        #[cfg(feature = "tower")]
        (WITHOUT_KEY, "Requests without a key to limit them by, by what became of them"),
        #[cfg(feature = "redis")]
        (SYNC_ERRORS, "Calls to the shared state that failed or were not sent, by kind"),
        #[cfg(feature = "redis")]
        (UNDECIDED, "Requests that were decided without the shared state, since it could not be asked"),
        (RELOADS, "Loads of rules, by result"),
        (UNKNOWN_DOMAINS, "Requests of a domain that there are no rules for"),
    ];
    let gauges = [
        (KEYS, Unit::Count, "Keys that are held"),
        (SLOTS, Unit::Count, "Keys for which there is room"),
        (
            EVICTIONS,
            Unit::Count,
            "Keys that owed and gave way to others for want of room, since the store was made",
        ),
        (
            DEBT_DENIALS,
            Unit::Count,
            "New keys that were denied for a debt that may not have been theirs, since the store was made",
        ),
        (FALSE_POSITIVE, Unit::Count, "Chance that a key's first request is taken for a later one"),
        (ERROR, Unit::Count, "Chance that a key is counted at least one unit more than it used"),
        (FALSE_DENIAL, Unit::Count, "Chance that a key is denied below half of its limit"),
        #[cfg(feature = "redis")]
        (PARTITIONED, Unit::Count, "1 while the shared state, or a part of it, is not asked after failures"),
        #[cfg(feature = "redis")]
        (
            BREAKER_STATE,
            Unit::Count,
            "0: the shared state is asked; 1: one request asks it; 2: it is not asked",
        ),
        #[cfg(feature = "redis")]
        (
            SERVER_EVICTS,
            Unit::Count,
            "1 if the server says that it evicts keys when its memory is full, and limits with them",
        ),
        (LAST_SUCCESS, Unit::Seconds, "When rules were last loaded, in Unix time"),
        (RULES, Unit::Count, "Rules in force"),
        #[cfg(feature = "rules")]
        (
            UNMATCHED,
            Unit::Count,
            "Rules that applied to no request since the last load, though their domain was asked",
        ),
        (CONFIG_HASH, Unit::Count, "A hash of the files of rules in force: other where the rules are"),
    ];
    with_recorder(|recorder| {
        for (name, text) in counters {
            recorder.describe_counter(name.into(), Some(Unit::Count), text.into());
        }
        for (name, unit, text) in gauges {
            recorder.describe_gauge(name.into(), Some(unit), text.into());
        }
        let text = "How long checks take, of a sample";
        recorder.describe_histogram(CHECK_DURATION.into(), Some(Unit::Seconds), text.into());
        #[cfg(feature = "redis")]
        {
            let text = "How long calls to the shared state take, answered or not";
            recorder.describe_histogram(SYNC_DURATION.into(), Some(Unit::Seconds), text.into());
        }
    });
}
