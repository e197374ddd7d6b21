//! Builds descriptors piece by piece.

use std::array::from_fn;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::ops::Range;

use smallvec::SmallVec;
use tollgate_config::internals::push_ipv4;

use super::Descriptor;
use super::spare::{self, Spare};

/// The descriptors of one request, built piece by piece. It owns its texts in one block of memory. The thread uses the memory of its
/// last request again.
///
/// # Examples
/// ```
/// use tollgate_rules::{Descriptors, Rules};
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
/// assert_eq!(answer.remaining(1), 3);
/// # Ok::<(), tollgate_rules::RulesError>(())
/// ```
#[derive(Clone, Default)]
pub struct Descriptors(Option<Box<Lists>>);

/// What descriptors are made of. A request moves its descriptors often, and each copy would wait for what was just written. So they
/// have memory of their own, and are one pointer.
#[derive(Clone, Default, Debug)]
struct Lists {
    texts: String,
    entries: SmallVec<[EntryTexts; ENTRIES]>,
    /// For each descriptor, where its entries end, and its other settings.
    each: SmallVec<[DescriptorEnd; DESCRIPTORS]>,
    tier: Option<Range<u32>>,
    /// The last address and its position: most descriptors of a request have the same address.
    address: Option<(IpAddr, EntryTexts)>,
    /// The text of a client's network, by which it is counted, and that of its address, which rules match.
    whole: Option<EntryTexts>,
}

/// The keys and values of all descriptors, for callers that hold descriptors while they wait: [`Descriptors::with`] takes
/// a function.
#[derive(Debug)]
pub struct Pairs<'a> {
    /// `None` if there are no descriptors.
    of: Option<&'a Lists>,
    matched: PairList<'a>,
    /// The pairs that make the keys of counters, if they are others.
    counted: Option<PairList<'a>>,
}

type PairList<'a> = SmallVec<[(&'a str, &'a str); ENTRIES]>;

/// The maximum memory, in bytes, that a thread keeps for the texts of its next request.
const KEPT: usize = 1_024;

/// The longest lists whose memory a thread keeps.
const MOST_KEPT: usize = 32;

// Memory from the descriptors of the thread's last request.
thread_local!(static SPARE: Spare<Box<Lists>> = const { Spare::new(None) });

impl Drop for Descriptors {
    #[inline]
    fn drop(&mut self) {
        spare::leave(&SPARE, self.0.take(), |lists| {
            let is_small = lists.is_small();
            if is_small {
                lists.clear();
            }
            is_small
        });
    }
}

/// The start of a key in the texts, the start of its value, and the end of the value. Or those of two other texts.
#[derive(Copy, Clone, Debug)]
struct EntryTexts {
    key: u32,
    value: u32,
    end: u32,
}

/// The number of entries, and of descriptors, that fit without the heap.
const ENTRIES: usize = 4;
const DESCRIPTORS: usize = 2;

/// The initial capacity for texts, in bytes.
const TEXT_CAPACITY: usize = 120;

#[derive(Copy, Clone, Default, Debug)]
struct DescriptorEnd {
    end: u32,
    hits: Option<u64>,
}

/// A descriptor that was just added. Add its entries and set its hits here.
#[derive(Debug)]
pub struct Added<'a>(&'a mut Lists);

