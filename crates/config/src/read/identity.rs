//! The identity of a rule, and the name of its metrics.
//!
//! ```text
//! identity = domain { "|" key [ "=" value | "==" range ] } [ "#tier=" name ] [ limit ]
//! limit    = "#name=" name | "#unit=" unit | "#prefix=" prefix
//! ```
//! The range is the first one of the descriptor, so the rule stays the same when others are added or removed.
//!
//! A backslash precedes each `|`, `=`, `#` and backslash in a key, a value or a name, so two different paths never have
//! the same text.

use std::sync::Arc;

use ipnet::IpNet;

use crate::rule::{Metric, Rule};

/// Appends a text with its separators escaped.
fn escape(into: &mut String, text: &str) {
    for c in text.chars() {
        if matches!(c, '|' | '=' | '#' | '\\') {
            into.push('\\');
        }
        into.push(c);
    }
}

/// One level of the path to a rule.
#[derive(Clone, Debug)]
pub(super) struct PathLevel {
    /// The key, with the value if the file has one.
    metric: Arc<str>,
    /// Whether values that match have separate counters.
    counted: bool,
    /// Whether keys that match have separate counters, whatever their values are.
    counted_by_key: bool,
    /// Whether the metrics' name contains the request's value.
    with_value: bool,
    /// Whether the metrics' name contains the pattern, whatever the other settings are.
    shared: bool,
    /// The length of the identity before this level.
    before: usize,
}

/// The path to a rule.
#[derive(Debug)]
pub(super) struct RulePath {
    identity: String,
    steps: Vec<PathLevel>,
}

/// How one level of the path counts, and what its name is.
#[derive(Copy, Clone, Debug)]
pub(super) struct LevelFlags {
    pub(super) wildcard: bool,
    pub(super) share_threshold: bool,
    pub(super) value_to_metric: bool,
}

impl RulePath {
    pub(super) fn new(domain: &str) -> Self {
        let mut identity = String::new();
        escape(&mut identity, domain);
        Self { identity, steps: Vec::new() }
    }

    pub(super) fn push(&mut self, key: &str, value: Option<&str>, range: Option<&IpNet>, flags: LevelFlags) {
        let before = self.identity.len();
        self.identity.push('|');
        escape(&mut self.identity, key);
        if let Some(value) = value {
            self.identity.push('=');
            escape(&mut self.identity, value);
        }
        let range = range.map(IpNet::to_string);
        if let Some(range) = &range {
            self.identity.push_str("==");
            self.identity.push_str(range);
        }
        let several = value.is_none() || flags.wildcard;
        self.steps.push(PathLevel {
            metric: value
                .or(range.as_deref())
                .map_or_else(|| key.into(), |value| format!("{key}_{value}").into()),
            counted: several && !flags.share_threshold,
            counted_by_key: flags.share_threshold && key.contains('*'),
            with_value: several && flags.value_to_metric && !flags.share_threshold,
            shared: flags.share_threshold,
            before,
        });
    }

    pub(super) fn pop(&mut self) {
        if let Some(step) = self.steps.pop() {
            self.identity.truncate(step.before);
        }
    }

    pub(super) fn levels(&self) -> usize {
        self.steps.len()
    }

    /// Returns the levels with a property; the first level is the lowest bit.
    fn bits(&self, holds: impl Fn(&PathLevel) -> bool) -> u32 {
        let levels = (0..u32::BITS).zip(&self.steps);
        levels.fold(0, |bits, (at, step)| bits | u32::from(holds(step)) << at)
    }

    pub(super) fn counted_by(&self) -> u32 {
        self.bits(|step| step.counted)
    }

    /// Returns the bit of the last level.
    pub(super) fn last_bit(&self) -> u32 {
        let last = self.steps.len().saturating_sub(1);
        u32::try_from(last).ok().and_then(|last| 1_u32.checked_shl(last)).unwrap_or(0)
    }

    /// Whether requests of different keys or values share a counter.
    pub(super) fn shares(&self) -> bool {
        self.steps.iter().any(|step| step.shared)
    }

    pub(super) fn counted_by_key(&self) -> u32 {
        self.bits(|step| step.counted_by_key)
    }

    pub(super) fn metric(&self, detailed: bool, tier: Option<&str>, label: Option<&LimitLabel>) -> Metric {
        let mut levels: Vec<Arc<str>> = self.steps.iter().map(|step| step.metric.clone()).collect();
        levels.extend(tier.map(|tier| format!("tier_{tier}").into()));
        levels.extend(label.map(|label| Arc::from(&*label.text)));
        let with_value = self.bits(|step| if detailed { !step.shared } else { step.with_value });
        let with_empty_value = detailed && !self.steps.iter().any(|step| step.shared);
        Metric { levels, with_value, with_empty_value }
    }

    pub(super) fn identity(&self, tier: Option<&str>, label: Option<&LimitLabel>) -> Box<str> {
        let mut identity = self.identity.clone();
        if let Some(tier) = tier {
            identity.push_str("#tier=");
            escape(&mut identity, tier);
        }
        if let Some(LimitLabel { kind, text }) = label {
            identity.extend(["#", kind, "="]);
            escape(&mut identity, text);
        }
        identity.into()
    }
}

/// Identifies a limit among the limits of one descriptor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct LimitLabel {
    /// `name`, `unit` or `prefix`.
    pub(super) kind: &'static str,
    /// The name, the unit, or the kind of addresses and the length of the prefix.
    pub(super) text: Box<str>,
}

impl Rule {
    /// Returns the keys that lead to the rule, each with its value if the file has one, or with the first of its ranges.
    ///
    /// # Examples
    /// ```
    /// use tollgate_config::Config;
    ///
    /// let config = Config::from_yaml("limits.yaml", "
    /// domain: edge
    /// descriptors:
    ///   - key: path
    ///     value: /login
    ///     descriptors:
    ///       - key: remote_address
    ///         rate_limit: { unit: minute, requests_per_unit: 5 }
    /// ")?;
    /// let path = config.rules()[0].path();
    /// assert_eq!(path, [("path".into(), Some("/login".into())), ("remote_address".into(), None)]);
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> Vec<(String, Option<String>)> {
        let mut path: Vec<(String, Option<String>)> = Vec::new();
        for (separator, text) in split(&self.identity).into_iter().skip(1) {
            match separator {
                '|' => path.push((text, None)),
                '=' => path.last_mut().into_iter().for_each(|(_, value)| *value = Some(text.clone())),
                _ => break,
            }
        }
        path
    }

    /// Returns the tier that the rule belongs to.
    #[must_use]
    pub fn tier(&self) -> Option<String> {
        let mut parts = split(&self.identity).into_iter().skip_while(|(separator, _)| *separator != '#');
        parts.next().filter(|(_, text)| text == "tier").and_then(|_| parts.next()).map(|(_, tier)| tier)
    }
}

/// Splits an identity at its separators, and returns each part with the separator before it. The first part is the
/// domain. This is the inverse of [`RulePath::identity`].
fn split(identity: &str) -> Vec<(char, String)> {
    let mut parts = vec![('|', String::new())];
    let mut chars = identity.chars();
    while let Some(c) = chars.next() {
        match (c, parts.last_mut()) {
            ('|' | '=' | '#', _) => parts.push((c, String::new())),
            ('\\', Some((_, text))) => text.extend(chars.next()),
            (c, last) => last.into_iter().for_each(|(_, text)| text.push(c)),
        }
    }
    parts
}
