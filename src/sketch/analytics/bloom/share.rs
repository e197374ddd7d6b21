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
