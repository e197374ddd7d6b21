//! The client's address, as far as the server can trust it.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{Extensions, HeaderName, HeaderValue, header};
use ipnet::{IpNet, Ipv4Net};
use tollgate::address_prefix;
use tollgate_http::forwarded::{FromRight, Syntax, known, node};

use crate::head::Head;
use crate::key::KeyExtractor;

/// The address at the other end of a connection. Servers put it into a request's extensions, and [`ClientIp`] reads it
/// there.
///
/// [`ClientIp::peer_from`] supports servers that have an extension of their own, such as axum's `ConnectInfo`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct PeerAddr(pub SocketAddr);

/// States which of a request's addresses belong to your own proxies.
///
/// The addresses are, from right to left, the peer's address and then the addresses in the header field. Each proxy
/// appended the address that called it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxies(Trust);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Trust {
    Hops(usize),
    Networks(Arc<[IpNet]>),
}

impl Proxies {
    /// The maximum number of proxy addresses in a header field if networks identify the proxies.
    pub const MAX: usize = 32;

    /// States that every request passes *exactly* this number of proxies. The client's address is the address that the
    /// first proxy saw. With one proxy, this is the last address in the field. With none, it is the peer's address, and
    /// the field is not read.
    ///
    /// Clients must not be able to bypass a proxy: a client that can bypass one can choose its own address. A request
    /// that passed fewer proxies has no address.
    #[must_use]
    pub const fn hops(count: usize) -> Self {
        Self(Trust::Hops(count))
    }

    /// Treats all addresses in these networks as proxies. The client's address is the first address outside these
    /// networks, from right to left, starting with the peer's. If all addresses are in these networks, it is the
    /// leftmost address.
    ///
    /// Clients must not have addresses in these networks. A request with more than [`Proxies::MAX`] proxies has no
    /// address.
    #[must_use]
    pub fn networks(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(Trust::Networks(networks.into_iter().map(folded).collect()))
    }
}

/// Converts a network of IPv4 addresses in IPv6, mapped or translated, to an IPv4 network. Addresses are converted in
/// the same way.
fn folded(network: IpNet) -> IpNet {
    match network {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => match address_prefix(v6.addr().into(), 32, 128) {
            IpAddr::V4(v4) => Ipv4Net::new(v4, v6.prefix_len() - 96).map_or(network, IpNet::V4),
            IpAddr::V6(_) => network,
        },
        network => network,
    }
}

/// Returned for a prefix that is longer than the address, and for [steps](crate::PrefixLimits) in the wrong order.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct PrefixError {
    bits: u8,
    /// The longest prefix that is possible here. `None` if the quota is the problem.
    longest: Option<u8>,
}

impl PrefixError {
    /// Checks the length of a prefix.
    pub(crate) fn check(bits: u8, longest: u8) -> Result<(), Self> {
        if bits <= longest { Ok(()) } else { Err(Self { bits, longest: Some(longest) }) }
    }

    /// The error for a quota below that of a longer prefix.
    pub(crate) const fn lower(bits: u8) -> Self {
        Self { bits, longest: None }
    }
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bits, longest } = self;
        match longest {
            Some(longest) => write!(f, "the prefix is {bits} bits; use 0 to {longest}"),
            None => write!(
                f,
                "the quota of the prefix of {bits} bits is below that of a longer prefix, whose addresses it includes; raise it"
            ),
        }
    }
}

/// The same as the message, for programs whose `main` returns the error.
impl fmt::Debug for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for PrefixError {}

type PeerOf = dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync;

/// Uses the client's address as the key, of type [`IpAddr`]. All clients in one IPv6 network, by default a /64, share a
/// key.
///
/// You must state where the address comes from, because setups differ and a client can write any value into a header
/// field. A header field counts only as far as your own [`Proxies`] wrote it. If that part holds no address (`unknown`,
/// an obfuscated name, other text), the client has no address. Entries further left are not tried, because clients
/// write them. See [`Missing`](crate::Missing) for what happens to such requests.
///
/// IPv4 addresses in IPv6 (`::ffff:203.0.113.7`, and `64:ff9b::203.0.113.7` of a NAT64) are treated as IPv4 addresses.
/// A client with an IPv6 network has 2⁶⁴ addresses or more, so the key is the network ([`ClientIp::ipv6_prefix`]).
/// Rules from files (`RateLimitLayer::rules`) count the network too, and match the whole address.
///
/// # Complexity
/// Does not allocate. Reads header fields from right to left, up to the client's address.
///
/// # Examples
/// ```
/// use http::Request;
/// use tollgate_tower::{ClientIp, Head, IpNet, KeyExtractor, PeerAddr, Proxies};
///
/// let private: IpNet = "10.0.0.0/8".parse()?;
/// let client = ClientIp::x_forwarded_for(Proxies::networks([private]));
/// let request = Request::builder()
///     .header("x-forwarded-for", "1.1.1.1, 2001:db8::17") // the client wrote the first address
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
    ipv4_bits: u8,
    ipv6_bits: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum AddressSource {
    Peer,
    List { name: HeaderName, syntax: Syntax, proxies: Proxies },
    Single { name: HeaderName, proxies: Proxies },
}

