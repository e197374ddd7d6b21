//! The `metrics` facade: the metrics of loads, and the gauges of rules.
//!
//! Only this module names the crate `metrics`. Without the feature, `no_facade` stands in for it.

use metrics::{Counter, Gauge, Label, Unit, with_recorder};
use tollgate::internals::facade::{
    counter, describe_counters, describe_gauges, gauge, publish_readings, rule_labels, value,
};
use tollgate::telemetry::Reading;

const RELOADS: &str = "tollgate_reload_total";
const LAST_SUCCESS: &str = "tollgate_reload_last_success_timestamp_seconds";
const RULES: &str = "tollgate_rules";
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
const UNKNOWN_DOMAINS: &str = "tollgate_domain_not_found_total";
const REMOVED_DOMAINS: &str = "tollgate_domains_removed_total";

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

/// Publishes the readings of a rule's store.
pub(crate) fn publish_rule(domain: &str, rule: &str, readings: &[Reading]) {
    let (domain, rule) = (value(domain), value(rule));
    publish_readings(readings, || rule_labels(&domain, &rule));
}

/// Publishes how many rules of a domain matched no request.
pub(crate) fn publish_unmatched(domain: &str, rules: usize) {
    let domain = Label::new("domain", value(domain));
    gauge(UNMATCHED, vec![domain]).set(u32::try_from(rules).unwrap_or(u32::MAX));
}

/// Registers the units and descriptions of the metrics of rules. Call it once, after the recorder is installed, beside
/// [`tollgate::telemetry::describe`].
pub fn describe() {
    describe_counters(&[
        (RELOADS, "Loads of rules, by result"),
        (UNKNOWN_DOMAINS, "Requests with a domain that has no rules"),
        (REMOVED_DOMAINS, "Domains that loads of rules have removed"),
    ]);
    describe_gauges(&[
        (RULES, "Rules in force"),
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
}
