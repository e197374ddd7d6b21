//! Finds the client address in header fields of random bytes. The reader never panics, and bytes from the client do
//! not affect the answer.
//!
//! - Bytes to the left of the part that the trusted proxies wrote change nothing.
//! - The address is the one that a naive reader of that part finds. It is unknown if that part has an element that is
//!   no address.
//! - For any lines of `X-Forwarded-For`, the answer equals that of a reader that splits all lines and walks from the
//!   right.

#![no_main]

use std::net::{IpAddr, SocketAddr};

use arbitrary::Arbitrary;
use http::{HeaderName, HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use tollgate_tower::{ClientIp, Head, IpNet, PeerAddr, Proxies};

#[derive(Arbitrary, Debug)]
struct Input {
    peer: IpAddr,
    /// Lines that a client wrote.
    left: Vec<Vec<u8>>,
    /// Elements that proxies appended, each in a separate line or not.
    right: Vec<(Element, bool)>,
    hops: u8,
    networks: Vec<(IpAddr, u8)>,
    forwarded: bool,
}

/// An element that a proxy appends.
#[derive(Arbitrary, Debug)]
enum Element {
    Address {
        address: IpAddr,
        port: Option<u16>,
    },
    Unknown,
    /// With the host of the client's request, which may be any text.
    Host {
        address: IpAddr,
        host: String,
    },
    /// An obfuscated name.
    Hidden(u16),
}

impl Element {
    /// Returns the element as a proxy writes it, and the address that it stands for.
    fn written(&self, forwarded: bool) -> (String, Option<IpAddr>) {
        let node = |address: &IpAddr, port: Option<u16>| match (address, port) {
            (IpAddr::V6(v6), Some(port)) => format!("[{v6}]:{port}"),
            (IpAddr::V6(v6), None) if forwarded => format!("[{v6}]"),
            (address, Some(port)) => format!("{address}:{port}"),
            (address, None) => address.to_string(),
        };
        let (node, host, address) = match self {
            Self::Address { address, port } => (node(address, *port), None, Some(*address)),
            Self::Unknown => ("unknown".to_owned(), None, None),
            Self::Hidden(number) => (format!("_h{number}"), None, None),
            Self::Host { address, host } => (node(address, None), Some(host), Some(*address)),
        };
        let address =
            address.map(|address| address.to_canonical()).filter(|address| !address.is_unspecified());
        if !forwarded {
            return (node, address);
        }
        let mut text = format!("for=\"{node}\"");
        if let Some(host) = host {
            text.push_str(";host=\"");
            // The host is shorter than the part of an element that the reader uses.
            for character in host.chars().filter(|character| matches!(character, ' '..='~')).take(200) {
                if matches!(character, '"' | '\\') {
                    text.push('\\');
                }
                text.push(character);
            }
            text.push('"');
        }
        (text, address)
    }
}

fn networks(input: &Input) -> Vec<IpNet> {
    let network = |(address, bits): &(IpAddr, u8)| {
        let address = address.to_canonical();
        let longest = if address.is_ipv4() { 33 } else { 129 };
        IpNet::new(address, bits % longest).unwrap_or_else(|error| panic!("{error}"))
    };
    input.networks.iter().map(network).collect()
}

fn request(name: &HeaderName, peer: IpAddr, lines: &[Vec<u8>]) -> Request<()> {
    let mut request = Request::new(());
    for line in lines {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            request.headers_mut().append(name, value);
        }
    }
    request.extensions_mut().insert(PeerAddr(SocketAddr::new(peer, 1)));
    request
}

/// Returns the client according to the proxies' elements, from the right: `None` if there are too few elements.
fn naive(peer: IpAddr, proxies: &Trusted, addresses: &[Option<IpAddr>]) -> Option<Option<IpAddr>> {
    let peer = Some(peer.to_canonical()).filter(|peer| !peer.is_unspecified());
    match proxies {
        Trusted::Hops(0) => Some(peer),
        Trusted::Hops(count) => addresses.get(count - 1).copied(),
        Trusted::Networks(networks) => {
            let chain = std::iter::once(peer).chain(addresses.iter().copied());
            for (index, address) in chain.enumerate() {
                if index > Proxies::MAX {
                    return Some(None);
                }
                match address {
                    Some(address) if networks.iter().any(|network| network.contains(&address)) => {}
                    other => return Some(other),
                }
            }
            None
        }
    }
}

