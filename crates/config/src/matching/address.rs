//! Addresses: reads them, writes them and their prefixes in one form, and finds the longest range that contains one.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::affixes::NONE;

/// Reads a value as an address. An IPv4 address in the form of an IPv6 address (`::ffff:192.0.2.1`) is an IPv4 address.
pub fn address_of(value: &str) -> Option<IpAddr> {
    match ipv4_of(value) {
        Some(address) => Some(address.into()),
        None => Some(IpAddr::V6(value.parse().ok()?).to_canonical()),
    }
}

/// Reads an IPv4 address. Accepts what the standard library accepts, and takes half of its time: most clients of most services
/// have such an address, and rules read it in each request.
fn ipv4_of(value: &str) -> Option<Ipv4Addr> {
    let (mut bits, mut rest) = (0, value.as_bytes());
    for _ in 0..3 {
        let octet;
        (octet, rest) = match rest {
            [one, b'.', rest @ ..] => (octet_of([*one])?, rest),
            [ten, one, b'.', rest @ ..] => (octet_of([*ten, *one])?, rest),
            [hundred, ten, one, b'.', rest @ ..] => (octet_of([*hundred, *ten, *one])?, rest),
            _ => return None,
        };
        bits = bits << 8 | octet;
    }
    let last = match *rest {
        [one] => octet_of([one])?,
        [ten, one] => octet_of([ten, one])?,
        [hundred, ten, one] => octet_of([hundred, ten, one])?,
        _ => return None,
    };
    Some(Ipv4Addr::from_bits(bits << 8 | last))
}

/// Reads one to three digits without zeros in front.
#[inline(always)]
fn octet_of<const DIGITS: usize>(digits: [u8; DIGITS]) -> Option<u32> {
    let mut octet = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        octet = octet * 10 + u32::from(digit);
    }
    let least = match DIGITS {
        1 => 0,
        2 => 10,
        _ => 100,
    };
    (least..=255).contains(&octet).then_some(octet)
}

/// Whether a value can be an IPv6 address. Such a text has a colon, and all its dots come after it.
fn may_be_ipv6(value: &str) -> bool {
    value.bytes().find(|letter| matches!(letter, b'.' | b':')) == Some(b':')
}

/// Returns the text of a value that is read as an address: see [`AddressText::instead_of`].
pub(crate) fn canonical(value: &str) -> Cow<'_, str> {
    AddressText::instead_of(value).map_or(Cow::Borrowed(value), |text| Cow::Owned(text.as_str().to_owned()))
}

/// Returns a pattern of IPv6 addresses in lower case, as the canonical text of an address is. `None` if it is already, or
/// if it is no such pattern.
pub(crate) fn pattern_in_lower_case(value: &str) -> Option<String> {
    let has_upper = value.bytes().any(|byte| byte.is_ascii_uppercase());
    (has_upper && is_address_pattern(value)).then(|| value.to_ascii_lowercase())
}

/// Whether a value of a file is a pattern of IPv6 addresses, such as `2001:db8:*`.
fn is_address_pattern(value: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || b":.*".contains(&byte);
    value.contains('*') && value.contains(':') && value.bytes().all(is_part)
}

/// Whether a pattern of IPv6 addresses has a part that canonical texts do not have: a zero before other digits, zeros that
/// `::` stands for, or the end of an IPv4 address.
pub(crate) fn is_longer_than_addresses(value: &str) -> bool {
    if !is_address_pattern(value) {
        return false;
    }
    let is_long = |group: &str| {
        let digits = group.split('*').next().unwrap_or_default();
        digits.len() > 4 || digits.len() > 1 && digits.starts_with('0')
    };
    let groups: Vec<&str> = value.split(':').collect();
    let has_zeros = groups.windows(2).any(|pair| matches!(pair, ["0", "0" | ""] | ["", "0"]));
    value.contains('.')
        || value.matches("::").count() > 1
        || has_zeros
        || groups.iter().any(|group| is_long(group))
}

/// The length of the longest text of a prefix.
pub(super) const PREFIX_TEXT: usize = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128".len();

/// The text of an address or of a prefix, without an allocation.
#[derive(Copy, Clone)]
pub struct AddressText {
    bytes: [u8; PREFIX_TEXT],
    len: u8,
}

impl AddressText {
    const EMPTY: Self = Self { bytes: [0; PREFIX_TEXT], len: 0 };

