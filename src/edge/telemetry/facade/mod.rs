//! The `metrics` facade: registered handles, descriptions, and gauges that are published when metrics are scraped.
//!
//! Only this module names the crate `metrics`. Without the feature, `no_facade` stands in for it.

mod clean;
mod sample;
#[cfg(feature = "redis")]
mod shared;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, SharedString, Unit, with_recorder};

use self::clean::clean;
pub(crate) use self::sample::SampleTimer;
#[cfg(feature = "redis")]
pub(crate) use self::shared::{SharedHandles, count_refused_credentials};
#[cfg(feature = "redis")]
pub use self::shared::{publish_regions, publish_servers};
use super::event::Event;
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
#[cfg(feature = "watch")]
const VERSION: &str = "tollgate_rules_version";
#[cfg(feature = "watch")]
const VERSION_TIME: &str = "tollgate_rules_version_timestamp_seconds";
#[cfg(feature = "watch")]
const SOURCE_ANSWER: &str = "tollgate_rules_source_answer_timestamp_seconds";
#[cfg(feature = "watch")]
const SOURCE_FAILS: &str = "tollgate_rules_source_fails";
const WITHOUT_KEY: &str = "tollgate_requests_without_key_total";
const UNKNOWN_DOMAINS: &str = "tollgate_domain_not_found_total";
const REMOVED_DOMAINS: &str = "tollgate_domains_removed_total";

