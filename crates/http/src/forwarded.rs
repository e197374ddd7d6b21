//! Reads the addresses in `X-Forwarded-For` and `Forwarded` from right to left.
//!
//! Each proxy appends the address that it saw. The right end therefore comes from your own proxies, and everything to
//! the left may come from the client. With right-to-left reading, client text cannot change how the proxies' part is
//! read:
//!
//! 1. Several header lines form one list, in order. A quoted string ends within its line.
//! 2. `Forwarded` has quoted strings, and a comma inside one is no separator. The part from the proxies is well formed,
//!    so each quotation mark pairs with the next one to its left. An odd number of backslashes precedes a quotation
//!    mark inside a quoted string, and `=` precedes the opening one.
//! 3. An element without an address still counts. The reader returns `None` for it, and the caller stops there.
//!
//! The work is bounded, and linear in the bytes read: the reader gives up on an element that is longer than servers
//! accept.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The length of the longest element that is read. An element of `Forwarded` may contain a host that the client wrote,
/// and a long host must not hide the address. The bound is therefore the size of the request heads that servers accept.
const LONGEST: usize = 64 * 1_024;

/// The length of the longest address with a port: `"[" 39 or 45 characters "]" ":" 5 or an obfuscated port`.
const LONGEST_NODE: usize = 128;

/// The syntax of the field's elements.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Syntax {
    /// `X-Forwarded-For: 203.0.113.7, 10.0.0.1`.
    Addresses,
    /// `Forwarded: for=203.0.113.7;proto=https, for="[2001:db8::1]:4711"` (RFC 7239).
    Pairs,
}

/// Iterates over the elements of a list field from right to left. Yields the address of each element, or `None` for an
/// element without one. Ends after an element that is too long.
#[derive(Debug)]
pub struct FromRight<'h, I> {
    syntax: Syntax,
    lines: I,
    rest: Option<&'h [u8]>,
}

impl<'h, I: DoubleEndedIterator<Item = &'h [u8]>> FromRight<'h, I> {
    /// The lines of the field, in order.
    pub fn new(syntax: Syntax, lines: I) -> Self {
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
            // The positions of the elements further left are not known.
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

/// Returns the start of the last element in a line. Returns `None` if the element is too long, or if its quotation
/// marks do not match.
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

/// Returns the address in the `for` parameter of a `Forwarded` element.
fn pairs(element: &[u8]) -> Option<IpAddr> {
    let mut rest = element;
    let mut found = None;
    loop {
        rest = rest.trim_ascii_start();
        // A pair may be empty (RFC 7239 §4: `[ forwarded-pair ] *( ";" [ forwarded-pair ] )`).
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

/// Returns the token, or the inside of the quoted string, at the start of `text`, and the rest. A token may contain the
/// punctuation of addresses, because some proxies do not quote them.
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

/// Returns the [`node`] of a value in which each backslash escapes the next byte.
fn unescaped_node(value: &[u8]) -> Option<IpAddr> {
    let (mut bytes, mut len) = ([0; LONGEST_NODE], 0);
    let mut rest = value.iter();
    while let Some(&byte) = rest.next() {
        *bytes.get_mut(len)? = if byte == b'\\' { *rest.next()? } else { byte };
        len += 1;
    }
    node(&bytes[..len])
}

/// Whether a byte may be part of a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Parses an address with or without a port; IPv6 may be in brackets. Rejects `unknown`, obfuscated names (`_gateway`),
/// addresses with a zone, 0.0.0.0 and `::`.
pub fn node(text: &[u8]) -> Option<IpAddr> {
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

/// Whether this is a port, in digits or obfuscated (RFC 7239 §6.2).
fn port(text: &str) -> Option<()> {
    let is_number = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_obfuscated = text
        .strip_prefix('_')
        .is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
    (text.len() > usize::from(is_obfuscated) && (is_number || is_obfuscated)).then_some(())
}

/// Returns the canonical form of an address: IPv4 in IPv6, mapped or translated, becomes IPv4. Returns `None` for the
/// unspecified address.
pub fn known(address: IpAddr) -> Option<IpAddr> {
    let address = tollgate::address_prefix(address, 32, 128);
    (!address.is_unspecified()).then_some(address)
}
