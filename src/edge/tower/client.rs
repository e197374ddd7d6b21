//! Who the client is: its address, as far as it can be believed.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::{Extensions, HeaderName, HeaderValue, header};
use ipnet::{IpNet, Ipv4Net};

use super::head::Head;
use super::key::KeyExtractor;
use crate::edge::forwarded::{FromRight, Syntax, embedded, known, node};

/// The address at the other end of a connection, as an extension of a request; [`ClientIp`] looks for it, and servers put it there.
///
/// For servers that have an extension of their own, such as axum's `ConnectInfo`, see [`ClientIp::peer_from`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct PeerAddr(pub SocketAddr);

/// Which of the addresses that a request came through are one's own proxies.
///
/// The addresses are, from the right: the peer's, and then those of the header field, of which each proxy appended the one that it
/// was called from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxies(Trust);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Trust {
    Hops(usize),
    Networks(Arc<[IpNet]>),
}

impl Proxies {
    /// How many addresses of proxies a header field may have, if they are told by their networks.
    pub const MAX: usize = 32;

    /// There are so many proxies before this server, *always*: the client's address is the one that the first of them saw. With
    /// one it is the last in the field; with none it is the peer's, and the field is not read.
    ///
    /// Nobody must be able to come round a proxy, or he says who he is. A request that came through fewer has no address.
    #[must_use]
    pub const fn hops(count: usize) -> Self {
        Self(Trust::Hops(count))
    }

    /// Proxies are those whose addresses are in these networks: the client's address is the first from the right that is in none of
    /// them, beginning with the peer's. If all are, it is the last of them.
    ///
    /// Clients must not have addresses in these networks. A request with more than [`Proxies::MAX`] proxies has no address.
    #[must_use]
    pub fn networks(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(Trust::Networks(networks.into_iter().map(folded).collect()))
    }
}

/// A network of IPv4 addresses in IPv6, mapped or translated, as one of IPv4, as addresses are.
fn folded(network: IpNet) -> IpNet {
    match network {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => embedded(v6.addr())
            .and_then(|v4| Ipv4Net::new(v4, v6.prefix_len() - 96).ok())
            .map_or(network, IpNet::V4),
        network => network,
    }
}

/// A prefix that is longer than the address.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PrefixError {
    bits: u8,
    longest: u8,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bits, longest } = self;
        write!(f, "a prefix of {bits} bits, of an address of {longest}: it must be 0 to {longest}")
    }
}

impl std::error::Error for PrefixError {}

type PeerOf = dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync;

/// The client's address, as a key of type [`IpAddr`]; clients of one IPv6 network, by default a /64, are one.
///
/// Where the address comes from has to be said, since servers are reached in different ways, and what a client writes is not to be
/// believed: a header field counts only as far as one's own [`Proxies`] wrote it. What stands there and is no address (`unknown`,
/// an obfuscated name, nonsense) makes the client unknown: nothing further to the left is tried, because clients
/// write that. See [`Missing`](super::Missing) for what happens to such requests.
///
/// IPv4 addresses in IPv6 (`::ffff:203.0.113.7`, and `64:ff9b::203.0.113.7` of a NAT64) are IPv4 addresses. A client that has an IPv6 network has 2⁶⁴ addresses or more, so
/// addresses are cut to the network ([`ClientIp::ipv6_prefix`]).
///
/// # Complexity
/// Does not allocate. Header fields are read from the right, up to the client's address.
///
/// # Examples
/// ```
/// use http::Request;
/// use tollgate::tower::{ClientIp, Head, IpNet, KeyExtractor, PeerAddr, Proxies};
///
/// let private: IpNet = "10.0.0.0/8".parse()?;
/// let client = ClientIp::x_forwarded_for(Proxies::networks([private]));
/// let request = Request::builder()
///     .header("x-forwarded-for", "1.1.1.1, 2001:db8::17") // the client wrote the first
///     .header("x-forwarded-for", "10.0.0.9")
///     .extension(PeerAddr("10.0.0.1:443".parse()?))
///     .body(())?;
/// let head = Head::of(&request);
/// assert_eq!(client.address(head).unwrap().to_string(), "2001:db8::17");
/// assert_eq!(client.key(head).unwrap().to_string(), "2001:db8::");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClientIp {
    source: AddressSource,
    peer_of: Option<Arc<PeerOf>>,
    v4_mask: u32,
    v6_mask: u128,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum AddressSource {
    Peer,
    List { name: HeaderName, syntax: Syntax, proxies: Proxies },
    Single { name: HeaderName, proxies: Proxies },
}