    /// Returns the canonical text of a value that is an address in another spelling (`::ffff:192.0.2.1`, `2001:DB8::1`).
    /// A client can choose the spelling, so rules that read the value as an address match and count this text. `None` if
    /// the value is its own text, or is not an address.
    #[inline]
    pub fn instead_of(value: &str) -> Option<Self> {
        // An IPv4 address has one spelling only.
        if may_be_ipv6(value) { Self::of_ipv6(value) } else { None }
    }

    /// Does the same for a value that can be an IPv6 address.
    fn of_ipv6(value: &str) -> Option<Self> {
        let mut text = Self::EMPTY;
        write!(text, "{}", address_of(value)?).ok()?;
        (text.as_str() != value).then_some(text)
    }

    /// Returns the text of the prefix of an address: these leading bits of it.
    pub fn of_prefix(address: IpAddr, bits: u8) -> Self {
        let mut text = Self::EMPTY;
        push_prefix(&mut text, address, bits);
        text
    }

    /// Returns the text.
    #[inline]
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.len.into()).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl fmt::Debug for AddressText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Appends a text if it fits. The longest text of a prefix does.
impl Write for AddressText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let begin = usize::from(self.len);
        let free = self.bytes.get_mut(begin..begin + text.len()).ok_or(fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.len = u8::try_from(begin + text.len()).map_err(|_| fmt::Error)?;
        Ok(())
    }

    /// Texts of addresses are written letter by letter, and the standard library would copy each letter by a call.
    #[inline]
    fn write_char(&mut self, letter: char) -> fmt::Result {
        match (self.bytes.get_mut(usize::from(self.len)), u8::try_from(letter)) {
            (Some(place), Ok(byte)) if byte.is_ascii() => {
                *place = byte;
                self.len += 1;
                Ok(())
            }
            _ => self.write_str(letter.encode_utf8(&mut [0; 4])),
        }
    }
}

/// Appends a character. No `String` and no text of an address refuses it.
fn put(text: &mut impl Write, letter: char) {
    let _ = text.write_char(letter);
}

/// Appends the prefix of an address: `203.0.113.0/24` or `2001:db8:1::/48`. Equal prefixes have equal texts.
fn push_prefix(text: &mut impl Write, address: IpAddr, bits: u8) {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(u32::BITS.saturating_sub(bits.into())).unwrap_or(0);
            push_ipv4(text, (address.to_bits() & mask).to_be_bytes());
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(u128::BITS.saturating_sub(bits.into())).unwrap_or(0);
            let groups = Ipv6Addr::from_bits(address.to_bits() & mask).segments();
            let end = groups.iter().rposition(|group| *group != 0).map_or(0, |last| last + 1);
            for (at, group) in groups.iter().enumerate().take(end) {
                if at > 0 {
                    put(text, ':');
                }
                push_hex(text, *group);
            }
            if end < groups.len() {
                put(text, ':');
                put(text, ':');
            }
        }
    }
    put(text, '/');
    push_number(text, bits);
}

/// Appends an IPv4 address.
pub fn push_ipv4(text: &mut impl Write, octets: [u8; 4]) {
    let [first, rest @ ..] = octets;
    push_number(text, first);
    for octet in rest {
        put(text, '.');
        push_number(text, octet);
    }
}

/// Appends a number in decimal.
fn push_number(text: &mut impl Write, number: u8) {
    let digit = |number: u8| char::from(b'0' + number % 10);
    if number >= 100 {
        put(text, digit(number / 100));
    }
    if number >= 10 {
        put(text, digit(number / 10));
    }
    put(text, digit(number));
}

/// Appends a number in hexadecimal.
fn push_hex(text: &mut impl Write, number: u16) {
    let mut has_begun = false;
    for shift in [12, 8, 4, 0] {
        let digit = u32::from(number >> shift & 0xf);
        has_begun |= digit != 0 || shift == 0;
        if has_begun {
            put(text, char::from_digit(digit, 16).unwrap_or('0'));
        }
    }
}

/// Ranges of addresses, each with a node. Finds the longest range that contains an address.
///
/// Ranges are nested or disjoint, so they cut the addresses into intervals. In each interval, one range is the longest.
/// A search finds the interval. A range takes at most two intervals, of 9 bytes each for IPv4 and 21 for IPv6, and 18 bytes
/// for explanations.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    ipv4: Intervals<u32>,
    ipv6: Intervals<u128>,
}

