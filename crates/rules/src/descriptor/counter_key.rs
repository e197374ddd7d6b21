//! The key under which a rule counts a request.

use std::cell::OnceCell;
use std::fmt::Write as _;

use smallvec::SmallVec;
use tollgate_config::internals::{AddressText, address_of};

use super::Descriptor;

/// The length of the longest key, in bytes, that is stored as it is. Addresses, names and most paths are shorter.
pub(crate) const LONGEST: usize = 256;

/// The length of the part of a longer key that is kept for readers.
const KEPT: usize = 64;

/// The key under which a rule counts a request: the values of some entries.
#[derive(Clone, Debug)]
pub(crate) enum CounterKey<'a> {
    /// One value, or none. A rule with one part takes the value itself, and not [`CounterKey::new`].
    Whole(&'a str),
    /// An address or its prefix, in a text that the request does not have.
    Address(AddressText),
    /// Several values, each with its length before it.
    Joined(String),
}

/// Room for the texts of keys that a request does not have itself: prefixes of its addresses, and addresses in another spelling.
#[derive(Debug, Default)]
pub(crate) struct KeyTexts([OnceCell<AddressText>; TEXTS]);

/// One for each length of `prefixes` that most files have.
const TEXTS: usize = 4;

impl KeyTexts {
    /// Keeps a text. `None` if there is no room.
    fn keep(&self, text: AddressText) -> Option<&str> {
        let place = self.0.iter().find(|place| place.get().is_none())?;
        Some(place.get_or_init(|| text).as_str())
    }
}

