//! What a request says of itself.

use crate::edge::rules::Unit;

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
    pub(super) entries: &'a [(&'a str, &'a str)],
    pub(super) hits: Option<u64>,
    pub(crate) tier: Option<&'a str>,
    /// The request's own limit.
    pub(crate) limit: Option<(u32, Unit)>,
}

impl<'a> Descriptor<'a> {
    /// A descriptor of these keys and values.
    #[must_use]
    pub const fn new(entries: &'a [(&'a str, &'a str)]) -> Self {
        Self { entries, hits: None, tier: None, limit: None }
    }

    /// What the request costs under the limits of this descriptor; 0 only looks. Default: what the request costs, which is 1
    /// unless [said otherwise](crate::rules::Rules::check_n).
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
    /// in windows that are aligned to the Unix epoch, as Envoy's service does. The [domain](crate::rules::Rules::check) must have rules all
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

    /// The keys and values.
    #[must_use]
    pub const fn entries(&self) -> &'a [(&'a str, &'a str)] {
        self.entries
    }

    pub(crate) fn cost(&self, default: u64) -> u64 {
        self.hits.unwrap_or(default)
    }
}