/// The intervals of one kind of addresses, in order. Each ends where the next one begins.
#[derive(Debug, Default)]
struct Intervals<T> {
    /// The last level has the first address of each interval. A level above has the first address of each block of the
    /// level below. A block is one cache line for IPv4. Without these levels, the steps of a binary search would read as
    /// many distant cache lines.
    levels: Vec<Box<[T]>>,
    /// `NONE` for an interval outside all ranges.
    nodes: Box<[u32]>,
}

/// The number of addresses in a block.
const BLOCK: usize = 16;

impl Ranges {
    /// Builds the search. No range may occur twice.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (IpNet, u32)>) -> Self {
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        for (range, node) in ranges {
            match range {
                IpNet::V4(v4) => ipv4.push((v4.network().to_bits(), v4.broadcast().to_bits(), node)),
                IpNet::V6(v6) => ipv6.push((v6.network().to_bits(), v6.broadcast().to_bits(), node)),
            }
        }
        Self {
            ipv4: Intervals::new(ipv4, |last| last.checked_add(1)),
            ipv6: Intervals::new(ipv6, |last| last.checked_add(1)),
        }
    }

    /// Returns the node of the longest range that contains the address.
    pub(crate) fn find(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(address) => self.ipv4.find(address.to_bits()),
            IpAddr::V6(address) => self.ipv6.find(address.to_bits()),
        }
    }
}

impl<T: Copy + Ord> Intervals<T> {
    /// Builds the intervals from ranges: the first and the last address, and the node.
    fn new(mut ranges: Vec<(T, T, u32)>, next: impl Fn(T) -> Option<T>) -> Self {
        // A range before the ranges inside it.
        ranges.sort_unstable_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
        let mut intervals: Vec<(T, u32)> = Vec::with_capacity(ranges.len().saturating_mul(2));
        // The ranges around the present place, from outside to inside.
        let mut open: Vec<(T, u32)> = Vec::new();
        let close = |intervals: &mut Vec<(T, u32)>, open: &mut Vec<(T, u32)>| {
            if let Some((last, _)) = open.pop()
                && let Some(after) = next(last)
            {
                push(intervals, after, open.last().map_or(NONE, |(_, node)| *node));
            }
        };
        for (first, last, node) in ranges {
            while open.last().is_some_and(|(end, _)| *end < first) {
                close(&mut intervals, &mut open);
            }
            push(&mut intervals, first, node);
            open.push((last, node));
        }
        while !open.is_empty() {
            close(&mut intervals, &mut open);
        }
        let (mut level, nodes): (Vec<T>, Vec<u32>) = intervals.into_iter().unzip();
        let mut levels = Vec::new();
        while level.len() > BLOCK {
            let above = level.iter().step_by(BLOCK).copied().collect();
            levels.push(std::mem::replace(&mut level, above).into());
        }
        levels.push(level.into());
        levels.reverse();
        Self { levels, nodes: nodes.into() }
    }

    fn find(&self, address: T) -> Option<u32> {
        let mut at = 0;
        for level in &self.levels {
            let start = at * BLOCK;
            let block = level.get(start..level.len().min(start + BLOCK))?;
            // Counts instead of a binary search: the comparisons do not wait for each other.
            at = start + block.iter().filter(|first| **first <= address).count().checked_sub(1)?;
        }
        let node = *self.nodes.get(at)?;
        (node != NONE).then_some(node)
    }
}

