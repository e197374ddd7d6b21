//! Windows whose counts are kept somewhere else than in one word.

use super::{Narrow, Narrowed, SlidingWord, WindowWord};
use crate::algorithm::Algorithm;

/// An algorithm of aligned windows, which the [`Sketch`](crate::Sketch) store can hold: counts of this window, and of the
/// last one, are all that it asks for. Sealed.
///
/// The fixed window, up to 8,573,190,079 units, and the sliding window of two counts up to 65,407 each.
pub trait WindowAlgorithm: Algorithm + Narrowed<Narrow: Counted> {}

impl<A: Algorithm + Narrowed<Narrow: Counted>> WindowAlgorithm for A {}

/// A narrow algorithm whose state is a window and counts.
pub trait Counted: Narrow {
    /// Whether the last window's count matters.
    const LAST: bool;

    /// The length of a window, in nanoseconds.
    fn window_ns(&self) -> u64;

    /// How many units a window has room for.
    fn limit(&self) -> u64;

    /// The same with room for counts that `other` has room for, of windows as long.
    #[cfg(feature = "rules")]
    #[must_use]
    fn with_room_of(self, other: &Self) -> Self;

    /// How far ahead a state is in which the window that counts is `later` windows after now's, with these counts of the
    /// window before it and of it. Of more than the word has room for, which is more than the limit, it is as much as that.
    fn ahead(&self, later: u64, last: u64, used: u64) -> u64;

    /// The count of the window that counts, in a state so far ahead.
    fn used(&self, ahead: u64) -> u64;
}

impl Counted for WindowWord {
    const LAST: bool = false;

    fn window_ns(&self) -> u64 {
        self.window_ns
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    #[cfg(feature = "rules")]
    fn with_room_of(mut self, other: &Self) -> Self {
        self.count_bits = self.count_bits.max(other.count_bits);
        self
    }

    #[inline]
    fn ahead(&self, later: u64, _last: u64, used: u64) -> u64 {
        (later << self.count_bits) | used.min((1 << self.count_bits) - 1)
    }

    #[inline]
    fn used(&self, ahead: u64) -> u64 {
        ahead & ((1 << self.count_bits) - 1)
    }
}

impl Counted for SlidingWord {
    const LAST: bool = true;

    fn window_ns(&self) -> u64 {
        self.window_ns
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    #[cfg(feature = "rules")]
    fn with_room_of(mut self, other: &Self) -> Self {
        self.count_bits = self.count_bits.max(other.count_bits);
        self
    }

    /// The reference is the window before now's, so that one later is now's.
    #[inline]
    fn ahead(&self, later: u64, last: u64, used: u64) -> u64 {
        let most = (1 << self.count_bits) - 1;
        ((later + 1) << (2 * self.count_bits)) | (last.min(most) << self.count_bits) | used.min(most)
    }

    #[inline]
    fn used(&self, ahead: u64) -> u64 {
        ahead & ((1 << self.count_bits) - 1)
    }
}