impl Added<'_> {
    /// Adds a key and its value after the existing entries.
    pub fn entry(self, key: &str, value: impl fmt::Display) -> Self {
        // Writing to a text fails only if the value's own code returns an error. The text written until then counts.
        self.entry_by(key, |texts| _ = write!(texts, "{value}"))
    }

    /// Adds a key and an address. The text is the same as with [`Display`](fmt::Display), in a tenth of the time.
    ///
    /// # Examples
    /// ```
    /// use std::net::{IpAddr, Ipv4Addr};
    /// use tollgate_rules::Descriptors;
    ///
    /// let mut descriptors = Descriptors::new();
    /// descriptors.begin().address("remote_address", IpAddr::V4(Ipv4Addr::LOCALHOST));
    /// descriptors.with(|descriptors| assert_eq!(descriptors[0].entries(), [("remote_address", "127.0.0.1")]));
    /// ```
    pub fn address(self, key: &str, address: IpAddr) -> Self {
        let Lists { texts, entries, each, address: last, .. } = &mut *self.0;
        let same = last.filter(|(last, _)| *last == address).map(|(_, entry)| entry);
        let same = same.filter(|entry| texts.get(entry.key as usize..entry.value as usize) == Some(key));
        let Some(entry) = same else { return self.new_address(key, address) };
        entries.push(entry);
        if let Some(one) = each.last_mut() {
            one.end = place(entries.len());
        }
        self
    }

    fn new_address(self, key: &str, address: IpAddr) -> Self {
        let added = self.entry_by(key, |texts| push_address(texts, address));
        added.0.address = added.0.entries.last().map(|entry| (address, *entry));
        added
    }

    #[inline]
    fn entry_by(self, key: &str, value: impl FnOnce(&mut String)) -> Self {
        let Lists { texts, entries, each, .. } = &mut *self.0;
        let begin = place(texts.len());
        texts.push_str(key);
        let middle = place(texts.len());
        value(texts);
        entries.push(EntryTexts { key: begin, value: middle, end: place(texts.len()) });
        if let Some(one) = each.last_mut() {
            one.end = place(entries.len());
        }
        self
    }

    /// Sets the cost of the request under the limits of this descriptor. A cost of 0 only peeks. Default: the cost of
    /// the request.
    pub fn hits(self, hits: u64) {
        if let Some(one) = self.0.each.last_mut() {
            one.hits = Some(hits);
        }
    }
}