impl ClientIp {
    fn of(source: AddressSource) -> Self {
        // A prefix of 64 bits: what a provider gives to one customer, at least.
        Self { source, peer_of: None, v4_mask: u32::MAX, v6_mask: mask_128(64) }
    }

    /// The peer's: for servers that clients connect to directly. Behind a proxy it is the proxy's, and all clients are one.
    ///
    /// Read from the [`PeerAddr`] among the request's extensions, unless [`ClientIp::peer_from`] says otherwise.
    #[must_use]
    pub fn peer() -> Self {
        Self::of(AddressSource::Peer)
    }

    /// By `X-Forwarded-For`: addresses separated by commas, with ports or without.
    #[must_use]
    pub fn x_forwarded_for(proxies: Proxies) -> Self {
        let name = HeaderName::from_static("x-forwarded-for");
        Self::of(AddressSource::List { name, syntax: Syntax::Addresses, proxies })
    }

    /// By `Forwarded` (RFC 7239): the `for` of its elements.
    #[must_use]
    pub fn forwarded(proxies: Proxies) -> Self {
        Self::of(AddressSource::List { name: header::FORWARDED, syntax: Syntax::Pairs, proxies })
    }

    /// By a header field with one address, such as `cf-connecting-ip`, that the proxy replaces if a client sends it.
    ///
    /// It counts if the peer is one of the proxies: [by its network](Proxies::networks), or by your word, with one
    /// [hop](Proxies::hops) or more. A request whose peer is not has the peer's address; one that has the field more than
    /// once, or not at all, has none; more than once, it is refused whatever [`Missing`](super::Missing) says.
    #[must_use]
    pub fn header(name: HeaderName, proxies: Proxies) -> Self {
        Self::of(AddressSource::Single { name, proxies })
    }

    /// How the peer's address is found among a request's extensions. Default: [`PeerAddr`].
    ///
    /// For axum: `.peer_from(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()))`.
    #[must_use]
    pub fn peer_from(
        mut self,
        peer_of: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.peer_of = Some(Arc::new(peer_of));
        self
    }

    /// How many leading bits of an IPv6 address tell clients apart. Default: 64. Providers give customers 56 or 48 too.
    ///
    /// IPv4 addresses that are written as IPv6 addresses are not cut by this but by [`ClientIp::ipv4_prefix`]: mapped ones
    /// (`::ffff:0:0/96`), and those of a NAT64 with the well-known prefix (`64:ff9b::/96`, RFC 6052), which would else be one client.
    /// A NAT64 with a prefix of its own is not known here: its clients need a prefix of 128 bits.
    ///
    /// # Errors
    /// If there are more than 128.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, PrefixError> {
        if bits > 128 {
            return Err(PrefixError { bits, longest: 128 });
        }
        self.v6_mask = mask_128(bits);
        Ok(self)
    }

    /// How many leading bits of an IPv4 address tell clients apart. Default: 32.
    ///
    /// # Errors
    /// If there are more than 32.
    pub fn ipv4_prefix(mut self, bits: u8) -> Result<Self, PrefixError> {
        if bits > 32 {
            return Err(PrefixError { bits, longest: 32 });
        }
        self.v4_mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        Ok(self)
    }

    /// The client's address in full, IPv4 in IPv6 as IPv4; `None` if it is not known.
    #[inline]
    #[must_use]
    pub fn address(&self, head: Head<'_>) -> Option<IpAddr> {
        match &self.source {
            AddressSource::Peer => self.peer_address(head),
            AddressSource::Single { name, proxies } => self.address_in_field(name, proxies, head),
            AddressSource::List { name, syntax, proxies } => {
                self.address_in_list(name, *syntax, proxies, head)
            }
        }
    }

    #[inline(never)]
    fn address_in_field(&self, name: &HeaderName, proxies: &Proxies, head: Head<'_>) -> Option<IpAddr> {
        let is_proxy = match &proxies.0 {
            Trust::Hops(count) => *count > 0,
            Trust::Networks(networks) => is_in(networks, self.peer_address(head)?),
        };
        if is_proxy { node(head.only(name)?.as_bytes().trim_ascii()) } else { self.peer_address(head) }
    }

    #[inline(never)]
    fn address_in_list(
        &self,
        name: &HeaderName,
        syntax: Syntax,
        proxies: &Proxies,
        head: Head<'_>,
    ) -> Option<IpAddr> {
        let lines = head.headers().get_all(name).iter().map(HeaderValue::as_bytes);
        let mut addresses = FromRight::new(syntax, lines);
        match &proxies.0 {
            Trust::Hops(0) => self.peer_address(head),
            Trust::Hops(count) => addresses.nth(count - 1)?,
            Trust::Networks(networks) => outermost(networks, self.peer_address(head)?, addresses),
        }
    }

    #[inline]
    fn peer_address(&self, head: Head<'_>) -> Option<IpAddr> {
        let extensions = head.extensions();
        known(match &self.peer_of {
            Some(peer_of) => peer_of(extensions)?,
            None => extensions.get::<PeerAddr>()?.0.ip(),
        })
    }
}

