//! Reads `ranges` of addresses, and checks them against the values that a descriptor matches.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::checker::Checker;
use super::keys::{FieldPath, MapFields};
use super::node::{FileNode, quoted};
use super::scalar::BadValue;
use crate::matching::{Branch, Pattern, Ranges, Tier, address_of, canonical, keys_of_addresses};

/// The values that a descriptor matches.
#[derive(Debug)]
pub(super) enum MatchedValues {
    One,
    All,
    Like(Pattern),
    In {
        ranges: Ranges,
        /// Whether there are ranges of IPv4, and of IPv6.
        kinds: [bool; 2],
    },
}

impl MatchedValues {
    pub(super) fn of_ranges(ranges: &[IpNet]) -> Self {
        let has = |is_ipv4| ranges.iter().any(|range| matches!(range, IpNet::V4(_)) == is_ipv4);
        Self::In {
            ranges: Ranges::new(ranges.iter().map(|range| (*range, 0))),
            kinds: [true, false].map(has),
        }
    }

    /// Whether the descriptor matches addresses of IPv4, and of IPv6.
    pub(super) fn kinds(&self) -> [bool; 2] {
        if let Self::In { kinds, .. } = self { *kinds } else { [true; 2] }
    }

    /// Checks that a member of a tier is one of the values.
    pub(super) fn check_member(&self, member: &str) -> Result<(), BadValue> {
        let is_matched = match self {
            Self::One => return Err(Self::only_one("members")),
            Self::All => true,
            Self::Like(pattern) => pattern.matches(member),
            Self::In { ranges, .. } => {
                address_of(member).is_some_and(|address| ranges.find(address).is_some())
            }
        };
        if is_matched { Ok(()) } else { Err(Self::outside(&quoted(member))) }
    }

    /// Checks that all addresses of a tier's range are among the values.
    fn check_member_range(&self, range: &IpNet) -> Result<(), BadValue> {
        match self {
            Self::One => Err(Self::only_one("ranges")),
            Self::Like(_) => Err(BadValue::new(
                "a range of addresses cannot be compared with a `*` in the descriptor's value",
                "remove the descriptor's value",
            )),
            Self::In { ranges, .. }
                if [range.network(), range.broadcast()].iter().any(|end| ranges.find(*end).is_none()) =>
            {
                Err(Self::outside(&range.to_string()))
            }
            Self::All | Self::In { .. } => Ok(()),
        }
    }

    /// Checks that the values can be addresses, so that the descriptor can have `prefixes`.
    pub(super) fn check_prefixes(&self) -> Result<(), BadValue> {
        match self {
            Self::One => Err(Self::only_one("prefixes")),
            Self::Like(_) => Err(BadValue::new(
                "the descriptor's value is a pattern of texts, and prefixes count addresses",
                "write ranges instead of the descriptor's value",
            )),
            Self::All | Self::In { .. } => Ok(()),
        }
    }

    fn only_one(what: &str) -> BadValue {
        let remedy = format!("remove the {what}, or remove the descriptor's value, or write a `*` in it");
        BadValue::new("this descriptor matches one value only", remedy)
    }

    fn outside(member: &str) -> BadValue {
        let message = format!("{member} does not match the descriptor's value");
        BadValue::new(message, "remove it, or change the descriptor's value")
    }
}

/// Reads a range: an address with the number of its leading bits, or a single address.
fn range_of(text: &str) -> Result<IpNet, BadValue> {
    let range = match text.split_once('/') {
        None => text.parse::<IpAddr>().ok().map(IpNet::from),
        Some((address, bits)) => {
            address.parse().ok().zip(length_of(bits, 128)).and_then(|(ip, bits)| IpNet::new(ip, bits).ok())
        }
    };
    let range = range.map(without_mapping).ok_or_else(|| {
        let message = format!("{} is not a range of addresses", quoted(text));
        let remedy =
            "write an address and the number of its leading bits, such as 10.0.0.0/8 or 2001:db8::/32";
        BadValue::new(message, remedy)
    })?;
    if range != range.trunc() {
        let message = format!("{} has bits after the first {}", quoted(text), range.prefix_len());
        return Err(BadValue::new(message, format!("write {}", range.trunc())));
    }
    Ok(range)
}

/// Converts a range of IPv4 addresses in the form of IPv6 addresses. Requests' addresses are converted in the same way.
fn without_mapping(range: IpNet) -> IpNet {
    let IpNet::V6(v6) = range else { return range };
    let ipv4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    ipv4.and_then(|(address, bits)| Ipv4Net::new(address, bits).ok()).map_or(range, IpNet::V4)
}

/// Reads the number of leading bits.
pub(super) fn length_of(text: &str, most: u8) -> Option<u8> {
    let bits = text.parse::<u8>().ok().filter(|bits| *bits <= most)?;
    (bits.to_string() == text).then_some(bits)
}

