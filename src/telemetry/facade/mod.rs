//! The `metrics` facade: registered handles, descriptions, and gauges that are published when metrics are scraped.
//!
//! Only this module names the crate `metrics`. Without the feature, `no_facade` stands in for it.

mod clean;
mod sample;

use std::ptr;
use std::sync::Arc;

use metrics::{
    Counter, Gauge, Histogram, Key, Label, Level, Metadata, NoopRecorder, Recorder, SharedString, Unit,
    with_recorder,
};

use self::clean::clean;
pub(crate) use self::sample::SampleTimer;
use super::event::Event;
use super::gauges::{
    DEBT_DENIALS, ERROR, EVICTIONS, FALSE_DENIAL, FALSE_POSITIVE, KEYS, Reading, Readings, SLOTS,
};

static METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, None);

const REQUESTS: &str = "tollgate_requests_total";
const HITS: &str = "tollgate_hits_total";
const CHECK_DURATION: &str = "tollgate_check_duration_seconds";
const WITHOUT_KEY: &str = "tollgate_requests_without_key_total";

const fn mark(event: Event) -> &'static str {
    match event {
        Event::NearLimit => "tollgate_near_limit_total",
        Event::OverLimit => "tollgate_over_limit_total",
        Event::Blocked => "tollgate_blocked_total",
        _ => "tollgate_soft_limited_total",
    }
}

/// Registers a counter.
pub fn counter(name: &'static str, labels: Vec<Label>) -> Counter {
    let key = Key::from_parts(name, labels);
    with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
}

/// Registers a gauge.
pub fn gauge(name: &'static str, labels: Vec<Label>) -> Gauge {
    let key = Key::from_parts(name, labels);
    with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
}

/// Registers a histogram.
pub fn histogram(name: &'static str, labels: Vec<Label>) -> Histogram {
    let key = Key::from_parts(name, labels);
    with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
}

/// A label value. All metrics with this value share it.
pub fn value(name: &str) -> SharedString {
    SharedString::from(std::sync::Arc::<str>::from(&*clean(name)))
}

/// The counters of a rule. `None` if no recorder is installed: then each check would read them, and call them, for nothing.
#[derive(Clone)]
pub(super) struct RuleHandles(Option<Arc<RuleCounters>>);

// What an admitted request adds to comes first.
#[repr(C)]
struct RuleCounters {
    hits: Counter,
    /// The counters, in the order of [`Event::index`].
    events: [Counter; Event::DECISIONS.len() + Event::MARKS.len()],
}

/// Whether handles that are registered now reach a recorder. May be `true` although none is installed.
fn has_recorder() -> bool {
    with_recorder(|recorder| {
        // If none is installed, this is a `NoopRecorder`. The table of its functions tells: another recorder with the same functions
        // does nothing either. The compiler may make several copies of the table, so an unequal one proves nothing.
        let noop: *const dyn Recorder = ptr::from_ref(recorder).cast::<NoopRecorder>();
        !ptr::eq(recorder, noop)
    })
}

impl RuleHandles {
    pub(super) fn register(domain: &str, rule: &str) -> Self {
        if !has_recorder() {
            return Self(None);
        }
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
        Self(Some(Arc::new(RuleCounters { events, hits: counter(HITS, labels()) })))
    }

    #[inline]
    pub(super) fn record(&self, event: Event, hits: u64) {
        let Some(counters) = &self.0 else { return };
        let RuleCounters { hits: all_hits, events } = &**counters;
        if event.is_decision() {
            events[event.index()].increment(1);
            all_hits.increment(hits);
        } else {
            events[event.index()].increment(hits);
        }
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

/// Returns the labels of a rule.
pub fn rule_labels(domain: &SharedString, rule: &SharedString) -> Vec<Label> {
    vec![Label::new("domain", domain.clone()), Label::new("rule", rule.clone())]
}

/// Publishes readings, each as a gauge with these labels.
pub fn publish_readings(readings: &[Reading], labels: impl Fn() -> Vec<Label>) {
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

/// Registers the units and descriptions of all metrics of this module. Call it once, after the recorder is installed.
pub fn describe() {
    describe_counters(&[
        (REQUESTS, "Requests that a rule applies to, by outcome"),
        (HITS, "Units that requests asked for, by rule"),
        (mark(Event::NearLimit), "Admitted units above four fifths of the limit"),
        (mark(Event::OverLimit), "Units above the limit"),
        (mark(Event::SoftLimited), "Admitted units above the soft limit"),
        (mark(Event::Blocked), "Units denied because their key is blocked"),
        (WITHOUT_KEY, "Requests in which a layer found no key, by outcome"),
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
    ]);
    describe_duration(CHECK_DURATION, "The duration of a sample of checks");
}

/// Describes counters, each with its text.
pub fn describe_counters(counters: &[(&'static str, &'static str)]) {
    for &(name, text) in counters {
        with_recorder(|recorder| recorder.describe_counter(name.into(), Some(Unit::Count), text.into()));
    }
}

/// Describes gauges, each with its text.
pub fn describe_gauges(gauges: &[(&'static str, &'static str)]) {
    for &(name, text) in gauges {
        with_recorder(|recorder| recorder.describe_gauge(name.into(), Some(Unit::Count), text.into()));
    }
}

/// Describes a histogram of durations.
pub fn describe_duration(name: &'static str, text: &'static str) {
    with_recorder(|recorder| recorder.describe_histogram(name.into(), Some(Unit::Seconds), text.into()));
}
