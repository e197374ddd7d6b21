//! The part of an address that identifies a client.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the network of an address: its leading bits, with zeros after them. Use it as the key of a client.
///
/// A client with IPv6 often has a network of 64 bits, so it can use 2⁶⁴ addresses, and a limit on single addresses does not
/// limit it. 32 and 64 bits are usual, and 56 or 48 for providers that give larger networks. More bits than an address has are
/// all of its bits, and 0 bits make all addresses one key.
///
/// An IPv4 address in IPv6 form is an IPv4 address, because a /64 would make all of these clients one. This applies to mapped
/// addresses (`::ffff:0:0/96`) and to those of a NAT64 with the well-known prefix (`64:ff9b::/96`, RFC 6052).
///
/// # Examples
/// ```
/// use std::net::IpAddr;
/// use tollgate::{Quota, RateLimiter, address_prefix};
///
/// let limiter = RateLimiter::new(Quota::per_minute(1));
/// let check = |address: &str| limiter.check(&address_prefix(address.parse().unwrap(), 24, 64));
/// assert!(check("2001:db8::1").is_allowed());
/// assert!(check("2001:db8::2").is_denied()); // the same /64
/// assert!(check("2001:db8:0:1::1").is_allowed());
/// assert!(check("203.0.113.7").is_allowed());
/// assert!(check("::ffff:203.0.113.9").is_denied()); // the same /24
/// # assert_eq!(address_prefix("::1".parse::<IpAddr>().unwrap(), 0, 0), "::".parse::<IpAddr>().unwrap());
/// ```
///
/// # Complexity
/// O(1), without an allocation.
#[inline]
#[must_use]
pub fn address_prefix(address: IpAddr, ipv4_bits: u8, ipv6_bits: u8) -> IpAddr {
    let address = match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => inner_ipv4(v6).map_or(address, IpAddr::V4),
    };
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(u32::BITS.saturating_sub(u32::from(ipv4_bits))).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(u128::BITS.saturating_sub(u32::from(ipv6_bits))).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// The well-known prefix of IPv4 addresses that a NAT64 translates (RFC 6052 §2.1): 64:ff9b::/96.
const NAT64: u128 = 0x0064_ff9b << 96;

/// The prefix of IPv4 addresses that are mapped to IPv6 (RFC 4291 §2.5.5.2): `::ffff:0:0/96`.
const MAPPED: u128 = 0xffff << 32;

/// Returns the IPv4 address inside an IPv6 address.
fn inner_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    #[expect(clippy::cast_possible_truncation, reason = "its low 32 bits")]
    let low = bits as u32;
    matches!(bits ^ u128::from(low), NAT64 | MAPPED).then(|| Ipv4Addr::from_bits(low))
}

#[cfg(all(test, feature = "std", not(tollgate_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Clears the bits after the prefix, one by one.
    fn by_bits(address: IpAddr, ipv4_bits: u8, ipv6_bits: u8) -> IpAddr {
        fn cut<const N: usize>(mut octets: [u8; N], bits: u8) -> [u8; N] {
            for bit in usize::from(bits)..8 * N {
                octets[bit / 8] &= !(128 >> (bit % 8));
            }
            octets
        }
        let IpAddr::V6(v6) = address else {
            let IpAddr::V4(v4) = address else { unreachable!() };
            return Ipv4Addr::from(cut(v4.octets(), ipv4_bits)).into();
        };
        let groups = v6.segments();
        let inner = |[a, b]: [u16; 2]| Ipv4Addr::from_bits(u32::from(a) << 16 | u32::from(b));
        match groups {
            [0, 0, 0, 0, 0, 0xffff, a, b] | [0x64, 0xff9b, 0, 0, 0, 0, a, b] => {
                by_bits(inner([a, b]).into(), ipv4_bits, ipv6_bits)
            }
            _ => Ipv6Addr::from(cut(v6.octets(), ipv6_bits)).into(),
        }
    }

    proptest! {
        // G155
        #[test]
        fn prefix_equals_that_bit_by_bit(bits: u128, short: u32, form in 0..4, ipv4_bits: u8, ipv6_bits: u8) {
            let low = u128::from(short);
            let address = match form {
                0 => Ipv4Addr::from_bits(short).into(),
                1 => Ipv6Addr::from_bits(MAPPED | low).into(),
                2 => Ipv6Addr::from_bits(NAT64 | low).into(),
                _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
            };
            let prefix = address_prefix(address, ipv4_bits, ipv6_bits);
            prop_assert_eq!(prefix, by_bits(address, ipv4_bits, ipv6_bits));
        }
    }
}