const fn mark(event: Event) -> &'static str {
    match event {
        Event::NearLimit => "tollgate_near_limit_total",
        Event::OverLimit => "tollgate_over_limit_total",
        Event::Blocked => "tollgate_blocked_total",
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

fn histogram(name: &'static str, labels: Vec<Label>) -> Histogram {
    let key = Key::from_parts(name, labels);
    with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
}

/// A label value. All metrics with this value share it.
fn value(name: &str) -> SharedString {
    SharedString::from(std::sync::Arc::<str>::from(&*clean(name)))
}

/// The counters of a rule.
pub(super) struct RuleHandles {
    /// The counters, in the order of [`Event::index`].
    events: [Counter; Event::DECISIONS.len() + Event::MARKS.len()],
    hits: Counter,
}

impl RuleHandles {
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

/// The metrics about loads of rules.
pub(super) struct ReloadHandles {
    success: Counter,
    error: Counter,
    last_success: Gauge,
    rules: Gauge,
    config_hash: Gauge,
    unknown_domains: Counter,
    removed_domains: Counter,
    /// Registered on first use, because few rules follow a source.
    #[cfg(feature = "watch")]
    source: std::sync::OnceLock<SourceHandles>,
}

/// The metrics about a source of rules.
#[cfg(feature = "watch")]
struct SourceHandles {
    version: Gauge,
    version_time: Gauge,
    answer: Gauge,
    fails: Gauge,
}

impl Default for ReloadHandles {
    /// Registers the metrics.
    fn default() -> Self {
        let result = |result| counter(RELOADS, vec![Label::from_static_parts("result", result)]);
        Self {
            success: result("success"),
            error: result("error"),
            last_success: gauge(LAST_SUCCESS, Vec::new()),
            rules: gauge(RULES, Vec::new()),
            config_hash: gauge(CONFIG_HASH, Vec::new()),
            unknown_domains: counter(UNKNOWN_DOMAINS, Vec::new()),
            removed_domains: counter(REMOVED_DOMAINS, Vec::new()),
            #[cfg(feature = "watch")]
            source: std::sync::OnceLock::new(),
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

    pub(super) fn failed(&self) {
        self.error.increment(1);
    }

    pub(super) fn unknown_domain(&self) {
        self.unknown_domains.increment(1);
    }

    pub(super) fn removed_domain(&self) {
        self.removed_domains.increment(1);
    }

    #[cfg(feature = "watch")]
    pub(super) fn version(&self, version: u64, unix_seconds: f64) {
        let source = self.source();
        #[expect(clippy::cast_precision_loss, reason = "no source reaches 2^53 versions")]
        source.version.set(version as f64);
        source.version_time.set(unix_seconds);
    }

    #[cfg(feature = "watch")]
    pub(super) fn polled(&self, answer_unix_seconds: f64, fails: bool) {
        let source = self.source();
        source.answer.set(answer_unix_seconds);
        source.fails.set(u32::from(fails));
    }

    #[cfg(feature = "watch")]
    fn source(&self) -> &SourceHandles {
        self.source.get_or_init(|| SourceHandles {
            version: gauge(VERSION, Vec::new()),
            version_time: gauge(VERSION_TIME, Vec::new()),
            answer: gauge(SOURCE_ANSWER, Vec::new()),
            fails: gauge(SOURCE_FAILS, Vec::new()),
        })
    }
}

/// The counters of requests without a key, by outcome.
pub(super) struct KeylessHandles([Counter; 3]);

impl KeylessHandles {
    pub(super) fn register(outcomes: [&'static str; 3]) -> Self {
        Self(outcomes.map(|outcome| counter(WITHOUT_KEY, vec![Label::from_static_parts("outcome", outcome)])))
    }

    /// Counts a request. `outcome` is the position of its outcome in [`KeylessHandles::register`].
    pub(super) fn record(&self, outcome: usize) {
        self.0[outcome].increment(1);
    }
}

/// Publishes a limiter's [`Readings`] under the label `limiter`. Call it when metrics are scraped, or at regular
/// intervals.
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

/// Publishes how many rules of a domain matched no request.
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
            // A counter of the facade never decreases, but this count restarts at zero with a new store.
            #[expect(clippy::cast_precision_loss, reason = "a gauge; exact below 2^53")]
            Reading::Counter(metric, value) => (metric, value as f64),
        };
        gauge(metric, labels()).set(value);
    }
}

/// Registers the units and descriptions of all metrics of this crate. Call it once, after the recorder is installed.
pub fn describe() {
    #[cfg(feature = "redis")]
    shared::describe();
    describe_counters(&[
        (REQUESTS, "Requests that a rule applies to, by outcome"),
        (HITS, "Units that requests asked for, by rule"),
        (mark(Event::NearLimit), "Admitted units above four fifths of the limit"),
        (mark(Event::OverLimit), "Units above the limit"),
        (mark(Event::SoftLimited), "Admitted units above the soft limit"),
        (mark(Event::Blocked), "Units denied because their key is blocked"),
        (WITHOUT_KEY, "Requests in which a layer found no key, by outcome"),
        (RELOADS, "Loads of rules, by result"),
        (UNKNOWN_DOMAINS, "Requests with a domain that has no rules"),
        (REMOVED_DOMAINS, "Domains that loads of rules have removed"),
    ]);
    describe_gauges(&[
        (KEYS, "Stored keys"),
        (SLOTS, "The largest number of keys that the store can hold"),
        (EVICTIONS, "Keys with debt that were evicted since the store was created"),
        (
            DEBT_DENIALS,
            "New keys that were denied for a debt that may belong to other keys, since the store was created",
        ),
        (FALSE_POSITIVE, "Probability that the first request of a new key counts as a repeated request"),
        (ERROR, "Probability that the count of a key is at least one unit too high"),
        (FALSE_DENIAL, "Probability that a key is denied although it used less than half of its limit"),
        (RULES, "Rules in force"),
        #[cfg(feature = "rules")]
        (UNMATCHED, "Rules that matched no request since the last load, in a domain that had requests"),
        (CONFIG_HASH, "A hash of the rule files in force: equal in processes with the same rules"),
        #[cfg(feature = "watch")]
        (VERSION, "The version of the rules in force, from a source with numbers"),
        #[cfg(feature = "watch")]
        (SOURCE_FAILS, "1 while the source of rules does not answer, or has rules that cannot be used"),
    ]);
    with_recorder(|recorder| {
        let text = "The Unix time of the last successful load of rules";
        recorder.describe_gauge(LAST_SUCCESS.into(), Some(Unit::Seconds), text.into());
        #[cfg(feature = "watch")]
        for (name, text) in [
            (VERSION_TIME, "The Unix time when the version in force was written"),
            (SOURCE_ANSWER, "The Unix time of the last answer of the source of rules"),
        ] {
            recorder.describe_gauge(name.into(), Some(Unit::Seconds), text.into());
        }
    });
    describe_duration(CHECK_DURATION, "The duration of a sample of checks");
}

fn describe_counters(counters: &[(&'static str, &'static str)]) {
    for &(name, text) in counters {
        with_recorder(|recorder| recorder.describe_counter(name.into(), Some(Unit::Count), text.into()));
    }
}

fn describe_gauges(gauges: &[(&'static str, &'static str)]) {
    for &(name, text) in gauges {
        with_recorder(|recorder| recorder.describe_gauge(name.into(), Some(Unit::Count), text.into()));
    }
}

fn describe_duration(name: &'static str, text: &'static str) {
    with_recorder(|recorder| recorder.describe_histogram(name.into(), Some(Unit::Seconds), text.into()));
}