/// The first address, from the peer on, that is in no network; the last if all are.
fn outermost(
    networks: &[IpNet],
    peer: IpAddr,
    addresses: impl Iterator<Item = Option<IpAddr>>,
) -> Option<IpAddr> {
    let mut address = peer;
    let mut proxies = 0;
    for next in addresses {
        if !is_in(networks, address) {
            return Some(address);
        }
        proxies += 1;
        if proxies > Proxies::MAX {
            return None;
        }
        address = next?;
    }
    Some(address)
}

fn is_in(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

fn mask_128(bits: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(bits))).unwrap_or(0)
}

impl KeyExtractor for ClientIp {
    type Key = IpAddr;

    #[inline]
    fn key(&self, head: Head<'_>) -> Option<IpAddr> {
        Some(match self.address(head)? {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & self.v4_mask).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & self.v6_mask).into(),
        })
    }

    fn is_ambiguous(&self, head: Head<'_>) -> bool {
        match &self.source {
            AddressSource::Single { name, .. } => head.headers().get_all(name).iter().nth(1).is_some(),
            AddressSource::Peer | AddressSource::List { .. } => false,
        }
    }

    fn what(&self) -> Option<Cow<'_, str>> {
        const PEER: &str = "peer address that its server passed on (see PeerAddr and ClientIp::peer_from)";
        Some(match &self.source {
            AddressSource::Peer | AddressSource::List { proxies: Proxies(Trust::Hops(0)), .. } => PEER.into(),
            AddressSource::List { name, proxies: Proxies(Trust::Hops(_)), .. } => {
                format!("client address in {name}").into()
            }
            AddressSource::List { name, .. } | AddressSource::Single { name, .. } => {
                format!("client address in {name}, or no {PEER}").into()
            }
        })
    }
}

