//! What a request says of itself.

use std::fmt::Write as _;

use super::live::Active;
use super::spec::{Rule, Unit};

/// What one request says of itself to be matched with rules: a list of keys and values, in order. A request has one or more.
///
/// # Examples
/// ```
/// use tollgate::rules::Descriptor;
///
/// let entries = [("path", "/login"), ("remote_address", "203.0.113.7")];
/// let descriptor = Descriptor::new(&entries).hits(2).tier("premium");
/// assert_eq!(descriptor.entries().len(), 2);
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Descriptor<'a> {
    entries: &'a [(&'a str, &'a str)],
    hits: Option<u64>,
    tier: Option<&'a str>,
    limit: Option<(u32, Unit)>,
}

impl<'a> Descriptor<'a> {
    /// A descriptor of these keys and values.
    #[must_use]
    pub const fn new(entries: &'a [(&'a str, &'a str)]) -> Self {
        Self { entries, hits: None, tier: None, limit: None }
    }

    /// What the request costs under the limits of this descriptor; 0 only looks. Default: what the request costs, which is 1
    /// unless [said otherwise](super::Rules::check_n).
    #[must_use]
    pub const fn hits(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }

    /// The client's tier: a rule that has limits of its own for it applies those.
    #[must_use]
    pub const fn tier(mut self, tier: &'a str) -> Self {
        self.tier = Some(tier);
        self
    }

    /// A limit of the request's own, which comes before those of the rules: so many a unit, counted for these keys and values
    /// in windows that are aligned to the Unix epoch, as Envoy's service does. The [domain](super::Rules::check) must have rules all
    /// the same.
    ///
    /// Requests of the same keys, values and unit share a counter, whatever limits they say. The last hundred thousand such are
    /// kept for each unit. The file's rule for these keys and values counts together with them if it is a `fixed-window` of this unit
    /// that this process counts by all values; see [the guide](crate::guide::rules).
    #[must_use]
    pub const fn limit(mut self, requests: u32, unit: Unit) -> Self {
        self.limit = Some((requests, unit));
        self
    }

    pub(super) const fn own_limit(&self) -> Option<(u32, Unit)> {
        self.limit
    }

    /// The keys and values.
    #[must_use]
    pub const fn entries(&self) -> &'a [(&'a str, &'a str)] {
        self.entries
    }

    pub(super) fn cost(&self, default: u64) -> u64 {
        self.hits.unwrap_or(default)
    }

    pub(super) const fn tier_name(&self) -> Option<&'a str> {
        self.tier
    }
}

/// What a rule counts a request by: the values of some entries.
#[derive(Clone, Debug)]
pub(super) enum Key<'a> {
    /// One value, or none.
    Whole(&'a str),
    /// Several, each after its length.
    Joined(String),
}

impl<'a> Key<'a> {
    /// What a request is counted by under a rule of a domain, or by the limit that it brings along.
    pub(super) fn of(domain: &str, descriptor: &Descriptor<'a>, active: &Active) -> Self {
        match descriptor.own_limit() {
            Some(_) => Self::of_request(domain, descriptor),
            None => Self::of_rule(descriptor, active),
        }
    }

    /// What a request is counted by under a rule.
    pub(super) fn of_rule(descriptor: &Descriptor<'a>, active: &Active) -> Self {
        let Rule { counted_by, counted_by_key, .. } = active.rule;
        Self::new(descriptor.entries(), [counted_by, counted_by_key], active.keys_vary)
    }

    /// The values of the entries of which a bit is set in the first mask, and their keys too where those vary; of those in the second the
    /// keys alone.
    fn new(
        entries: &'a [(&'a str, &'a str)],
        [counted_by, counted_by_key]: [u32; 2],
        keys_vary: bool,
    ) -> Self {
        let is_set = |mask: u32, bit: u32| mask >> bit & 1 == 1;
        let counted =
            || (0..u32::BITS).zip(entries).filter(move |(bit, _)| is_set(counted_by | counted_by_key, *bit));
        match (counted_by | counted_by_key).count_ones() {
            0 => Self::Whole(""),
            1 if !keys_vary => Self::Whole(counted().next().map_or("", |(_, (_, value))| value)),
            _ => {
                // Lengths take three digits at most, nearly always.
                let of = |text: &str| text.len() + 4;
                let length =
                    counted().map(|(_, (key, value))| of(value) + if keys_vary { of(key) } else { 0 }).sum();
                let mut joined = String::with_capacity(length);
                for (bit, (key, value)) in counted() {
                    if keys_vary {
                        push(&mut joined, key);
                    }
                    if is_set(counted_by, bit) {
                        push(&mut joined, value);
                    }
                }
                Self::Joined(joined)
            }
        }
    }

    /// What a request is counted by under the limit that it brings along: the domain, with the keys and values of all entries.
    pub(super) fn of_request(domain: &str, descriptor: &Descriptor<'_>) -> Self {
        let mut joined = String::new();
        push(&mut joined, domain);
        for (key, value) in descriptor.entries() {
            push(&mut joined, key);
            push(&mut joined, value);
        }
        Self::Joined(joined)
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Whole(value) => value,
            Self::Joined(joined) => joined,
        }
    }
}

/// A text after its length, which tells ("a", "bc") from ("ab", "c").
fn push(joined: &mut String, text: &str) {
    // Writing to a text does not fail.
    let _ = write!(joined, "{}:{text}", text.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(entries: &[(&str, &str)], counted_by: u32) -> String {
        Key::new(entries, [counted_by, 0], false).as_str().to_owned()
    }

    #[test]
    fn values_are_joined_so_that_no_two_lists_are_one() {
        assert_eq!(key(&[("a", "x"), ("b", "y")], 0), "");
        assert_eq!(key(&[("a", "x"), ("b", "y")], 0b10), "y");
        assert_eq!(key(&[("a", "x"), ("b", "y")], 0b11), "1:x1:y");
        assert_eq!(key(&[("a", "x"), ("b", "1:y")], 0b11), "1:x3:1:y");
        let long = "ü".repeat(200);
        assert_eq!(key(&[("a", &long), ("b", ""), ("c", "z")], 0b111), format!("400:{long}0:1:z"));
        assert_eq!(Key::new(&[("a", "x")], [1, 0], true).as_str(), "1:a1:x");
        assert_eq!(Key::new(&[("a", "x"), ("b", "y")], [0b10, 0b01], true).as_str(), "1:a1:b1:y");
        assert_eq!(key(&[("a", "x")], 0b1000), "", "a level that the request does not have");
    }
}
