//! The engine of the sliding counters: one count per window, with the current window in the head.
//!
//! ```text
//! head = [ window index + 1 | count ]            the newest window in which anything was admitted
//! tail = ring of [ window index + 1 | count ]    the windows before it, window k at k mod length
//! ```
//!
//! *A new window.* The exchange that begins a window must not lose the count of the window that it ends, and one word
//! has no room for both counts. The caller therefore does two steps:
//!
//! 1. It raises the ring's word for the ended window to the value of the head.
//! 2. It exchanges the head from exactly that value. If the head changed in the meantime (another caller was admitted
//!    to the ended window), the exchange fails, and the next try raises the larger count.
//!
//! Why the races are right:
//!
//! - *A stalled thread raises an old value.* Once the head has moved on, the ring's word for the ended window is final.
//!   An older value cannot replace it, because words only grow: first by index, then by count.
//! - *A refund comes between a raise and its exchange.* Only the head's count can decrease, by a refund. The exchange
//!   then fails, and the ring keeps the larger count, which can only deny more.
//! - *The end of window k overwrites another window.* The ring has one place more than there are windows to remember,
//!   so a reader of the old head does not count the overwritten window.
//! - *A reader has an outdated head.* It may find newer words in the places of older ones, and counts these as zero. If
//!   this leads to an admission, the exchange fails. If the reader still denies, it would also deny with the correct
//!   words.
//!
//! A time before the head's window counts as the beginning of that window.

use super::split::Split;
use super::step::{Raise, Refund, Refunded, Step};
use crate::base::decision::Decision;
use crate::base::quota::{Quota, Reason};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct WindowCounts {
    pub(super) limit: u64,
    /// The length of one window, or of one sub-window.
    pub(super) window_ns: u64,
    /// The number of windows before the current one that count.
    pub(super) history: u32,
    split: Split,
}

/// The meaning of the words at one time.
#[derive(Copy, Clone)]
pub(super) struct WindowView {
    /// The window that counts as the current one.
    pub(super) index: u64,
    /// The current window's count.
    pub(super) current: u64,
    /// The head's own window and count, if the head's window is not the current one.
    ended: Option<(u64, u64)>,
}

impl WindowCounts {
    pub(super) const fn new(
        algorithm: &'static str,
        limit: u64,
        window_ns: u64,
        history: u32,
    ) -> Result<Self, Reason> {
        match Split::holding(algorithm, "the limit, in windows of this length,", window_ns, limit) {
            Ok(split) => Ok(Self { limit, window_ns, history, split }),
            Err(reason) => Err(reason),
        }
    }

    /// Returns the same windows with another limit.
    pub(super) fn requota(
        &self,
        algorithm: &'static str,
        quota: &Quota,
        window_ns: u64,
    ) -> Result<Self, Reason> {
        if window_ns != self.window_ns {
            return Err(Reason::Layout { algorithm, same: "period" });
        }
        Self::new(algorithm, quota.limit(), window_ns, self.history)
    }

    /// Returns whether `other` reads words in the same way.
    pub(super) fn reads(&self, other: &Self) -> bool {
        (self.window_ns, self.history, self.split) == (other.window_ns, other.history, other.split)
    }

    /// Returns the number of tail words: one for each remembered window, and one for the window that ends.
    pub(super) const fn ring_len(&self) -> usize {
        self.history as usize + 1
    }

    #[inline]
    pub(super) fn view(&self, head: u64, now_ns: u64) -> WindowView {
        let now_index = now_ns / self.window_ns;
        let (stored, count) = self.split.unpack(head);
        let Some(stored) = stored.checked_sub(1) else {
            return WindowView { index: now_index, current: 0, ended: None };
        };
        if now_index <= stored {
            WindowView { index: stored, current: count, ended: None }
        } else {
            WindowView { index: now_index, current: 0, ended: Some((stored, count)) }
        }
    }

    #[inline]
    fn place(&self, index: u64) -> usize {
        let place = index % (u64::from(self.history) + 1);
        #[expect(clippy::cast_possible_truncation, reason = "at most the ring's length")]
        let place = place as usize;
        place
    }

    /// Returns the counts of the windows before the current one, each with its distance: from 1 to `history`, or to the
    /// first window.
    #[inline]
    pub(super) fn before(
        &self,
        view: &WindowView,
        read: impl Fn(usize) -> u64,
    ) -> impl Iterator<Item = (u32, u64)> {
        let (index, ended) = (view.index, view.ended);
        let length = self.ring_len();
        // Each step moves one place back in the ring, which avoids a division per window.
        let mut place = self.place(index);
        let oldest = u64::from(self.history).min(index);
        #[expect(clippy::cast_possible_truncation, reason = "at most the history, which is a u32")]
        (1..=oldest as u32).map(move |back| {
            place = if place == 0 { length - 1 } else { place - 1 };
            let index = index - u64::from(back);
            match ended {
                Some((ended, count)) if ended == index => (back, count),
                _ => {
                    let (stored, count) = self.split.unpack(read(place));
                    (back, if stored == index + 1 { count } else { 0 })
                }
            }
        })
    }

    /// Returns the step that adds `cost` to the current window's count.
    #[inline]
    pub(super) fn admit(&self, view: &WindowView, decision: Decision, head: u64, cost: u64) -> Step {
        if cost == 0 {
            return Step::admit(decision, head);
        }
        let next = self.split.pack(view.index + 1, view.current + cost);
        // If no later check can count the ended window, its count is not stored in the ring.
        let raise = match view.ended {
            Some((ended, _)) if view.index - ended <= u64::from(self.history) => {
                Some(Raise { index: self.place(ended), value: head })
            }
            _ => None,
        };
        Step::Admit { decision, next, raise, fill: None }
    }

    /// Returns the part of `cost` that the current count can still hold.
    pub(super) const fn fitting(&self, view: &WindowView, cost: u64) -> u64 {
        let room = self.split.max_low().saturating_sub(view.current);
        if cost < room { cost } else { room }
    }

    /// Refunds up to `units` of the current window. (Counts in the ring only grow.) If they are of a charge, `counted_in`
    /// returns its window, which must be the current one.
    pub(super) fn refund(
        &self,
        head: u64,
        refund: &Refund<'_>,
        counted_in: impl FnOnce(&Decision) -> Option<u64>,
    ) -> Option<Refunded> {
        let &Refund { charge, units, now_ns } = refund;
        let view = self.view(head, now_ns);
        let mut units = units.min(view.current);
        if let Some(charge) = charge {
            counted_in(charge).filter(|index| *index == view.index)?;
            units = units.min(charge.charged());
        }
        (units > 0).then(|| Refunded { next: self.split.pack(view.index + 1, view.current - units), units })
    }

    /// Returns the nanoseconds from `now_ns` to the beginning of window `index`.
    pub(super) fn until(&self, index: u128, now_ns: u64) -> u64 {
        let start = index * u128::from(self.window_ns);
        u64::try_from(start.saturating_sub(u128::from(now_ns))).unwrap_or(u64::MAX)
    }

    /// Returns whether the head's window begins within 64-bit time.
    pub(super) const fn accepts(&self, head: u64) -> bool {
        self.split.unpack(head).0 <= u64::MAX / self.window_ns + 1
    }

    /// Returns whether no window has a count any more.
    pub(super) fn is_idle(&self, head: u64, now_ns: u64) -> bool {
        // Every word in the ring belongs to an older window than the head's.
        match self.split.unpack(head).0.checked_sub(1) {
            None => true,
            Some(stored) => (now_ns / self.window_ns).saturating_sub(stored) > u64::from(self.history),
        }
    }
}
