//! Keys, streams of keys and the stopwatch, for all benches that need them.
#![allow(dead_code, reason = "each bench includes this file and uses its own part of it")]

use std::fs;
use std::path::Path;
use std::time::Instant;

/// Marsaglia's xorshift64, one per thread. The seed is fixed, so every subject gets the same keys in the same order.
pub(crate) struct XorShift(u64);

impl XorShift {
    /// Distinct seeds give unrelated sequences. Zero is a valid seed too.
    pub(crate) fn new(seed: u64) -> Self {
        Self(key(seed) | 1)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `bound`, by multiplication. The bias is under `bound / 2^64`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}

/// Returns the key with this number. SplitMix64's finaliser is a bijection, so keys are distinct. Their order gives no
/// advantage to a hasher or an allocator.
pub(crate) fn key(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The 24-byte string key with this number.
pub(crate) fn text(number: u64) -> String {
    let mut text = String::with_capacity(24);
    write_text(number, &mut text);
    text
}

/// Like [`text`], but reuses the allocation.
pub(crate) fn write_text(number: u64, text: &mut String) {
    use std::fmt::Write as _;
    text.clear();
    write!(text, "tenant-{:02}/user-{number:09}", number % 100).expect("writing to a String never fails");
    assert_eq!(text.len(), 24);
}

/// Converts a length or an index to a number of keys.
pub(crate) fn count(len: usize) -> u64 {
    u64::try_from(len).expect("usize has at most 64 bits")
}

/// Converts a number of keys to a length.
pub(crate) fn length(count: u64) -> usize {
    usize::try_from(count).expect("the benches' sizes fit the memory of the machine they run on")
}

/// The stopwatch of the harness, and the clock of the servers' own maps. No other measured loop calls it.
#[expect(clippy::disallowed_methods, reason = "benches measure real time")]
pub(crate) fn stopwatch() -> Instant {
    Instant::now()
}

/// The value after `flag` among the process's arguments.
pub(crate) fn option(flag: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != flag).nth(1)
}

/// Returns whether `flag` is among the process's arguments.
pub(crate) fn has(flag: &str) -> bool {
    std::env::args().any(|argument| argument == flag)
}

/// Writes the figures of a run, into a folder that need not exist yet.
pub(crate) fn write(path: &str, text: &str) {
    let folder = Path::new(path).parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::write(path, text)).unwrap_or_else(|error| panic!("writing {path}: {error}"));
}