impl<'a> CounterKey<'a> {
    /// Returns the key as a text, if it is a text of the request, or there is room for it.
    pub(crate) fn kept_in(self, texts: Option<&'a KeyTexts>) -> Option<&'a str> {
        match self {
            Self::Whole(text) => Some(text),
            Self::Address(text) => texts?.keep(text),
            Self::Joined(_) => None,
        }
    }

    /// Builds the key from the values of the entries in the first mask, with their keys if `keys_vary`, and from the
    /// keys alone of the entries in the second mask.
    pub(crate) fn new(
        entries: &'a [(&'a str, &'a str)],
        [counted_by, counted_by_key]: [u32; 2],
        keys_vary: bool,
    ) -> Self {
        let is_set = |mask: u32, bit: u32| mask >> bit & 1 == 1;
        let counted =
            || (0..u32::BITS).zip(entries).filter(move |(bit, _)| is_set(counted_by | counted_by_key, *bit));
        if counted_by | counted_by_key == 0 {
            return Self::Whole("");
        }
        // Nearly all lengths need at most three digits.
        let of = |text: &str| text.len() + 4;
        let length = counted().map(|(_, (key, value))| of(value) + if keys_vary { of(key) } else { 0 }).sum();
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

    /// Builds the key of a rule that reads one value as an address, and counts by nothing else. All spellings of the
    /// address have this key. A value that is not an address counts as it is.
    pub(crate) fn of_address(value: &'a str) -> Self {
        AddressText::instead_of(value).map_or(Self::Whole(value), Self::Address)
    }

    /// Does the same for the first `bits` of the address.
    pub(crate) fn of_prefix(value: &'a str, bits: u8) -> Self {
        let prefix = |address| Self::Address(AddressText::of_prefix(address, bits));
        address_of(value).map_or(Self::Whole(value), prefix)
    }

    /// Builds the key as [`CounterKey::new`] does, for a rule that reads the values of the entries in `addresses` as
    /// addresses. A `prefix` replaces the value of the last entry: these leading bits of this address.
    #[cold]
    pub(crate) fn with_addresses(
        entries: &'a [(&'a str, &'a str)],
        counted_by: [u32; 2],
        keys_vary: bool,
        (addresses, prefix): (u32, Option<(&'a str, u8)>),
    ) -> Self {
        let texts: SmallVec<[Self; 4]> = Self::of_each(entries, (addresses, prefix)).collect();
        let entries: SmallVec<[_; 4]> =
            entries.iter().zip(&texts).map(|(&(key, _), text)| (key, text.as_str())).collect();
        Self::Joined(CounterKey::new(&entries, counted_by, keys_vary).as_str().to_owned())
    }

    /// Returns the text of each entry's value as it is counted.
    fn of_each(
        entries: &'a [(&'a str, &'a str)],
        (addresses, prefix): (u32, Option<(&'a str, u8)>),
    ) -> impl Iterator<Item = Self> {
        let last = entries.len().saturating_sub(1);
        (0..).zip(entries).map(move |(at, &(_, value))| match prefix {
            Some((whole, bits)) if at == last => Self::of_prefix(whole, bits),
            _ if addresses.checked_shr(u32::try_from(at).unwrap_or(u32::MAX)).unwrap_or(0) & 1 == 1 => {
                Self::of_address(value)
            }
            _ => Self::Whole(value),
        })
    }

    /// Returns the entries of a key for readers, `path=/,ip=192.0.2.1`, as [`CounterKey::with_addresses`] counts them. All of
    /// them if the masks are empty, as for a limit that the request sets.
    #[cold]
    pub(crate) fn shown(
        entries: &'a [(&'a str, &'a str)],
        [counted_by, counted_by_key]: [u32; 2],
        read: (u32, Option<(&'a str, u8)>),
    ) -> String {
        let is_all = counted_by | counted_by_key == 0;
        let mut shown = String::new();
        for (bit, (&(key, _), text)) in (0..).zip(entries.iter().zip(Self::of_each(entries, read))) {
            let is_set = |mask: u32| mask.checked_shr(bit).unwrap_or(0) & 1 == 1;
            if !is_all && !is_set(counted_by | counted_by_key) {
                continue;
            }
            if !shown.is_empty() {
                shown.push(',');
            }
            shown.push_str(key);
            if is_all || is_set(counted_by) {
                shown.push('=');
                shown.push_str(text.as_str());
            }
        }
        shown
    }

    /// Builds the key of a limit that the request sets: the domain, and the keys and counted values of all entries.
    pub(crate) fn of_request(domain: &str, descriptor: &Descriptor<'_>) -> Self {
        let mut joined = String::new();
        push(&mut joined, domain);
        for (key, value) in descriptor.counted() {
            push(&mut joined, key);
            push(&mut joined, value);
        }
        Self::Joined(joined)
    }

    /// Returns the key in the form that is stored. A client can choose a value of any length, so a long key is stored as
    /// its beginning and a hash of the whole. The hash must be one for which no caller can choose two keys.
    #[inline]
    pub(crate) fn bounded(self, hash: impl FnOnce(&str) -> u128) -> Self {
        // The text of an address is short.
        let fits = matches!(self, Self::Address(_)) || self.as_str().len() <= LONGEST;
        if fits { self } else { Self::Joined(shortened(self.as_str(), hash)) }
    }

    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Whole(value) => value,
            Self::Address(text) => text.as_str(),
            Self::Joined(joined) => joined,
        }
    }
}

#[cold]
fn shortened(key: &str, hash: impl FnOnce(&str) -> u128) -> String {
    let kept = (0..=KEPT).rev().find_map(|end| key.get(..end)).unwrap_or_default();
    format!("{kept}\u{2026}{:032x}", hash(key))
}

/// Appends a text after its length. The length distinguishes ("a", "bc") from ("ab", "c").
fn push(joined: &mut String, text: &str) {
    const DIGITS: &str = "0123456789";
    let digit = |digit: usize| DIGITS.get(digit..=digit).unwrap_or_default();
    match text.len() {
        // Nearly all lengths. Formatting takes far more time.
        length @ ..100 => {
            if length > 9 {
                joined.push_str(digit(length / 10));
            }
            joined.push_str(digit(length % 10));
        }
        // Writing to a `String` does not fail.
        length => _ = write!(joined, "{length}"),
    }
    joined.push(':');
    joined.push_str(text);
}
