//! The contents of a file: descriptors, with the positions of their rules.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;

use super::address::{address_of, canonical};

/// A position in a file. The order is the order of reading.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Position {
    /// The line, from 1; 0 means the whole file.
    pub(crate) line: u32,
    /// The column in characters, from 1; 0 means the whole line.
    pub(crate) column: u32,
}

impl Position {
    /// The conversion saturates; the size limit of files keeps lines and columns below the maximum.
    pub(crate) fn new(line: usize, column: usize) -> Self {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: number(line), column: number(column) }
    }
}

/// One descriptor of the file.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) key: Box<str>,
    pub(crate) value: Option<Box<str>>,
    /// The ranges of addresses that it matches instead of a value.
    pub(crate) ranges: Box<[IpNet]>,
    pub(crate) at: Position,
    pub(crate) own: BranchRules,
    pub(crate) tiers: Box<[Tier]>,
    pub(crate) children: Vec<Branch>,
}

/// Other limits for some clients.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) name: Box<str>,
    pub(crate) members: Vec<Box<str>>,
    /// The ranges of the addresses that are members too.
    pub(crate) ranges: Box<[IpNet]>,
    pub(crate) rules: BranchRules,
}

/// What only one branch of a level may match: a key with a value, with a range, or with neither.
pub(crate) type Matched<'b> = (&'b str, Option<Cow<'b, str>>, Option<IpNet>);

/// Returns the keys of a level whose values are read as addresses. One descriptor that reads addresses is enough, because its
/// search reads every value of its key.
pub(crate) fn keys_of_addresses<'b>(branches: impl IntoIterator<Item = &'b Branch>) -> HashSet<&'b str> {
    branches.into_iter().filter(|branch| branch.reads_addresses()).map(|branch| &*branch.key).collect()
}

/// The rules of a descriptor or of a tier. The numbers are short, because a file can have very many descriptors.
#[derive(Clone, Debug)]
pub(crate) struct BranchRules {
    /// The first rule of the descriptor among the file's rules, and the one after its last.
    start: u32,
    end: u32,
    /// With `prefixes`: where the rules for IPv4 begin. The rules for IPv6 precede them. On both sides of this place is
    /// the rule of the longest prefix. [`NO_PREFIXES`] otherwise.
    ipv4_from: u32,
}

const NO_PREFIXES: u32 = u32::MAX;

/// What a value is: `prefixes` limit the two kinds of addresses separately.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AddressKind {
    Ipv4,
    Ipv6,
    /// The value is not an address.
    Other,
}

impl AddressKind {
    pub(super) const ALL: [Self; 3] = [Self::Ipv4, Self::Ipv6, Self::Other];

    pub(super) fn of(address: Option<IpAddr>) -> Self {
        match address {
            Some(IpAddr::V4(_)) => Self::Ipv4,
            Some(IpAddr::V6(_)) => Self::Ipv6,
            None => Self::Other,
        }
    }
}

impl BranchRules {
    /// Creates it from the places of the rules in the file, which has fewer rules than the maximum.
    pub(crate) fn new(all: Range<usize>, ipv4_from: Option<usize>) -> Self {
        let place = |place: usize| u32::try_from(place).unwrap_or(NO_PREFIXES - 1);
        Self { start: place(all.start), end: place(all.end), ipv4_from: ipv4_from.map_or(NO_PREFIXES, place) }
    }

    /// Returns all rules, as a range in the file's rules.
    pub(crate) const fn all(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    const fn has_prefixes(&self) -> bool {
        self.ipv4_from != NO_PREFIXES
    }

    /// Returns the rules that apply to a value.
    pub(super) fn of_value(&self, value: &str) -> Range<usize> {
        self.of(AddressKind::of(address_of(value)))
    }

    /// Returns the rules that apply to a kind of values. A value that is not an address has the rules of the longest prefixes.
    pub(super) fn of(&self, kind: AddressKind) -> Range<usize> {
        let (Range { start, end }, ipv4) = (self.all(), self.ipv4_from as usize);
        match kind {
            _ if !self.has_prefixes() => start..end,
            AddressKind::Ipv4 => ipv4..end,
            AddressKind::Ipv6 => start..ipv4,
            AddressKind::Other => ipv4.saturating_sub(1).max(start)..ipv4.saturating_add(1).min(end),
        }
    }
}

impl Branch {
    pub(crate) fn is_wildcard(&self) -> bool {
        self.key.contains('*') || self.value.as_ref().is_some_and(|value| value.contains('*'))
    }

    /// Whether the descriptor itself limits nothing. Its children may have limits.
    pub(crate) fn has_no_limit(&self) -> bool {
        self.own.all().is_empty() && self.tiers.is_empty()
    }

    /// Whether it matches every value.
    pub(crate) fn matches_any(&self) -> bool {
        self.value.is_none() && self.ranges.is_empty()
    }

    /// Whether a search has to read values as addresses here.
    pub(super) fn reads_addresses(&self) -> bool {
        !self.ranges.is_empty() || self.has_forms()
    }

    /// Whether the rules depend on the address.
    pub(super) fn has_forms(&self) -> bool {
        let by_tier = |tier: &Tier| !tier.ranges.is_empty() || tier.rules.has_prefixes();
        self.own.has_prefixes() || self.tiers.iter().any(by_tier)
    }

    /// The identity of the branch within its level.
    pub(crate) fn parts(&self) -> (&str, Option<&str>, &[IpNet]) {
        (&self.key, self.value.as_deref(), &self.ranges)
    }

    /// Returns the branch's value, or each of its ranges. `is_address`: values of its key are read as addresses, so all
    /// spellings of one are the same value.
    pub(crate) fn matched(&self, is_address: bool) -> impl Iterator<Item = Matched<'_>> {
        let text = |value| if is_address { canonical(value) } else { Cow::Borrowed(value) };
        let whole = self.ranges.is_empty().then_some((&*self.key, self.value.as_deref().map(text), None));
        whole.into_iter().chain(self.ranges.iter().map(|range| (&*self.key, None, Some(*range))))
    }

    /// Returns the members of tiers that are one address in two spellings, each with its tier. Values of the branch's key are
    /// read as addresses.
    pub(crate) fn same_members(&self) -> Vec<[(&Tier, &str); 2]> {
        let mut seen: HashMap<Cow<'_, str>, (&Tier, &str)> = HashMap::new();
        let members =
            self.tiers.iter().flat_map(|tier| tier.members.iter().map(move |member| (tier, &**member)));
        let pairs = members
            .map(|(tier, member)| [*seen.entry(canonical(member)).or_insert((tier, member)), (tier, member)]);
        pairs.filter(|[(_, first), (_, second)]| first != second).collect()
    }
}
