//! The key types of the tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::support::{key, length, text, write_text};

/// A type of keys for streams.
pub(crate) trait Key: Clone + Sync + Send + 'static {
    const KIND: &'static str;
    fn numbered(number: u64) -> Self;
    /// Overwrites the key in place, so that a stream of strings keeps its allocations in order.
    fn renumber(&mut self, number: u64) {
        *self = Self::numbered(number);
    }
}

impl Key for u64 {
    const KIND: &'static str = "u64";
    fn numbered(number: u64) -> Self {
        key(number)
    }
}

impl Key for String {
    const KIND: &'static str = "24-byte strings";
    fn numbered(number: u64) -> Self {
        text(number)
    }
    fn renumber(&mut self, number: u64) {
        write_text(number, self);
    }
}

impl Key for IpAddr {
    const KIND: &'static str = "IP addresses";
    /// Even numbers give IPv4 addresses. Odd numbers give IPv6 addresses in a documentation prefix. All are distinct
    /// for numbers below 2^33.
    fn numbered(number: u64) -> Self {
        if number.is_multiple_of(2) {
            // Multiplication by an odd number permutes the numbers below 2^32.
            #[expect(clippy::cast_possible_truncation, reason = "an address has 32 bits")]
            let bits = ((number / 2) as u32).wrapping_mul(0x9E37_79B1);
            Self::V4(Ipv4Addr::from_bits(bits))
        } else {
            Self::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(key(number))))
        }
    }
}

/// Calls `visit` with the keys 0 to `population` in order, in pieces that need little memory.
pub(crate) fn for_each_chunk<K: Key>(population: u64, mut visit: impl FnMut(&[K])) {
    let mut chunk: Vec<K> = (0..population.min(4096)).map(K::numbered).collect();
    let mut next = 0;
    while next < population {
        let len = length((population - next).min(4096));
        for (slot, number) in chunk[..len].iter_mut().zip(next..) {
            slot.renumber(number);
        }
        visit(&chunk[..len]);
        next += 4096;
    }
}
