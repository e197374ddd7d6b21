//! The engine of the sliding counters: one count for each window, the present one in the head.
//!
//! ```text
//! head = [ window index + 1 | count ]            the newest window in which anything was admitted
//! tail = ring of [ window index + 1 | count ]    the windows before it, window k at k mod length
//! ```
//!
//! *Turning over.* The exchange that begins a window must not lose the count of the one it ends, and the two have
//! no room in one word. So the ended window's word is first raised into its place in the ring, then the head is
//! exchanged from exactly that word: if it changed meanwhile (someone was admitted to the ended window after
//! all), the exchange fails, and the next try raises the larger count. Once the head has moved on, the ring's
//! word for the window it left is final. It is right however late a stalled thread raises an older value, since
//! words only grow: first by index, then by count. Only the head's count shrinks, when units are given back. If that comes
//! between a raise and its exchange, which then fails, the ring keeps the larger count: against the client.
//!
//! The ring has one place more than there are windows to remember, so that ending window k never overwrites a
//! window that a reader of the old head still counts. A reader whose head is outdated may find newer words where
//! it looks for older ones. It takes those as zero, which can only admit, and then its exchange fails; a refusal
//! would have been one with the right words too.
//!
//! A time before the head's window is taken as the beginning of that window.

use super::split::Split;
use super::step::{Raise, Refunded, Step};
use crate::base::decision::Decision;
use crate::base::quota::{Quota, Reason};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct WindowCounts {
    pub(super) limit: u64,
    /// The length of one window (of a sub-window, if that is what they are).
    pub(super) window_ns: u64,
    /// How many windows before the present one count.
    pub(super) history: u32,
    split: Split,
}

/// What the words say at a time.
#[derive(Copy, Clone)]
pub(super) struct WindowView {
    /// The window that counts as the present one.
    pub(super) index: u64,
    /// Its count.
    pub(super) current: u64,
    /// The head's own window and count, if the head's window is not the present one.
    ended: Option<(u64, u64)>,
}

impl WindowCounts {
    pub(super) const fn new(
        algorithm: &'static str,
        limit: u64,
        window_ns: u64,
        history: u32,
    ) -> Result<Self, Reason> {
        match Split::holding(algorithm, "the limit, in windows so short,", window_ns, limit) {
            Ok(split) => Ok(Self { limit, window_ns, history, split }),
            Err(reason) => Err(reason),
        }
    }

    /// The same windows with another limit.
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

    /// Whether another value reads words alike.
    pub(super) fn reads(&self, other: &Self) -> bool {
        (self.window_ns, self.history, self.split) == (other.window_ns, other.history, other.split)
    }

    /// Tail words: one for each window remembered, and one being ended.
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

    /// The counts of the windows before the present one, with how far back each is: from 1 to `history`, or as far as
    /// there are windows.
    #[inline]
    pub(super) fn before(
        &self,
        view: &WindowView,
        read: impl Fn(usize) -> u64,
    ) -> impl Iterator<Item = (u32, u64)> {
        let (index, ended) = (view.index, view.ended);
        let length = self.ring_len();
        // Places go back by one, which spares a division for each.
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

    /// The step that counts `cost` more in the present window.
    #[inline]
    pub(super) fn admit(&self, view: &WindowView, decision: Decision, head: u64, cost: u64) -> Step {
        if cost == 0 {
            return Step::admit(decision, head);
        }
        let next = self.split.pack(view.index + 1, view.current + cost);
        // A window that nobody will ask for any more needs no place.
        let raise = match view.ended {
            Some((ended, _)) if view.index - ended <= u64::from(self.history) => {
                Some(Raise { index: self.place(ended), value: head })
            }
            _ => None,
        };
        Step::Admit { decision, next, raise, fill: None }
    }

    /// How much of `cost` the present count can still hold.
    pub(super) const fn fitting(&self, view: &WindowView, cost: u64) -> u64 {
        let room = self.split.max_low().saturating_sub(view.current);
        if cost < room { cost } else { room }
    }

    /// Takes back up to `units` that were counted in the window `index`, if that is still the head's. (Counts in the ring
    /// only grow.)
    pub(super) fn refund(&self, head: u64, index: u64, units: u64) -> Option<Refunded> {
        let (stored, count) = self.split.unpack(head);
        let units = units.min(count);
        (stored == index + 1 && units > 0)
            .then(|| Refunded { next: self.split.pack(stored, count - units), units })
    }

    /// From `now_ns` to the beginning of window `index`, in nanoseconds.
    pub(super) fn until(&self, index: u128, now_ns: u64) -> u64 {
        let start = index * u128::from(self.window_ns);
        u64::try_from(start.saturating_sub(u128::from(now_ns))).unwrap_or(u64::MAX)
    }

    /// Whether nothing is counted any more.
    pub(super) fn is_idle(&self, head: u64, now_ns: u64) -> bool {
        // Every word in the ring is of an older window than the head's.
        match self.split.unpack(head).0.checked_sub(1) {
            None => true,
            Some(stored) => (now_ns / self.window_ns).saturating_sub(stored) > u64::from(self.history),
        }
    }
}
