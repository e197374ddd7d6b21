//! Rendezvous hashing with weights: which server of a set holds a key.
//!
//! Each server has a cost for each key, and the server with the lowest cost holds the key. A cost depends on its own
//! server only. So if a server of weight `w` joins servers of total weight `V`, `w / (V + w)` of the keys move, and all
//! of them move to the new server. If a server leaves, only its own keys move.
//!
//! 1. `h` is SipHash-2-4 under the 16-byte key `tollgate shards1`, of: the length of the server's name (8 bytes, little
//!    endian), the name, and the shard key. If `h` is 0, it is replaced by 1.
//! 2. The cost is `−log2(h / 2^64)`, a fixed-point number with 32 fractional bits, divided by the weight. All numbers
//!    are integers, so all processes calculate the same cost, on every platform.
//! 3. If two costs are equal, the larger `h` decides, and then the name that sorts first.
//!
//! This function never changes: another function would move keys. The tests contain its test vectors.
//!
//! | server | shard key | `h` | `−log2(h / 2^64)`, 32 fractional bits |
//! |---|---|---|---|
//! | `a` | (empty) | `6381e4270bb4c17d` | `5855192625` |
//! | `a` | `tollgate:v1:{api\|203.0.113.7}` | `0cbc071193d2e644` | `18594337341` |
//! | `eu-1` | `tollgate:v1:{api\|203.0.113.7}` | `5c22d25dfbcf9885` | `6332098579` |
//!
//! # Source
//! Thaler and Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996; the weights: Schindelhauer and Schomaker,
//! "Weighted Distributed Hash Tables", 2005; the hash: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.

#![expect(
    deprecated,
    reason = "std documents this hasher as SipHash-2-4; its successor may change with any release"
)]

use std::cmp::Ordering;
use std::hash::{Hasher, SipHasher};
use std::sync::Arc;

/// The bytes `tollgate` and ` shards1`, little endian.
const KEY: [u64; 2] = [u64::from_le_bytes(*b"tollgate"), u64::from_le_bytes(*b" shards1")];
/// The fractional bits of a logarithm.
const FRACTION: u32 = 32;

/// A server of a set.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    name: Arc<str>,
    /// At least 1.
    weight: u32,
    /// The server's index among all servers of the client.
    pub(super) at: usize,
    /// The hasher after the name.
    named: SipHasher,
}

impl Candidate {
    pub(super) fn new(name: Arc<str>, weight: u32, at: usize) -> Self {
        let mut named = SipHasher::new_with_keys(KEY[0], KEY[1]);
        named.write(&(name.len() as u64).to_le_bytes());
        named.write(name.as_bytes());
        Self { name, weight, at, named }
    }

    fn hash(&self, shard_key: &[u8]) -> u64 {
        let mut hasher = self.named.clone();
        hasher.write(shard_key);
        hasher.finish().max(1)
    }

    /// Compares two servers by their hashes of one shard key, and the costs of these hashes. The owner is the least.
    fn compare(&self, (hash, cost): (u64, u64), other: &Self, (others, other_cost): (u64, u64)) -> Ordering {
        let by_cost = (u128::from(cost) * u128::from(other.weight))
            .cmp(&(u128::from(other_cost) * u128::from(self.weight)));
        by_cost.then_with(|| others.cmp(&hash)).then_with(|| self.name.cmp(&other.name))
    }
}

/// Returns the server that holds a shard key. O(servers).
pub(super) fn owner<'c>(candidates: &'c [Candidate], shard_key: &[u8]) -> Option<&'c Candidate> {
    // If all weights are equal, the largest hash has the lowest cost, and the costs are not needed.
    let is_weighted = candidates.windows(2).any(|pair| pair[0].weight != pair[1].weight);
    let costed = candidates.iter().map(|candidate| {
        let hash = candidate.hash(shard_key);
        (candidate, (hash, if is_weighted { cost(hash) } else { 1 }))
    });
    costed.min_by(|(one, own), (other, others)| one.compare(*own, other, *others)).map(|(server, _)| server)
}

/// Returns `−log2(hash / 2^64)` as a fixed-point number, at least 1. `hash` is at least 1.
fn cost(hash: u64) -> u64 {
    let shift = hash.leading_zeros();
    // The mantissa is in [2^63, 2^64). Each squaring gives the next bit of the logarithm.
    let mut mantissa = u128::from(hash) << shift;
    let mut log = u64::from(63 - shift.min(63));
    for _ in 0..FRACTION {
        mantissa = (mantissa * mantissa) >> 63;
        let bit = mantissa >> 64;
        mantissa >>= bit;
        log = (log << 1) | u64::from(bit == 1);
    }
    (64 << FRACTION) - log
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// The expected values were calculated by a separate program, from the description in the module docs.
    // G95
    #[test]
    fn hash_and_cost_match_published_vectors() {
        for (name, shard_key, hashed, costs) in [
            ("a", "", 0x6381_e427_0bb4_c17d, 5_855_192_625),
            ("a", "tollgate:v1:{api|203.0.113.7}", 0x0cbc_0711_93d2_e644, 18_594_337_341),
            ("eu-1", "tollgate:v1:{api|203.0.113.7}", 0x5c22_d25d_fbcf_9885, 6_332_098_579),
        ] {
            let hash = Candidate::new(name.into(), 1, 0).hash(shard_key.as_bytes());
            assert_eq!((hash, cost(hash)), (hashed, costs), "{name}, {shard_key}");
        }
        for (hash, costs) in [
            (1, 64 << FRACTION),
            (2, 63 << FRACTION),
            (3, 268_070_544_839),
            (1 << 63, 1 << FRACTION),
            (u64::MAX, 1),
        ] {
            assert_eq!(cost(hash), costs);
        }
    }

    #[test]
    fn equal_costs_are_decided_by_hash_then_name() {
        let set = [("a", 3), ("b", 3), ("c", 1)].map(|(name, weight)| Candidate::new(name.into(), weight, 0));
        let of = |hash| (hash, cost(hash));
        let (high, low) = (of(u64::MAX), of(u64::MAX - 1));
        assert_eq!(high.1, low.1, "the costs of the hashes are equal");
        assert_eq!(set[0].compare(low, &set[1], high), Ordering::Greater);
        assert_eq!(set[0].compare(high, &set[1], high), Ordering::Less, "the first name");
        assert_eq!(set[2].compare(of(1 << 63), &set[0], of(1 << 61)), Ordering::Less, "1 / 1 equals 3 / 3");
        // Between equal weights, a comparison by costs and a comparison by hashes agree.
        for hash in [1, 2, 3, 1 << 32, 1 << 63, u64::MAX - 1] {
            let (one, other) = (of(hash), of(hash + 1));
            assert_eq!(set[0].compare(one, &set[1], other), Ordering::Greater);
            assert_eq!(set[0].compare((one.0, 1), &set[1], (other.0, 1)), Ordering::Greater);
        }
    }
}