#[derive(Clone, Debug)]
enum Trusted {
    Hops(usize),
    Networks(Vec<IpNet>),
}

impl Trusted {
    fn proxies(&self) -> Proxies {
        match self {
            Self::Hops(count) => Proxies::hops(*count),
            Self::Networks(networks) => Proxies::networks(networks.iter().copied()),
        }
    }
}

// G71
fuzz_target!(|input: Input| {
    let name = if input.forwarded { "forwarded" } else { "x-forwarded-for" };
    let name = HeaderName::from_static(name);
    let client = |trusted: &Trusted| match input.forwarded {
        true => ClientIp::forwarded(trusted.proxies()),
        false => ClientIp::x_forwarded_for(trusted.proxies()),
    };

    // First the client's lines, then the proxies' elements.
    let mut addresses = Vec::new();
    let mut lines: Vec<Vec<u8>> =
        input.left.iter().filter(|line| HeaderValue::from_bytes(line).is_ok()).cloned().collect();
    for (element, own_line) in &input.right {
        let (text, address) = element.written(input.forwarded);
        addresses.push(address);
        match lines.last_mut().filter(|_| !own_line) {
            Some(line) => {
                line.extend_from_slice(b", ");
                line.extend_from_slice(text.as_bytes());
            }
            None => lines.push(text.into_bytes()),
        }
    }
    addresses.reverse();

    let all = request(&name, input.peer, &lines);
    for trusted in [Trusted::Hops(usize::from(input.hops)), Trusted::Networks(networks(&input))] {
        let found = client(&trusted).address(Head::of(&all));
        match naive(input.peer, &trusted, &addresses) {
            Some(expected) => assert_eq!(found, expected, "{trusted:?} {lines:?}"),
            // The client's address is left of the proxies' part. The simple syntax still shows it.
            None if !input.forwarded && lines.iter().all(|line| line.len() < 500) => {
                let every = split(&lines);
                let expected = naive(input.peer, &trusted, &every).unwrap_or_else(|| match &trusted {
                    Trusted::Hops(_) => None,
                    Trusted::Networks(_) => every.last().copied().unwrap_or(Some(input.peer.to_canonical())),
                });
                assert_eq!(found, expected, "{trusted:?} {lines:?}");
            }
            None => {}
        }
    }
});

/// Returns all elements of all lines, from the right.
fn split(lines: &[Vec<u8>]) -> Vec<Option<IpAddr>> {
    let elements = lines.iter().flat_map(|line| line.split(|&byte| byte == b','));
    let mut addresses: Vec<_> = elements.map(|element| address(element.trim_ascii())).collect();
    addresses.reverse();
    addresses
}

fn address(element: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(element).ok()?;
    let obfuscated = |port: &str| {
        port.len() > 1
            && port.starts_with('_')
            && port[1..].bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let port = |port: &str| {
        (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit()) || obfuscated(port)
    };
    let bare = text.parse::<IpAddr>().ok();
    let v4 = || {
        text.split_once(':')
            .filter(|(_, after)| port(after))
            .and_then(|(v4, _)| v4.parse::<std::net::Ipv4Addr>().ok().map(IpAddr::from))
    };
    let v6 = || {
        let (inner, after) = text.strip_prefix('[')?.split_once(']')?;
        let v6 = inner.parse::<std::net::Ipv6Addr>().ok()?;
        (after.is_empty() || after.strip_prefix(':').is_some_and(port)).then_some(IpAddr::from(v6))
    };
    let address = bare.or_else(v4).or_else(v6)?.to_canonical();
    (text.len() <= 128 && !address.is_unspecified()).then_some(address)
}