impl Checker {
    /// Reads the key `ranges`, whose items must pass the check. Empty without it.
    fn ranges(
        &mut self,
        fields: &MapFields<'_, '_>,
        check: impl Fn(&IpNet) -> Result<(), BadValue>,
    ) -> Box<[IpNet]> {
        let Some(items) = self.read(fields, "ranges", FileNode::list) else { return Box::default() };
        let path = fields.path.key("ranges");
        if items.is_empty() {
            self.wrong(fields, "ranges", "there are no ranges", "write one, or remove ranges");
        }
        let mut ranges = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let range = item.text().and_then(range_of).and_then(|range| check(&range).map(|()| range));
            ranges.extend(self.take(item, &path.index(index), range));
        }
        ranges.into()
    }

    /// Reads the ranges that a descriptor matches instead of a value.
    pub(super) fn own_ranges(
        &mut self,
        fields: &MapFields<'_, '_>,
        key: &str,
        value: Option<&str>,
    ) -> Box<[IpNet]> {
        if fields.has("ranges") && (value.is_some() || key.contains('*')) {
            let message = match value {
                Some(_) => "value and ranges cannot be used together",
                None => "ranges cannot be used with a `*` in the key",
            };
            self.wrong(fields, "ranges", message, "write two descriptors");
        }
        self.ranges(fields, |_| Ok(()))
    }

    /// Reads the ranges whose addresses are members of a tier.
    pub(super) fn member_ranges(
        &mut self,
        fields: &MapFields<'_, '_>,
        values: &MatchedValues,
    ) -> Box<[IpNet]> {
        self.ranges(fields, |range| values.check_member_range(range))
    }

    /// Reports ranges that occur twice: with the same key, or in the tiers of one descriptor. A range inside another is
    /// valid, because the longest one counts.
    pub(super) fn report_same_ranges(&mut self, branches: &[Branch], path: &FieldPath<'_>) {
        let own = branches.iter().zip(0..).flat_map(|(branch, place)| {
            branch.ranges.iter().map(move |range| ((&*branch.key, *range), place))
        });
        for ((_, range), [first, second]) in repeated(own, |place: usize| branches.get(place)) {
            let message = format!("the range {range} occurs twice");
            let remedy = format!("remove it here or in the descriptor in line {}", first.at.line);
            self.problems.add(second.at, path, message, remedy);
        }
        for branch in branches {
            let of_tiers = branch.tiers.iter().zip(0..);
            let of_tiers =
                of_tiers.flat_map(|(tier, place)| tier.ranges.iter().map(move |range| (*range, place)));
            for (range, tiers) in repeated(of_tiers, |place: usize| branch.tiers.get(place)) {
                let [first, second] = tiers.map(|tier| quoted(&tier.name));
                let message = format!("the range {range} is a member of {first} and of {second}");
                self.problems.add(branch.at, path, message, "remove it from one of them");
            }
        }
    }

    /// Reports values and members of tiers that are one address in two spellings, where they are read as addresses.
    pub(super) fn report_same_addresses(&mut self, branches: &[Branch], path: &FieldPath<'_>) {
        let read = keys_of_addresses(branches);
        let mut seen: HashMap<(&str, Cow<'_, str>), &Branch> = HashMap::new();
        for branch in branches.iter().filter(|branch| read.contains(&*branch.key)) {
            if let Some(value) = &branch.value {
                let first = *seen.entry((&branch.key, canonical(value))).or_insert(branch);
                // Equal texts are reported as well.
                if first.value != branch.value {
                    let line = first.at.line;
                    let message =
                        format!("{} is the same address as the value in line {line}", branch.shown());
                    self.problems.add(branch.at, path, message, format!("remove it here or in line {line}"));
                }
            }
            for [message, remedy] in branch.same_members().into_iter().map(same_member) {
                self.problems.add(branch.at, path, message, remedy);
            }
        }
    }
}

/// Returns the problem of two members of tiers that are one address.
pub(super) fn same_member([(tier, member), (other, same)]: [(&Tier, &str); 2]) -> [String; 2] {
    let [tier, member, other, same] = [&tier.name, member, &other.name, same].map(quoted);
    let message = format!("{same}, a member of {other}, is the same address as {member}, a member of {tier}");
    [message, format!("remove {member} or {same}")]
}

/// Returns what occurs twice, with both owners.
fn repeated<T: Copy + Ord, W>(
    all: impl Iterator<Item = (T, usize)>,
    owner: impl Fn(usize) -> Option<W>,
) -> Vec<(T, [W; 2])> {
    let mut all: Vec<(T, usize)> = all.collect();
    all.sort_unstable();
    let pairs = all.iter().zip(all.iter().skip(1)).filter(|(one, other)| one.0 == other.0);
    pairs.filter_map(|(one, other)| Some((one.0, [owner(one.1)?, owner(other.1)?]))).collect()
}
