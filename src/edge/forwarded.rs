//! Addresses in `X-Forwarded-For` and `Forwarded`, read from the right.
//!
//! Each proxy appends what it saw, so the right end is written by one's own proxies, and everything to the left of that by whoever
//! sent the request. Reading from the right, nothing that a client writes can change how the part is read that it did not write:
//!
//! - Several header lines are one list, in order. A quoted string ends within its line.
//! - `Forwarded` has quoted strings, in which a comma separates nothing. What the proxies appended is well formed, so each
//!   quotation mark is paired with the next one to its left; in a quoted string one is preceded by an odd number of backslashes,
//!   and the one that opens it by `=`.
//! - An element that is no address is an answer too: the reader says so, and the caller stops there.
//!
//! Work is bounded, and linear in what is read: an element longer than servers take is not read to its end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest element that is read. In `Forwarded` it may have a host that the client wrote, which must not hide its address: so it is
/// as long as the heads that servers take.
const LONGEST: usize = 64 * 1_024;

/// The longest address with a port: `"[" 39 or 45 characters "]" ":" 5 or an obfuscated port`.
const LONGEST_NODE: usize = 128;

/// How the elements of a field are written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Syntax {
    /// `X-Forwarded-For: 203.0.113.7, 10.0.0.1`.
    Addresses,
    /// `Forwarded: for=203.0.113.7;proto=https, for="[2001:db8::1]:4711"` (RFC 7239).
    Pairs,
}

/// The elements of a list field from the right: the address of each, or `None` for one that has none. Ends after an element
/// that is too long.
#[derive(Debug)]
pub(crate) struct FromRight<'h, I> {
    syntax: Syntax,
    lines: I,
    rest: Option<&'h [u8]>,
}

impl<'h, I: DoubleEndedIterator<Item = &'h [u8]>> FromRight<'h, I> {
    /// Of the lines of the field, in order.
    pub(crate) fn new(syntax: Syntax, lines: I) -> Self {
        Self { syntax, lines, rest: None }
    }
}

impl<'h, I: DoubleEndedIterator<Item = &'h [u8]>> Iterator for FromRight<'h, I> {
    type Item = Option<IpAddr>;

    fn next(&mut self) -> Option<Option<IpAddr>> {
        let line = match self.rest.take() {
            Some(rest) => rest,
            None => self.lines.next_back()?,
        };
        let Some(start) = last_element(line, self.syntax == Syntax::Pairs) else {
            // Nothing further to the left is in its place.
            while self.lines.next_back().is_some() {}
            return Some(None);
        };
        let element = &line[start..];
        self.rest = start.checked_sub(1).map(|comma| &line[..comma]);
        Some(match self.syntax {
            Syntax::Addresses => node(element.trim_ascii()),
            Syntax::Pairs => pairs(element.trim_ascii()),
        })
    }
}

/// Where the last element of a line begins; `None` if it is too long, or its quotation marks do not match.
fn last_element(line: &[u8], quotes: bool) -> Option<usize> {
    let mut quoted = false;
    let mut at = line.len();
    let end = line.len().saturating_sub(LONGEST);
    while at > end {
        match line[at - 1] {
            b',' if !quoted => return Some(at),
            b'"' if quotes => {
                let backslashes = line[end..at - 1].iter().rev().take_while(|&&byte| byte == b'\\').count();
                quoted = !quoted || backslashes % 2 == 1;
            }
            _ => {}
        }
        at -= 1;
    }
    (at == 0 && !quoted).then_some(0)
}

/// The address in `for` of an element of `Forwarded`.
fn pairs(element: &[u8]) -> Option<IpAddr> {
    let mut rest = element;
    let mut found = None;
    loop {
        rest = rest.trim_ascii_start();
        // Pairs may be left out (RFC 7239 §4: `[ forwarded-pair ] *( ";" [ forwarded-pair ] )`).
        while let [b';', after @ ..] = rest {
            rest = after.trim_ascii_start();
        }
        if rest.is_empty() {
            return unescaped_node(found?);
        }
        let equals = rest.iter().position(|&byte| byte == b'=')?;
        let name = &rest[..equals];
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return None;
        }
        let (value, after) = value(&rest[equals + 1..])?;
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
        rest = after.trim_ascii_start();
        if !matches!(rest, [] | [b';', ..]) {
            return None;
        }
    }
}

