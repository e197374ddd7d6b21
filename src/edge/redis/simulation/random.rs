//! Random numbers that are the same on every machine.

/// SplitMix64 (Steele, Lea and Flood 2014): small, and good enough for made-up traffic.
#[derive(Clone, Debug)]
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias is below one in a million for bounds below 2^44.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap_or(0)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::SplitMix64;

    /// The first numbers of the seed 1234567, as the authors' C code prints them.
    #[test]
    fn splitmix64_matches_the_reference_output() {
        let mut random = SplitMix64(1_234_567);
        assert_eq!(
            [random.next(), random.next(), random.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
        assert_eq!(random.below(0), 0);
        assert!((0..1_000).all(|_| random.below(3) < 3));
    }
}
