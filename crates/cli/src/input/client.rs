//! The conversion of a log field's text to the client that a server would limit.
//!
//! A log contains the peer's address, with or without a port, or a header field with the addresses of several proxies.
//! `tollgate_tower::ClientIp` reads such a field from the right, because the server's own proxies wrote the right end. This
//! module uses the same reader. The layer trusts no header unless the caller states the number of proxies. A list in a
//! log was written by at least one proxy, so one is the default here.

use std::net::IpAddr;
use std::num::NonZero;

use clap::Args;
use memchr::{memchr, memrchr};

use tollgate_http::forwarded::{FromRight, Syntax, node};

/// The settings that decide which addresses are one client.
#[derive(Args, Copy, Clone, PartialEq, Eq, Debug)]
pub struct Clients {
    /// Count IPv6 addresses by this many bits, as the middleware does; 128 counts them whole [default: 64, or 128 with --rules]
    ///
    /// With rules, each address is counted whole, as a gateway sends it, unless a rule has prefixes, which count by their
    /// own bits. --ipv6-prefix 64 counts as the middleware does with rules, which match the whole address. Addresses are read
    /// as in the middleware: a port is removed, and ::ffff:192.0.2.1 is 192.0.2.1.
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(0..=128), help_heading = "Input")]
    pub ipv6_prefix: Option<u8>,

    /// How many of your proxies add an address to a list such as X-Forwarded-For
    ///
    /// The client is the address that the first of these proxies saw: the last of the list with 1, the one before it
    /// with 2. Clients can write everything to the left of that address. A list that is shorter, or has no address in
    /// that place, is skipped; the middleware rejects such a request. The middleware itself trusts no list unless the
    /// number of proxies is set (Proxies::hops).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = proxies, help_heading = "Input")]
    pub proxies: usize,
}

fn proxies(text: &str) -> Result<usize, &'static str> {
    text.parse().map(NonZero::get).map_err(|_| "expected a whole number of proxies, 1 or more")
}

impl Default for Clients {
    fn default() -> Self {
        Self { ipv6_prefix: None, proxies: 1 }
    }
}

/// The client in a field's text.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Client {
    /// No address: the text itself is the key.
    Text,
    /// An address, with IPv6 cut to its network, and what was removed from the text.
    Address(IpAddr, AddressCounts),
    /// A list in which the address that the proxies wrote is missing or cannot be read.
    Unknown,
}

/// The changes to addresses: to one address, to those of a record, or the number of records.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressCounts {
    /// An IPv6 address was cut to its network.
    pub networks: u64,
    /// A port was cut off.
    pub ports: u64,
    /// The address was taken from a list.
    pub lists: u64,
    /// A virtual host comes before it.
    pub virtual_hosts: u64,
}

impl AddressCounts {
    /// Counts the changes to one address or in one record, each once.
    pub fn add(&mut self, one: Self) {
        self.networks += one.networks.min(1);
        self.ports += one.ports.min(1);
        self.lists += one.lists.min(1);
        self.virtual_hosts += one.virtual_hosts.min(1);
    }
}

impl Clients {
    /// Returns how many leading bits of an IPv6 address count.
    pub fn ipv6_bits(self) -> u8 {
        self.ipv6_prefix.unwrap_or(64)
    }

    /// Counts addresses whole unless the command line says otherwise, as a gateway sends them to rules.
    pub fn whole_by_default(self) -> Self {
        Self { ipv6_prefix: self.ipv6_prefix.or(Some(128)), ..self }
    }

    /// Reads a field's text.
    pub fn read(self, text: &[u8]) -> Client {
        if memchr(b'+', text).is_some() && memchr(b'=', text).is_none() {
            // IIS writes a space as +, which no address has.
            let spaced: Vec<u8> = text.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
            return self.read(&spaced);
        }
        let text = without_quotes(text.trim_ascii());
        let place = self.proxies.saturating_sub(1);
        let Some(syntax) = list_syntax(text) else {
            let found = node(text).map(|address| (address, has_port(text)));
            return match found.or_else(|| unusual(text)) {
                None => Client::Text,
                // A list of one is too short for several proxies.
                Some(_) if place > 0 => Client::Unknown,
                Some((address, has_port)) => {
                    self.cut(address, AddressCounts { ports: has_port.into(), ..AddressCounts::default() })
                }
            };
        };
        let addresses = || FromRight::new(syntax, [text].into_iter());
        if !addresses().any(|address| address.is_some()) {
            return Client::Text;
        }
        match addresses().nth(place).flatten() {
            Some(address) => self.cut(address, AddressCounts { lists: 1, ..AddressCounts::default() }),
            None => Client::Unknown,
        }
    }