impl Descriptors {
    /// Creates an empty list.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a descriptor without entries and returns it to add some. A value can be any type with `Display`: texts,
    /// addresses, numbers.
    ///
    /// # Examples
    /// ```
    /// use std::net::Ipv4Addr;
    /// use tollgate_rules::Descriptors;
    ///
    /// let mut descriptors = Descriptors::new();
    /// descriptors.begin().entry("path", "/login").entry("remote_address", Ipv4Addr::LOCALHOST);
    /// descriptors.with(|descriptors| {
    ///     assert_eq!(descriptors[0].entries(), [("path", "/login"), ("remote_address", "127.0.0.1")]);
    /// });
    /// ```
    #[inline]
    pub fn begin(&mut self) -> Added<'_> {
        let lists = self.lists_mut();
        lists.each.push(DescriptorEnd { end: place(lists.entries.len()), hits: None });
        Added(lists)
    }

    #[inline]
    fn lists_mut(&mut self) -> &mut Lists {
        self.0.get_or_insert_with(|| spare::take(&SPARE).unwrap_or_else(Lists::boxed))
    }

    /// Adds a descriptor with these keys and values, in order.
    pub fn add<K: AsRef<str>, V: fmt::Display>(
        &mut self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Added<'_> {
        entries.into_iter().fold(self.begin(), |added, (key, value)| added.entry(key.as_ref(), value))
    }

    /// Sets the client's tier for all descriptors; see [`Descriptor::tier`].
    pub fn tier(&mut self, tier: &str) {
        let lists = self.lists_mut();
        let begin = place(lists.texts.len());
        lists.texts.push_str(tier);
        lists.tier = Some(begin..place(lists.texts.len()));
    }

    /// Returns the number of descriptors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |lists| lists.each.len())
    }

    /// Whether there are no descriptors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all descriptors, and keeps the memory.
    pub fn clear(&mut self) {
        if let Some(lists) = &mut self.0 {
            lists.clear();
        }
    }

    /// Lets rules match `address` in each entry whose value is `network`, although the entry is still counted as the
    /// network; see [`Descriptor::counted_as`]. Call this after the entries are added.
    pub fn match_whole(&mut self, network: IpAddr, address: IpAddr) {
        let Some(lists) = self.0.as_mut().filter(|lists| !lists.each.is_empty()) else { return };
        let texts = &mut lists.texts;
        let begin = place(texts.len());
        push_address(texts, network);
        let middle = place(texts.len());
        push_address(texts, address);
        lists.whole = Some(EntryTexts { key: begin, value: middle, end: place(texts.len()) });
    }

    /// Calls `use_them` with the descriptors, for [`Rules::check`](crate::Rules::check) or [`Rules::refund`](crate::Rules::refund).
    #[inline]
    pub fn with<R>(&self, use_them: impl FnOnce(&[Descriptor<'_>]) -> R) -> R {
        let Some(lists) = &self.0 else { return use_them(&[]) };
        // The common case, without a list that can grow.
        if lists.whole.is_none() && lists.entries.len() <= ENTRIES && lists.each.len() <= DESCRIPTORS {
            let mut texts = lists.texts_of();
            let pairs: [_; ENTRIES] = from_fn(|_| texts.next().unwrap_or_default());
            let mut descriptors = lists.descriptors(&pairs, None);
            let each: [_; DESCRIPTORS] = from_fn(|_| descriptors.next().unwrap_or(Descriptor::new(&[])));
            return use_them(each.get(..lists.each.len()).unwrap_or_default());
        }
        use_them(&Pairs::of(self).each())
    }
}

impl Lists {
    #[cold]
    fn boxed() -> Box<Self> {
        Box::new(Self { texts: String::with_capacity(TEXT_CAPACITY), ..Self::default() })
    }

    /// Whether a thread keeps the memory.
    fn is_small(&self) -> bool {
        self.texts.capacity() <= KEPT
            && self.entries.capacity() <= MOST_KEPT
            && self.each.capacity() <= MOST_KEPT
    }

    fn clear(&mut self) {
        let Self { texts, entries, each, tier, address, whole } = self;
        texts.clear();
        entries.clear();
        each.clear();
        (*tier, *address, *whole) = (None, None, None);
    }

    #[inline]
    fn texts_of(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|entry| self.both_texts(*entry))
    }

    #[inline]
    fn both_texts(&self, EntryTexts { key, value, end }: EntryTexts) -> (&str, &str) {
        let both = self.slice(key, end);
        both.split_at_checked(value.saturating_sub(key) as usize).unwrap_or_default()
    }

    #[inline]
    fn descriptors<'a>(
        &'a self,
        pairs: &'a [(&'a str, &'a str)],
        counted: Option<&'a [(&'a str, &'a str)]>,
    ) -> impl Iterator<Item = Descriptor<'a>> {
        let mut begin = 0;
        let tier = self.tier.as_ref().map(|tier| self.slice(tier.start, tier.end));
        self.each.iter().map(move |&DescriptorEnd { end, hits }| {
            let of = |pairs: &'a [(&'a str, &'a str)]| pairs.get(begin..end as usize).unwrap_or_default();
            let entries = of(pairs);
            let counted = counted.map_or(entries, of);
            begin = end as usize;
            Descriptor { entries, counted, hits, tier, limit: None }
        })
    }

    #[inline]
    fn slice(&self, begin: u32, end: u32) -> &str {
        self.texts.get(begin as usize..end as usize).unwrap_or_default()
    }
}

impl<'a> Pairs<'a> {
    /// Returns the keys and values of all descriptors.
    pub fn of(of: &'a Descriptors) -> Self {
        let of = of.0.as_deref();
        let counted: PairList<'_> = of.into_iter().flat_map(Lists::texts_of).collect();
        let Some((network, address)) = of.and_then(|of| Some(of.both_texts(of.whole?))) else {
            return Self { of, matched: counted, counted: None };
        };
        let whole = |&(key, value)| (key, if value == network { address } else { value });
        Self { of, matched: counted.iter().map(whole).collect(), counted: Some(counted) }
    }

    /// Returns each descriptor, over these keys and values.
    pub fn each(&self) -> SmallVec<[Descriptor<'_>; DESCRIPTORS]> {
        let of = |lists: &'a Lists| lists.descriptors(&self.matched, self.counted.as_deref());
        self.of.into_iter().flat_map(of).collect()
    }
}

/// Appends an address. Writing to a text does not fail.
fn push_address(texts: &mut String, address: IpAddr) {
    match address {
        IpAddr::V4(address) => push_ipv4(texts, address.octets()),
        IpAddr::V6(address) => _ = write!(texts, "{address}"),
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