impl fmt::Debug for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIp")
            .field("source", &self.source)
            .field("ipv4_prefix", &self.v4_mask.count_ones())
            .field("ipv6_prefix", &self.v6_mask.count_ones())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use http::Request;

    fn request(peer: Option<&str>, name: &str, lines: &[&str]) -> Request<()> {
        let mut builder = Request::builder();
        for line in lines {
            builder = builder.header(name, *line);
        }
        let mut request = builder.body(()).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(PeerAddr(SocketAddr::new(peer.parse().unwrap(), 9)));
        }
        request
    }

    fn text(address: Option<IpAddr>) -> String {
        address.map_or_else(|| "-".to_owned(), |address| address.to_string())
    }

    fn private() -> Proxies {
        Proxies::networks(["10.0.0.0/8".parse().unwrap(), "::ffff:192.168.0.0/112".parse().unwrap()])
    }

    #[test]
    fn trusted_hops_count_from_the_right() {
        let lines = ["6.6.6.6, 203.0.113.7", "10.0.0.2"];
        let request = request(Some("10.0.0.1"), "x-forwarded-for", &lines);
        let expected = ["10.0.0.1", "10.0.0.2", "203.0.113.7", "6.6.6.6", "-", "-"];
        for (hops, expected) in expected.into_iter().enumerate() {
            let client = ClientIp::x_forwarded_for(Proxies::hops(hops));
            assert_eq!(text(client.address(Head::of(&request))), expected, "{hops}");
        }
    }

    #[test]
    fn trusted_networks_are_walked_until_one_is_not() {
        let cases: [(Option<&str>, &[&str], &str); 12] = [
            // The client connected directly: what it writes is not read.
            (Some("203.0.113.7"), &["6.6.6.6"], "203.0.113.7"),
            (Some("10.0.0.1"), &["203.0.113.7"], "203.0.113.7"),
            (Some("::ffff:10.0.0.1"), &["203.0.113.7"], "203.0.113.7"),
            (Some("10.0.0.1"), &["6.6.6.6, 203.0.113.7", "192.168.0.1"], "203.0.113.7"),
            (Some("10.0.0.1"), &["6.6.6.6, unknown, 10.0.0.2"], "-"),
            (Some("10.0.0.1"), &["6.6.6.6, 10.0.0.2,"], "-"),
            (Some("10.0.0.1"), &["6.6.6.6", ""], "-"),
            (Some("10.0.0.1"), &["nonsense, 203.0.113.7"], "203.0.113.7"),
            // Called from inside.
            (Some("10.0.0.1"), &[], "10.0.0.1"),
            (Some("10.0.0.1"), &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            (Some("0.0.0.0"), &["203.0.113.7"], "-"),
            (None, &["203.0.113.7"], "-"),
        ];
        for (peer, lines, expected) in cases {
            let request = request(peer, "x-forwarded-for", lines);
            let client = ClientIp::x_forwarded_for(private());
            assert_eq!(text(client.address(Head::of(&request))), expected, "{peer:?} {lines:?}");
        }
    }

    #[test]
    fn a_chain_of_proxies_ends_somewhere() {
        for (proxies, expected) in [(Proxies::MAX - 1, "203.0.113.7"), (Proxies::MAX, "-")] {
            let line = format!("203.0.113.7{}", ", 10.0.0.2".repeat(proxies));
            let request = request(Some("10.0.0.1"), "x-forwarded-for", &[&line]);
            let client = ClientIp::x_forwarded_for(private());
            assert_eq!(text(client.address(Head::of(&request))), expected, "{proxies}");
        }
    }

    #[test]
    fn a_single_header_counts_if_the_peer_is_trusted() {
        let name = HeaderName::from_static("cf-connecting-ip");
        let cases: [(&str, &[&str], &str); 5] = [
            ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            ("198.51.100.1", &["203.0.113.7"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.7", "203.0.113.7"], "-"),
            ("10.0.0.1", &["203.0.113.7, 6.6.6.6"], "-"),
            ("10.0.0.1", &[], "-"),
        ];
        for (peer, lines, expected) in cases {
            let request = request(Some(peer), "cf-connecting-ip", lines);
            let client = ClientIp::header(name.clone(), private());
            assert_eq!(text(client.address(Head::of(&request))), expected, "{peer} {lines:?}");
        }
        let request = request(None, "cf-connecting-ip", &["203.0.113.7"]);
        let address = |hops| ClientIp::header(name.clone(), Proxies::hops(hops)).address(Head::of(&request));
        assert_eq!((text(address(1)), text(address(0))), ("203.0.113.7".to_owned(), "-".to_owned()));
    }

    #[test]
    fn keys_are_networks() {
        let key = |client: &ClientIp, peer| text(client.key(Head::of(&request(Some(peer), "x", &[]))));
        let client = ClientIp::peer();
        assert_eq!(key(&client, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(key(&client, "::ffff:203.0.113.7"), "203.0.113.7");
        assert_eq!(key(&client, "64:ff9b::203.0.113.7"), "203.0.113.7");
        assert_eq!(key(&client, "64:ff9b::203.0.113.8"), "203.0.113.8");
        for (bits, expected) in [(0, "::"), (1, "::"), (48, "2001:db8:1::"), (128, "2001:db8:1:2:3:4:5:6")] {
            let client = ClientIp::peer().ipv6_prefix(bits).unwrap();
            assert_eq!(key(&client, "2001:db8:1:2:3:4:5:6"), expected, "{bits}");
        }
        for (bits, expected) in [(0, "0.0.0.0"), (24, "203.0.113.0"), (32, "203.0.113.7")] {
            assert_eq!(key(&ClientIp::peer().ipv4_prefix(bits).unwrap(), "203.0.113.7"), expected, "{bits}");
        }
        let error = ClientIp::peer().ipv6_prefix(129).unwrap_err();
        assert_eq!(error.to_string(), "a prefix of 129 bits, of an address of 128: it must be 0 to 128");
        assert!(ClientIp::peer().ipv4_prefix(33).is_err());
    }

    #[test]
    fn the_peer_is_found_where_one_says() {
        let mut request = request(None, "x", &[]);
        request.extensions_mut().insert(Ipv4Addr::new(203, 0, 113, 7));
        let client = ClientIp::peer().peer_from(|extensions| Some((*extensions.get::<Ipv4Addr>()?).into()));
        assert_eq!(text(client.address(Head::of(&request))), "203.0.113.7");
        assert_eq!(ClientIp::peer().address(Head::of(&request)), None);
    }
}