    /// Does the same, but does not cut the address. The counts are those of an address that is cut.
    pub fn read_whole(self, text: &[u8]) -> Client {
        match (Self { ipv6_prefix: Some(128), ..self }).read(text) {
            Client::Address(address, seen) => Client::Address(address, self.counts(address, seen)),
            other => other,
        }
    }

    fn cut(self, address: IpAddr, seen: AddressCounts) -> Client {
        Client::Address(self.network(address), self.counts(address, seen))
    }

    fn counts(self, address: IpAddr, seen: AddressCounts) -> AddressCounts {
        AddressCounts { networks: u64::from(address.is_ipv6() && self.ipv6_bits() < 128), ..seen }
    }

    /// Returns the network by which an address is counted.
    pub fn network(self, address: IpAddr) -> IpAddr {
        tollgate::address_prefix(address, 32, self.ipv6_bits())
    }
}

/// Returns whether a field of this name holds the request's target instead of its source. The target may be an address
/// too.
pub fn is_target(field: &str) -> bool {
    let name = field.rsplit('.').next().unwrap_or(field).to_ascii_lowercase();
    ["path", "url", "uri", "query", "resource", "route", "target"].iter().any(|part| name.contains(part))
        || name == "request"
}

/// Removes quotes around a whole text, as some formats write them around a list. `for="[2001:db8::1]"` keeps its own.
pub fn without_quotes(text: &[u8]) -> &[u8] {
    match text {
        [b'"', inner @ .., b'"'] if !inner.contains(&b'"') => inner.trim_ascii(),
        _ => unwrapped(text).unwrap_or(text),
    }
}

/// Returns an address, a list or `-` without the brackets or single quotes around it, if there are any. An IPv6 address keeps
/// its own.
pub fn unwrapped(text: &[u8]) -> Option<&[u8]> {
    let (inner, open, close) = match text {
        [b'\'', inner @ .., b'\''] => (inner.trim_ascii(), b'\'', b'\''),
        [b'(', inner @ .., b')'] => (inner.trim_ascii(), b'(', b')'),
        [b'[', inner @ .., b']'] if node(text).is_none() => (inner.trim_ascii(), b'[', b']'),
        _ => return None,
    };
    // Nothing is around a list such as `[2001:db8::1], [2001:db8::2]`.
    let is_around =
        memchr(close, inner).is_none_or(|end| open != close && memchr(open, &inner[..end]).is_some());
    (is_around && (inner == b"-" || node(last_element(inner)).is_some())).then_some(inner)
}

/// Returns the right end of a list, or an address alone.
pub fn last_element(list: &[u8]) -> &[u8] {
    list.rsplit(|&b| b == b',').next().unwrap_or(list).trim_ascii()
}

/// Whether an address has a port.
pub fn has_port(address: &[u8]) -> bool {
    !address.ends_with(b"]") && str::from_utf8(address).is_ok_and(|text| text.parse::<IpAddr>().is_err())
}

/// Returns the address in a text of a form that header fields do not have, and whether it has a port. The address has a zone,
/// as Go writes `[fe80::1%eth0]:4000`, or no brackets before a port that cannot be a part of it.
fn unusual(text: &[u8]) -> Option<(IpAddr, bool)> {
    if let Some(zone) = memchr(b'%', text) {
        let end = memchr(b']', &text[zone..]).map_or(text.len(), |end| zone + end);
        let text = [&text[..zone], &text[end..]].concat();
        return node(&text).filter(IpAddr::is_ipv6).map(|address| (address, has_port(&text)));
    }
    let colon = memrchr(b':', text).filter(|&colon| memchr(b':', &text[..colon]).is_some())?;
    let (address, port) = text.split_at(colon);
    node(&[b"[", address, b"]", port].concat()).map(|address| (address, true))
}

/// Returns the form of a text that may be a list of addresses. The right end, which a proxy wrote, decides. Paths and
/// links are not lists, even if they contain commas.
fn list_syntax(text: &[u8]) -> Option<Syntax> {
    if text.starts_with(b"/") || text.starts_with(b"http") {
        return None;
    }
    let comma = text.iter().rposition(|&byte| byte == b',');
    let last = comma.map_or(text, |comma| &text[comma + 1..]);
    if last.contains(&b'=') { Some(Syntax::Pairs) } else { comma.map(|_| Syntax::Addresses) }
}
