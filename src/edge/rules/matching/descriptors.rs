//! Descriptors that are put together while a request is looked at.

use std::fmt::{self, Write as _};
use std::ops::Range;

use smallvec::SmallVec;

use super::Descriptor;

/// The descriptors of one request, put together piece by piece; it owns its texts, in one piece of memory.
///
/// # Examples
/// ```
/// use tollgate::rules::{Descriptors, Rules};
///
/// let rules = Rules::from_yaml("
/// domain: edge
/// descriptors:
///   - key: path
///     value: /login
///     descriptors:
///       - key: remote_address
///         rate_limit: { unit: minute, requests_per_unit: 5 }
/// ")?;
/// let mut descriptors = Descriptors::new();
/// descriptors.add([("remote_address", "192.0.2.1")]);
/// descriptors.add([("path", "/login"), ("remote_address", "192.0.2.1")]).hits(2);
/// let answer = descriptors.with(|descriptors| rules.check("edge", descriptors));
/// assert_eq!(answer.status(1).remaining(), 3);
/// # Ok::<(), tollgate::rules::RulesError>(())
/// ```
#[derive(Clone, Default)]
pub struct Descriptors {
    texts: String,
    entries: SmallVec<[(Range<u32>, Range<u32>); 4]>,
    /// Of each: where its entries end, and what else it says.
    each: SmallVec<[DescriptorEnd; 2]>,
    tier: Option<Range<u32>>,
}

#[derive(Copy, Clone, Default, Debug)]
struct DescriptorEnd {
    end: u32,
    hits: Option<u64>,
}

/// A descriptor that has just been added, to be given entries and hits.
#[derive(Debug)]
pub struct Added<'a>(&'a mut Descriptors);

impl Added<'_> {
    /// Adds a key and its value, behind those that it has.
    pub fn entry(self, key: &str, value: impl fmt::Display) -> Self {
        let key = self.0.text(|texts| texts.push_str(key));
        let value = self.0.text(|texts| {
            // Writing to a text does not fail, unless a value's own code says so: then what it has written counts.
            let _ = write!(texts, "{value}");
        });
        self.0.entries.push((key, value));
        let end = place(self.0.entries.len());
        if let Some(one) = self.0.each.last_mut() {
            one.end = end;
        }
        self
    }

    /// What the request costs under the limits of this descriptor; 0 only looks. Default: what the request costs.
    pub fn hits(self, hits: u64) {
        if let Some(one) = self.0.each.last_mut() {
            one.hits = Some(hits);
        }
    }
}

impl Descriptors {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a descriptor without entries, to be given some. Values are anything that can be written: texts, addresses, numbers.
    ///
    /// # Examples
    /// ```
    /// use std::net::Ipv4Addr;
    /// use tollgate::rules::Descriptors;
    ///
    /// let mut descriptors = Descriptors::new();
    /// descriptors.begin().entry("path", "/login").entry("remote_address", Ipv4Addr::LOCALHOST);
    /// descriptors.with(|descriptors| {
    ///     assert_eq!(descriptors[0].entries(), [("path", "/login"), ("remote_address", "127.0.0.1")]);
    /// });
    /// ```
    pub fn begin(&mut self) -> Added<'_> {
        self.each.push(DescriptorEnd { end: place(self.entries.len()), hits: None });
        Added(self)
    }

    /// Adds a descriptor of these keys and values, in order.
    pub fn add<K: AsRef<str>, V: fmt::Display>(
        &mut self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Added<'_> {
        entries.into_iter().fold(self.begin(), |added, (key, value)| added.entry(key.as_ref(), value))
    }

    /// The client's tier, for all of them; see [`Descriptor::tier`].
    pub fn tier(&mut self, tier: &str) {
        self.tier = Some(self.text(|texts| texts.push_str(tier)));
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.each.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Forgets them, and keeps the memory.
    pub fn clear(&mut self) {
        let Self { texts, entries, each, tier } = self;
        texts.clear();
        entries.clear();
        each.clear();
        *tier = None;
    }

    /// Calls `use_them` with the descriptors, for [`Rules::check`](crate::rules::Rules::check) or [`Rules::refund`](crate::rules::Rules::refund).
    pub fn with<R>(&self, use_them: impl FnOnce(&[Descriptor<'_>]) -> R) -> R {
        let entries = self.pairs();
        use_them(&self.each_of(&entries))
    }

    /// Keys and values of all of them.
    pub(crate) fn pairs(&self) -> SmallVec<[(&str, &str); 4]> {
        self.entries.iter().map(|(key, value)| (self.slice(key), self.slice(value))).collect()
    }

    /// Each, of those keys and values.
    pub(crate) fn each_of<'a>(&'a self, entries: &'a [(&'a str, &'a str)]) -> SmallVec<[Descriptor<'a>; 2]> {
        let mut begin = 0;
        let tier = self.tier.as_ref().map(|tier| self.slice(tier));
        let each = self.each.iter().map(|&DescriptorEnd { end, hits }| {
            let entries = entries.get(begin..end as usize).unwrap_or_default();
            begin = end as usize;
            Descriptor { entries, hits, tier, limit: None }
        });
        each.collect()
    }

    fn text(&mut self, write: impl FnOnce(&mut String)) -> Range<u32> {
        let begin = place(self.texts.len());
        write(&mut self.texts);
        begin..place(self.texts.len())
    }

    fn slice(&self, range: &Range<u32>) -> &str {
        self.texts.get(range.start as usize..range.end as usize).unwrap_or_default()
    }
}

/// Positions saturate at four gigabytes of text.
fn place(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|descriptors| f.debug_list().entries(descriptors).finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_what_is_there() {
        let mut descriptors = Descriptors::new();
        assert!(descriptors.is_empty());
        descriptors.add([("a", "x")]);
        descriptors.add::<&str, &str>([]);
        descriptors.add([("b", 7), ("c", 8)]).hits(3);
        descriptors.tier("gold");
        assert_eq!(descriptors.len(), 3);
        descriptors.with(|each| {
            let entries: Vec<_> = each.iter().map(|one| one.entries().to_vec()).collect();
            assert_eq!(entries, [vec![("a", "x")], vec![], vec![("b", "7"), ("c", "8")]]);
            assert_eq!(each.iter().map(|one| one.cost(1)).collect::<Vec<_>>(), [1, 1, 3]);
            assert!(each.iter().all(|one| one.tier == Some("gold")));
        });
        descriptors.clear();
        descriptors.with(|each| assert!(each.is_empty()));
    }
}
