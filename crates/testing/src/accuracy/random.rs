//! Pseudo-random numbers that are the same in every run.

use std::hash::{BuildHasher, Hasher};

/// SplitMix64.
///
/// # Source
/// Steele, Lea, Flood 2014.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// Returns a number from 0 to below 1, in steps of 2⁻⁵³.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a double holds")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(bound);
        u64::try_from(product >> 64).expect("a number below the bound")
    }
}

/// Draws ranks from 1 to `keys`. The probability of rank k is proportional to `k^-exponent`.
#[derive(Clone, Debug)]
pub struct Zipf {
    keys: f64,
    exponent: f64,
    first: f64,
    last: f64,
    sure: f64,
}

impl Zipf {
    pub fn new(keys: u32, exponent: f64) -> Self {
        let mut zipf = Self { keys: f64::from(keys), exponent, first: 0.0, last: 0.0, sure: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.keys + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    fn weight(&self, rank: f64) -> f64 {
        rank.powf(-self.exponent)
    }

    /// Returns the integral of the weight from 1 to `rank`.
    fn integral(&self, rank: f64) -> f64 {
        let left = 1.0 - self.exponent;
        if left.abs() < 1e-9 { rank.ln() } else { (rank.powf(left) - 1.0) / left }
    }

    fn inverse(&self, area: f64) -> f64 {
        let left = 1.0 - self.exponent;
        if left.abs() < 1e-9 { area.exp() } else { (1.0 + area * left).powf(1.0 / left) }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to `keys`")]
    pub fn sample(&self, random: &mut Random) -> u32 {
        loop {
            let area = self.last + random.unit() * (self.first - self.last);
            let at = self.inverse(area);
            let rank = (at + 0.5).floor().clamp(1.0, self.keys);
            if rank - at <= self.sure || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u32;
            }
        }
    }
}

/// A hasher for one integer, with the same results on every machine. (A hasher in production has a secret.)
#[derive(Copy, Clone, Debug)]
pub struct Seeded(pub u64);

#[derive(Debug)]
pub struct Mixed(u64);

impl BuildHasher for Seeded {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed(self.0)
    }
}

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    /// Mixes by two folded multiplications, as wyhash does.
    fn write_u64(&mut self, value: u64) {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            u64::try_from(product >> 64).expect("half of 128 bits")
                ^ u64::try_from(product & u128::from(u64::MAX)).expect("half of 128 bits")
        };
        let once =
            fold(value ^ self.0 ^ 0x2D35_8DCC_AA6C_78A5, 0x8BB8_4B93_962E_ACC9 ^ self.0.rotate_left(32));
        self.0 = fold(once ^ value.rotate_left(29), 0x4B33_A62E_D433_D4A3);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