/// The token or the inside of the quoted string at the start of `text`, and what follows it. Tokens may have the signs of addresses:
/// not all proxies quote them.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some((b'"', inside)) = text.split_first() else {
        let is_value = |byte: u8| is_token(byte) || matches!(byte, b':' | b'[' | b']');
        let len = text.iter().position(|&byte| !is_value(byte)).unwrap_or(text.len());
        return (len > 0).then(|| text.split_at(len));
    };
    let mut escaped = false;
    let end = inside.iter().position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some((&inside[..end], &inside[end + 1..]))
}

/// [`node`] of a value, each backslash in which escapes the byte after it.
fn unescaped_node(value: &[u8]) -> Option<IpAddr> {
    let (mut bytes, mut len) = ([0; LONGEST_NODE], 0);
    let mut rest = value.iter();
    while let Some(&byte) = rest.next() {
        *bytes.get_mut(len)? = if byte == b'\\' { *rest.next()? } else { byte };
        len += 1;
    }
    node(&bytes[..len])
}

/// A character of a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// An address, IPv6 in brackets or not, with or without a port. `unknown` and obfuscated names (`_gateway`) are none; nor are
/// addresses with a zone, nor 0.0.0.0 and `::`.
pub(crate) fn node(text: &[u8]) -> Option<IpAddr> {
    if text.len() > LONGEST_NODE {
        return None;
    }
    let text = str::from_utf8(text).ok()?;
    if let Some(inner) = text.strip_prefix('[') {
        let (address, after) = inner.split_once(']')?;
        if !after.is_empty() {
            port(after.strip_prefix(':')?)?;
        }
        return known(address.parse::<Ipv6Addr>().ok()?.into());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return known(address);
    }
    let (address, after) = text.split_once(':')?;
    port(after)?;
    known(address.parse::<Ipv4Addr>().ok()?.into())
}

/// A port, in digits or obfuscated (RFC 7239 §6.2).
fn port(text: &str) -> Option<()> {
    let is_number = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_obfuscated = text
        .strip_prefix('_')
        .is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
    (text.len() > usize::from(is_obfuscated) && (is_number || is_obfuscated)).then_some(())
}

/// The well-known prefix of IPv4 addresses that a NAT64 translates (RFC 6052 §2.1): 64:ff9b::/96.
const NAT64: u128 = 0x0064_ff9b << 96;

/// The IPv4 address that an IPv6 address stands for: mapped (`::ffff:0:0/96`) or translated (`64:ff9b::/96`).
pub(crate) fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    #[expect(clippy::cast_possible_truncation, reason = "the last 32 bits")]
    let translated = (bits >> 32 == NAT64 >> 32).then(|| Ipv4Addr::from_bits(bits as u32));
    address.to_ipv4_mapped().or(translated)
}

