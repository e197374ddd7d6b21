//! Computes the share of false positives of a register-blocked Bloom filter.
//!
//! 1. The number of keys in a word has a Poisson distribution with mean `λ = keys / words`.
//! 2. The `k` bits of a key are drawn one by one and may coincide. So a key leaves `j` given bits unset with
//!    probability `q(j) = (1 − j / 64)^k`.
//! 3. All keys of the word together leave these bits unset with probability `e^(−λ (1 − q(j)))`.
//! 4. By inclusion and exclusion, all of `t` given bits are set with probability `Σ (−1)^j (t over j) e^(−λ (1 −
//!    q(j)))`, with `j` from 0 to `t`.
//! 5. The `k` bits of the tested key are `t` different bits. The result is the average of step 4 over the distribution
//!    of `t`.

use super::{MAX_BITS, WORD_BITS};

/// Returns the mean number of keys per word.
#[expect(clippy::cast_precision_loss, reason = "a mean")]
pub(super) fn load(items: usize, words: usize) -> f64 {
    items as f64 / words as f64
}

/// Returns the number of bits per key with the fewest false positives, and that share, at `load` keys per word.
pub(super) fn best(load: f64) -> (u32, f64) {
    let shares = (1..=MAX_BITS).map(|bits| (bits, false_positives(load, bits)));
    shares.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((1, 1.0))
}

/// Returns the share of false positives for keys with `bits` bits, at `load` keys per word. The module docs give the
/// formula.
pub(super) fn false_positives(load: f64, bits: u32) -> f64 {
    let word_bits = f64::from(WORD_BITS);
    // `differ[t]` is the probability that the key has `t` different bits.
    let mut differ = [0.0; MAX_BITS as usize + 1];
    differ[0] = 1.0;
    for drawn in 0..bits {
        for different in (0..=drawn).rev() {
            let same = f64::from(different) / word_bits;
            let of = different as usize;
            differ[of + 1] += differ[of] * (1.0 - same);
            differ[of] *= same;
        }
    }
    // The probability that all keys of a word together leave `given` chosen bits unset: step 3 of the module docs.
    let spared = |given: u32| {
        let by_one = (1.0 - f64::from(given) / word_bits).powf(f64::from(bits));
        (-load * (1.0 - by_one)).exp()
    };
    let mut share = 0.0;
    for (different, probability) in (0..).zip(differ) {
        let (mut all_set, mut choose) = (0.0, 1.0);
        for given in 0..=different {
            all_set += choose * spared(given);
            choose *= -f64::from(different - given) / f64::from(given + 1);
        }
        share += probability * all_set;
    }
    // Rounding in the alternating sum may give a value slightly below 0 or above 1.
    share.clamp(0.0, 1.0)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// Computes the same share in another way: it follows the distribution of the number of set bits in a word, from
    /// draw to draw and from key to key.
    fn by_filling(load: f64, bits: u32) -> f64 {
        let word_bits = WORD_BITS as usize;
        let mut set = vec![0.0; word_bits + 1];
        set[0] = 1.0;
        let (mut share, mut poisson) = (0.0, (-load).exp());
        for keys in 1..200 {
            let full = set
                .iter()
                .zip(0_u32..)
                .map(|(p, set)| p * (f64::from(set) / f64::from(WORD_BITS)).powf(f64::from(bits)));
            share += poisson * full.sum::<f64>();
            poisson *= load / f64::from(keys);
            for _ in 0..bits {
                for at in (0..word_bits).rev() {
                    let hit = at as f64 / word_bits as f64;
                    set[at + 1] += set[at] * (1.0 - hit);
                    set[at] *= hit;
                }
            }
        }
        share
    }

    #[test]
    fn false_positive_formula_matches_simulation() {
        for load in [0.1, 1.0, 64.0 / 24.0, 4.0, 8.0, 16.0] {
            for bits in 1..=MAX_BITS {
                let (formula, filled) = (false_positives(load, bits), by_filling(load, bits));
                assert!(
                    (formula - filled).abs() <= filled * 1e-6 + 1e-12,
                    "{load} {bits}: {formula} {filled}"
                );
            }
        }
    }

    #[test]
    fn documented_false_positive_table_is_right() {
        for (bits_a_key, percent) in
            [(8, 3.35), (10, 1.78), (12, 1.04), (16, 0.405), (24, 0.100), (64, 0.0029)]
        {
            let (_, share) = best(load(64, bits_a_key));
            assert!((share * 100.0 - percent).abs() < percent * 0.02, "{bits_a_key}: {share}");
        }
    }

    #[test]
    fn shares_are_probabilities_and_fall_with_memory() {
        let mut last = 1.0;
        for words in [1, 2, 10, 1_000, 10_000, 100_000, 1_000_000, usize::MAX] {
            let (bits, share) = best(load(1_000_000, words));
            assert!((1..=MAX_BITS).contains(&bits) && share <= last, "{words}: {bits} {share}");
            last = share;
        }
        assert!(last < 1e-9);
        assert_eq!(best(load(usize::MAX, 1)).1, 1.0);
        assert_eq!(best(0.0).1, 0.0);
    }
}
