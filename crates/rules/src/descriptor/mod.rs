//! What describes a request, and the key under which each rule counts it.
//!
//! A [`Descriptor`] borrows its keys and values. [`Descriptors`] owns those of a request. A [`CounterKey`] is what a rule makes of
//! them.

mod counter_key;
mod descriptors;
pub(crate) mod spare;

use tollgate_config::TimeUnit;

pub(crate) use self::counter_key::{CounterKey, KeyTexts, LONGEST};
pub use self::descriptors::{Added, Descriptors, Pairs};

/// A description of a request to match with rules: a list of keys and values, in order. A request has one or more
/// descriptors.
///
/// # Examples
/// ```
/// use tollgate_rules::Descriptor;
///
/// let entries = [("path", "/login"), ("remote_address", "203.0.113.7")];
/// let descriptor = Descriptor::new(&entries).hits(2).tier("premium");
/// assert_eq!(descriptor.entries().len(), 2);
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Descriptor<'a> {
    entries: &'a [(&'a str, &'a str)],
    /// The entries that make the keys of counters. Most often the same.
    counted: &'a [(&'a str, &'a str)],
    hits: Option<u64>,
    pub(crate) tier: Option<&'a str>,
    /// The request's own limit.
    pub(crate) limit: Option<(u32, TimeUnit)>,
}

impl<'a> Descriptor<'a> {
    /// Creates a descriptor with these keys and values.
    #[must_use]
    pub const fn new(entries: &'a [(&'a str, &'a str)]) -> Self {
        Self { entries, counted: entries, hits: None, tier: None, limit: None }
    }

    /// Sets the cost of the request under the limits of this descriptor. A cost of 0 only peeks. Default: the cost of
    /// the request, which is 1 or the [caller's value](crate::Rules::check_n).
    #[must_use]
    pub const fn hits(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }

    /// Sets the client's tier. If a rule has limits for this tier, they apply.
    #[must_use]
    pub const fn tier(mut self, tier: &'a str) -> Self {
        self.tier = Some(tier);
        self
    }

    /// Sets the request's own limit, which takes precedence over the limits of the rules: a number of units per time
    /// unit. As in Envoy's service, it counts for these keys and values in windows that are aligned to the Unix epoch.
    /// The [domain](crate::Rules::check) must have rules even so.
    ///
    /// Requests with the same keys, values and unit share a counter, whatever limits they set. The last hundred
    /// thousand counters are kept for each unit. The file's rule for these keys and values counts together with them if
    /// this process counts it, by all values, as a `fixed-window` of this unit. See
    /// [the guide](https://docs.rs/crate/tollgate/latest/source/docs/rules.md).
    #[must_use]
    pub const fn limit(mut self, requests: u32, unit: TimeUnit) -> Self {
        self.limit = Some((requests, unit));
        self
    }

    /// Counts the request by the values of these entries, while rules match the values of the others. Use it for clients
    /// that own whole networks: a rule for one address matches that address, and a rule that counts each value counts
    /// the network. A rule with
    /// [`prefixes`](https://docs.rs/crate/tollgate/latest/source/docs/addresses.md)
    /// counts the last entry by its own lengths. The entries must
    /// have the same keys in the same order. An answer is refunded with the same entries.
    ///
    /// `RateLimitLayer::rules` does this with the networks of `ClientIp`.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: edge
    /// descriptors:
    ///   - { key: remote_address, rate_limit: { unit: day, requests_per_unit: 1 } }
    ///   - { key: remote_address, value: '2001:db8::bad', rate_limit: { unit: day, requests_per_unit: 0 } }
    /// ")?;
    /// let ask = |address| {
    ///     let (entries, network) = ([("remote_address", address)], [("remote_address", "2001:db8::")]);
    ///     rules.check("edge", &[Descriptor::new(&entries).counted_as(&network)])
    /// };
    /// assert!(ask("2001:db8::bad").is_denied()); // the rule for this address
    /// assert!(ask("2001:db8::1").is_allowed());
    /// assert!(ask("2001:db8::2").is_denied()); // the same network
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    #[must_use]
    pub const fn counted_as(mut self, entries: &'a [(&'a str, &'a str)]) -> Self {
        self.counted = entries;
        self
    }

    /// Returns the keys and values.
    #[must_use]
    pub const fn entries(&self) -> &'a [(&'a str, &'a str)] {
        self.entries
    }

    /// Returns the entries that make the keys of counters.
    #[inline]
    pub(crate) const fn counted(&self) -> &'a [(&'a str, &'a str)] {
        self.counted
    }

    /// Returns the units that the request costs at the rules of this descriptor: those of [`Descriptor::hits`], or `default`.
    #[must_use]
    pub fn cost(&self, default: u64) -> u64 {
        self.hits.unwrap_or(default)
    }
}