/// An address as it is compared: IPv4 in IPv6 is IPv4, and the unspecified one is nobody's.
pub(crate) fn known(address: IpAddr) -> Option<IpAddr> {
    let address = match address {
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    (!address.is_unspecified()).then_some(address)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn read(syntax: Syntax, lines: &[&str]) -> Vec<Option<String>> {
        let lines = lines.iter().map(|line| line.as_bytes());
        FromRight::new(syntax, lines).map(|address| address.map(|address| address.to_string())).collect()
    }

    fn some(addresses: &[&str]) -> Vec<Option<String>> {
        addresses.iter().map(|&address| (!address.is_empty()).then(|| address.to_owned())).collect()
    }

    #[test]
    fn addresses_in_all_spellings() {
        let cases = [
            ("203.0.113.7", "203.0.113.7"),
            ("203.0.113.7:80", "203.0.113.7"),
            ("203.0.113.7:_port", "203.0.113.7"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("[::ffff:cb00:7107]:1", "203.0.113.7"),
            ("64:ff9b::203.0.113.7", "203.0.113.7"),
            ("[64:ff9b::cb00:7107]:443", "203.0.113.7"),
            ("64:ff9b::", ""),
            // A network's own prefix (RFC 8215), not the well-known one.
            ("64:ff9b:1::cb00:7107", "64:ff9b:1::cb00:7107"),
            ("64:ff9b::1:cb00:7107", "64:ff9b::1:cb00:7107"),
            ("", ""),
            ("unknown", ""),
            ("_hidden", ""),
            ("_SEVKISEK:80", ""),
            ("0.0.0.0", ""),
            ("[::]", ""),
            ("::ffff:0.0.0.0", ""),
            ("203.0.113.07", ""),
            ("203.0.113.7:", ""),
            ("203.0.113.7:x", ""),
            ("203.0.113.7:123456", ""),
            ("203.0.113.7:_", ""),
            ("203.0.113.7 8", ""),
            ("[2001:db8::1", ""),
            ("[2001:db8::1]4711", ""),
            ("[203.0.113.7]", ""),
            ("fe80::1%eth0", ""),
            ("localhost", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(read(Syntax::Addresses, &[text]), some(&[expected]), "{text:?}");
        }
    }

    #[test]
    fn lists_are_read_from_the_right_over_all_lines() {
        let lines = ["10.0.0.1, 10.0.0.2", "10.0.0.3", " 10.0.0.4 ,\t10.0.0.5"];
        let expected = ["10.0.0.5", "10.0.0.4", "10.0.0.3", "10.0.0.2", "10.0.0.1"];
        assert_eq!(read(Syntax::Addresses, &lines), some(&expected));
        assert_eq!(read(Syntax::Addresses, &[]), some(&[]));
        assert_eq!(read(Syntax::Addresses, &["10.0.0.1,,"]), some(&["", "", "10.0.0.1"]));
    }

    #[test]
    fn an_element_that_is_too_long_ends_the_list() {
        let long = format!("10.0.0.1, {}9", " ".repeat(LONGEST));
        assert_eq!(read(Syntax::Addresses, &["10.0.0.3", &long, "10.0.0.2"]), some(&["10.0.0.2", ""]));
    }

    /// What a client writes, and a proxy copies, beside its address does not hide that.
    #[test]
    fn a_long_host_hides_nobody() {
        for length in [1_100, 60_000] {
            let line = format!("proto=http;host=\"{}\";for=203.0.113.7", "\\\"".repeat(length / 2));
            assert_eq!(read(Syntax::Pairs, &[&line]), some(&["203.0.113.7"]), "{length}");
        }
    }

    #[test]
    fn forwarded_in_all_spellings() {
        let cases = [
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("proto=https;FOR=\"192.0.2.60:80\"", "192.0.2.60"),
            ("for=192.0.2.60:80", "192.0.2.60"),
            ("for=[2001:db8::1]", "2001:db8::1"),
            ("for=\"192\\.0.2.60\"", "192.0.2.60"),
            ("host=\"a, for=10.0.0.1\";for=192.0.2.60", "192.0.2.60"),
            ("host=\"\\\", for=10.0.0.1\";for=192.0.2.60", "192.0.2.60"),
            ("for=192.0.2.60 ; by=_x", "192.0.2.60"),
            ("for=\"_gazonk\"", ""),
            ("for=unknown", ""),
            ("for=", ""),
            ("for=\"\"", ""),
            ("=192.0.2.60", ""),
            ("for", ""),
            ("", ""),
            ("by=192.0.2.60", ""),
            ("for=192.0.2.60;for=192.0.2.61", ""),
            // Empty pairs.
            ("for=192.0.2.60;", "192.0.2.60"),
            (";for=192.0.2.60", "192.0.2.60"),
            ("for=192.0.2.60; ;proto=https ;; ", "192.0.2.60"),
            (";", ""),
            (";;for=192.0.2.60;;for=192.0.2.61", ""),
            ("for=192.0.2.60;by", ""),
            ("for=\"192.0.2.60\"x", ""),
            ("for =192.0.2.60", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(read(Syntax::Pairs, &[text]), some(&[expected]), "{text:?}");
        }
    }

    /// Whatever a client writes, what a proxy appends is read as it is.
    #[test]
    fn an_unfinished_quotation_hides_nothing_to_its_right() {
        for left in ["for=\"", "\"", "\\", "for=\"\\", "for=\"a\\\"", ",,,", "x=\"\\\\"] {
            let line = format!("{left}, for=\"[2001:db8::1]:80\";host=\"x\\\\\", for=192.0.2.60");
            let read = read(Syntax::Pairs, &[&line]);
            assert_eq!(read[..2], some(&["192.0.2.60", "2001:db8::1"])[..], "{left:?}");
        }
    }
}