impl ClientIp {
    fn of(source: AddressSource) -> Self {
        // 64 bits: a provider gives each customer a prefix of 64 bits or a shorter one.
        Self { source, peer_of: None, ipv4_bits: 32, ipv6_bits: 64 }
    }

    /// Uses the peer's address, for servers that clients connect to directly. Behind a proxy, this is the proxy's
    /// address, and all clients share one key.
    ///
    /// The address is the [`PeerAddr`] in the request's extensions, unless [`ClientIp::peer_from`] sets another source.
    #[must_use]
    pub fn peer() -> Self {
        Self::of(AddressSource::Peer)
    }

    /// Uses `X-Forwarded-For`: addresses separated by commas, with or without ports.
    #[must_use]
    pub fn x_forwarded_for(proxies: Proxies) -> Self {
        let name = HeaderName::from_static("x-forwarded-for");
        Self::of(AddressSource::List { name, syntax: Syntax::Addresses, proxies })
    }

    /// Uses `Forwarded` (RFC 7239): the `for` parameter of its elements.
    #[must_use]
    pub fn forwarded(proxies: Proxies) -> Self {
        Self::of(AddressSource::List { name: header::FORWARDED, syntax: Syntax::Pairs, proxies })
    }

    /// Uses a header field with one address, such as `cf-connecting-ip`. The proxy must replace the field if a client
    /// sends it.
    ///
    /// The field counts only if the peer is one of the proxies: [by its network](Proxies::networks), or always with one
    /// [hop](Proxies::hops) or more. If the peer is not a proxy, the client's address is the peer's address. A request
    /// without the field has no address. A request with the field more than once has no address either, and is denied
    /// whatever [`Missing`](crate::Missing) is.
    #[must_use]
    pub fn header(name: HeaderName, proxies: Proxies) -> Self {
        Self::of(AddressSource::Single { name, proxies })
    }

    /// Sets how to find the peer's address in a request's extensions. Default: [`PeerAddr`].
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

    /// Sets how many leading bits of an IPv6 address identify a client. Default: 64. Some providers give each customer
    /// a prefix of 56 or 48 bits.
    ///
    /// This prefix does not apply to IPv4 addresses in IPv6 form; [`ClientIp::ipv4_prefix`] does. These are mapped
    /// addresses (`::ffff:0:0/96`) and addresses of a NAT64 with the well-known prefix (`64:ff9b::/96`, RFC 6052). A
    /// /64 would make them one client. A NAT64 with its own prefix is not recognised: its clients need a prefix of 128
    /// bits.
    ///
    /// # Errors
    /// If `bits` is more than 128.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, PrefixError> {
        PrefixError::check(bits, 128)?;
        self.ipv6_bits = bits;
        Ok(self)
    }

    /// Sets how many leading bits of an IPv4 address identify a client. Default: 32.
    ///
    /// # Errors
    /// If `bits` is more than 32.
    pub fn ipv4_prefix(mut self, bits: u8) -> Result<Self, PrefixError> {
        PrefixError::check(bits, 32)?;
        self.ipv4_bits = bits;
        Ok(self)
    }

    /// Uses the whole address as the key.
    pub(crate) fn whole(mut self) -> Self {
        (self.ipv4_bits, self.ipv6_bits) = (32, 128);
        self
    }

    /// Returns the client's full address, with IPv4 in IPv6 converted to IPv4. Returns `None` if the address is not
    /// known.
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

/// Returns the first address outside all networks, starting with the peer's. Returns the last address if all are
/// inside.
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

/// Returns an address in the form that [`ClientIp::address`] has: IPv4 in IPv6 is IPv4.
pub(crate) fn ipv4_or_ipv6(address: IpAddr) -> IpAddr {
    known(address).unwrap_or(address)
}

impl ClientIp {
    /// Returns the key, and tells a layer of rules what it was cut from. Not inlined, because other layers do not need it.
    #[inline(never)]
    fn noted_key(&self, head: Head<'_>) -> Option<IpAddr> {
        let address = self.address(head)?;
        let network = address_prefix(address, self.ipv4_bits, self.ipv6_bits);
        head.note_cut(network, address);
        Some(network)
    }
}

impl KeyExtractor for ClientIp {
    type Key = IpAddr;

    #[inline]
    fn key(&self, head: Head<'_>) -> Option<IpAddr> {
        if head.notes_cut() {
            return self.noted_key(head);
        }
        Some(address_prefix(self.address(head)?, self.ipv4_bits, self.ipv6_bits))
    }

    fn is_ambiguous(&self, head: Head<'_>) -> bool {
        match &self.source {
            AddressSource::Single { name, .. } => head.headers().get_all(name).iter().nth(1).is_some(),
            AddressSource::Peer | AddressSource::List { .. } => false,
        }
    }

    fn what(&self, _head: Head<'_>) -> Option<Cow<'_, str>> {
        const PEER: &str =
            "peer address: the server did not insert one (see PeerAddr and ClientIp::peer_from)";
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
            .field("ipv4_prefix", &self.ipv4_bits)
            .field("ipv6_prefix", &self.ipv6_bits)
            .finish_non_exhaustive()
    }
}