/// Adds an interval. It replaces an interval that would be empty.
fn push<T: Copy + Ord>(intervals: &mut Vec<(T, u32)>, first: T, node: u32) {
    match intervals.last_mut() {
        Some(last) if last.0 == first => last.1 = node,
        _ => intervals.push((first, node)),
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn prefix(address: &str, bits: u8) -> String {
        AddressText::of_prefix(address_of(address).expect("an address"), bits).as_str().to_owned()
    }

    #[test]
    fn prefixes_have_one_text() {
        let rows = [
            ("203.0.113.77", 32, "203.0.113.77/32"),
            ("203.0.113.77", 24, "203.0.113.0/24"),
            ("203.0.113.77", 1, "128.0.0.0/1"),
            ("::ffff:203.0.113.77", 24, "203.0.113.0/24"),
            ("2001:db8:0:1:2:3:4:5", 64, "2001:db8:0:1::/64"),
            ("2001:DB8:0:1ff::", 56, "2001:db8:0:100::/56"),
            ("2001:db8::1", 64, "2001:db8::/64"),
            ("2001:db8::1", 128, "2001:db8:0:0:0:0:0:1/128"),
            ("::1", 48, "::/48"),
        ];
        for (address, bits, text) in rows {
            assert_eq!(prefix(address, bits), text, "{address}/{bits}");
            assert!(text.parse::<IpNet>().is_ok(), "{text}");
        }
        assert_eq!(prefix("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 128).len(), PREFIX_TEXT);
        assert_eq!(address_of("2001:db8::1%eth0"), None);
        assert_eq!(address_of("203.0.113.7:80"), None);
    }

    #[test]
    fn addresses_are_read_as_by_the_standard_library() {
        let octets = ["", "0", "07", "9", "25", "255", "256", "260", "+1"];
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            let joined = |text: &String| octets.map(|octet| format!("{text}.{octet}"));
            texts = texts.iter().flat_map(joined).collect();
            for text in &texts {
                let text = &text[1..];
                assert_eq!(ipv4_of(text), text.parse().ok(), "{text}");
            }
        }
        let others = "1.2.3.4.5 1.2.3.4:80 1.2.3.4:: 1.2::3 ::1.2.3.4 ::ffff:1.2.3.4 1:2:: : . é.1.2.3";
        for text in others.split(' ') {
            let address = text.parse::<IpAddr>().ok().map(|address| address.to_canonical());
            assert_eq!(address_of(text), address, "{text}");
        }
    }

    #[test]
    fn addresses_have_one_text() {
        let rows = [
            ("192.0.2.1", None),
            ("2001:db8::1", None),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("::ffff:c000:201", Some("192.0.2.1")),
            ("2001:DB8::1", Some("2001:db8::1")),
            ("2001:0db8:0:0::0001", Some("2001:db8::1")),
            (
                "ABCD:ABCD:ABCD:ABCD:ABCD:ABCD:192.168.158.190",
                Some("abcd:abcd:abcd:abcd:abcd:abcd:c0a8:9ebe"),
            ),
            ("[2001:DB8::1]", None),
            ("user:7", None),
            ("", None),
        ];
        for (value, text) in rows {
            assert_eq!(AddressText::instead_of(value).as_ref().map(AddressText::as_str), text, "{value}");
        }
    }

    // G123
    #[test]
    fn patterns_that_no_address_has_are_known() {
        let long = "2001:0db8:* 0db8:* *:0001 2001:db8:0:0:* 2001:db8::0:* 0::* 2001:0*:00* ::ffff:10.* \
                    2001:12345:* a::b::* 2001:DB8:0DB8:*";
        for long in long.split(' ') {
            assert!(is_longer_than_addresses(long), "{long}");
        }
        let short = "2001:db8:* 2001:DB8::* *::1 2001:db8:0:* fe80::*:0 10.0.* x:00* 2001:0db8::1";
        for short in short.split(' ') {
            assert!(!is_longer_than_addresses(short), "{short}");
        }
        assert_eq!(pattern_in_lower_case("2001:DB8::*").as_deref(), Some("2001:db8::*"));
        for same in ["2001:db8::*", "USER:*", "FE80*", "2001:DB8::1"] {
            assert_eq!(pattern_in_lower_case(same), None, "{same}");
        }
    }

    // G123
    #[test]
    fn longest_range_is_found() {
        let nested =
            ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.255.0.0/16", "255.255.255.255/32", "::/1"];
        let ranges =
            Ranges::new((0..).zip(nested).map(|(node, range)| (range.parse().expect("a range"), node)));
        let rows = [
            ("9.255.255.255", Some(0)),
            ("10.0.0.0", Some(2)),
            ("10.0.255.255", Some(2)),
            ("10.1.0.0", Some(1)),
            ("10.255.255.255", Some(3)),
            ("11.0.0.0", Some(0)),
            ("255.255.255.254", Some(0)),
            ("255.255.255.255", Some(4)),
            ("7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some(5)),
            ("8000::", None),
        ];
        for (address, node) in rows {
            assert_eq!(ranges.find(address.parse().expect("an address")), node, "{address}");
        }
        assert_eq!(Ranges::default().find("::1".parse().expect("an address")), None);
    }
}
