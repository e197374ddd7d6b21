//! Windows whose counts are kept somewhere else than in one word.

use super::window::CountedWindows;
use super::{CompactState, IntoCompact, SlidingWord, WindowWord};
use crate::algorithm::step::Algorithm;

/// An algorithm of aligned windows, which the [`Sketch`](crate::Sketch) store can hold: counts of this window, and of the
/// last one, are all that it asks for. Sealed.
///
/// The fixed window, up to 8,573,190,079 units, and the sliding window of two counts up to 65,407 each.
pub trait WindowAlgorithm: Algorithm + IntoCompact<CompactState: WindowState> {}

impl<A: Algorithm + IntoCompact<CompactState: WindowState>> WindowAlgorithm for A {}

/// A narrow algorithm whose state is a window and counts.
pub trait WindowState: CompactState {
    /// Whether the last window's count matters.
    const LAST: bool;

    /// The windows.
    fn windows(&self) -> &CountedWindows;

    /// The length of a window, in nanoseconds.
    #[inline]
    fn window_ns(&self) -> u64 {
        self.windows().window_ns
    }

    /// How many units a window has room for.
    #[inline]
    fn limit(&self) -> u64 {
        self.windows().limit
    }

    /// The same with room for counts that `other` has room for, of windows as long.
    #[must_use]
    fn with_room_of(self, other: &Self) -> Self;

    /// How far ahead a state is in which the window that counts is `later` windows after now's, with these counts of the
    /// window before it and of it. Of more than the word has room for, which is more than the limit, it is as much as that.
    fn ahead(&self, later: u64, last: u64, used: u64) -> u64;

    /// The count of the window that counts, in a state so far ahead.
    #[inline]
    fn used(&self, ahead: u64) -> u64 {
        ahead & self.windows().mask()
    }
}

impl WindowState for WindowWord {
    const LAST: bool = false;

    #[inline]
    fn windows(&self) -> &CountedWindows {
        &self.windows
    }

    fn with_room_of(mut self, other: &Self) -> Self {
        self.windows = self.windows.with_room_of(&other.windows);
        self
    }

    #[inline]
    fn ahead(&self, later: u64, _last: u64, used: u64) -> u64 {
        (later << self.windows.count_bits) | used.min(self.windows.mask())
    }
}

impl WindowState for SlidingWord {
    const LAST: bool = true;

    #[inline]
    fn windows(&self) -> &CountedWindows {
        &self.windows
    }

    fn with_room_of(mut self, other: &Self) -> Self {
        self.windows = self.windows.with_room_of(&other.windows);
        self
    }

    /// The reference is the window before now's, so that one later is now's.
    #[inline]
    fn ahead(&self, later: u64, last: u64, used: u64) -> u64 {
        let (bits, most) = (self.windows.count_bits, self.windows.mask());
        ((later + 1) << (2 * bits)) | (last.min(most) << bits) | used.min(most)
    }
}
