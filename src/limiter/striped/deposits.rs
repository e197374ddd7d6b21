//! What was deposited from outside, for all stripes to draw from.
//!
//! A slot is a word as a stripe's is, without a block. Deposits of different expiries are kept apart as long
//! as there are slots. After that, and to fill up slots of the same expiry, units are joined, under the
//! earlier expiry as everywhere. What units are worth is their number times the time that they may still be
//! spent for. A deposit goes to the slot where it adds most to the worth of all slots, and the rest of it to the
//! next best slot, as long as the worth grows. So it never joins a slot from which it takes more than it brings.

use super::word::{Gathered, StripeLayout, exchange};
use crate::base::sync::{AtomicU64, Ordering};

/// Slots that hold deposited units. A reference is to any number of slots.
#[derive(Debug)]
pub(crate) struct Deposits<S: ?Sized = [AtomicU64]> {
    /// The latest expiry of all deposits: after that nobody needs to look at the slots.
    until_ns: AtomicU64,
    slots: S,
}

/// What a deposit would do to a slot.
struct Joined {
    slot: usize,
    /// The slot's word before and after.
    word: u64,
    next: u64,
    /// How many of the units it takes.
    units: u64,
    /// What that adds to the worth of the slot, in unit-nanoseconds; 0 if it would take from it.
    gain: u128,
}

impl<const SLOTS: usize> Deposits<[AtomicU64; SLOTS]> {
    pub(super) fn new() -> Self {
        Self { until_ns: AtomicU64::new(0), slots: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Deposits {
    /// The slots, if anything in them may be alive.
    #[inline(always)]
    pub(super) fn slots(&self, now_ns: u64) -> &[AtomicU64] {
        // Ordering: Relaxed, here and below; see the text of `striped`.
        let until_ns = self.until_ns.load(Ordering::Relaxed);
        if until_ns > now_ns { &self.slots } else { &[] }
    }

    /// How many more units there is room for.
    pub(super) fn room(&self, layout: &StripeLayout, now_ns: u64) -> u64 {
        let words = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        words.map(|word| layout.most() - layout.held(word, now_ns)).fold(0, u64::saturating_add)
    }

    /// Puts units into slots. Returns how many of them.
    pub(super) fn add(&self, layout: &StripeLayout, mut hand: Gathered, now_ns: u64) -> u64 {
        if !layout.is_alive(hand.expiry, now_ns) {
            return 0;
        }
        self.until_ns.fetch_max(hand.expiry, Ordering::Relaxed);
        let mut kept = 0;
        // Each exchange but the last fills a slot up.
        while hand.units > 0 {
            let choices = (0..self.slots.len()).map(|slot| self.join(slot, layout, hand, now_ns));
            // Rather to a slot of the same expiry than to an empty one.
            let best = choices.max_by_key(|choice| (choice.gain, choice.next & layout.most()));
            let Some(Joined { slot, word, next, units, gain: 1.. }) = best else { break };
            if exchange(&self.slots[slot], word, next) {
                kept += units;
                hand.units -= units;
            }
        }
        kept
    }

    /// What a slot would become by units that are alive.
    fn join(&self, slot: usize, layout: &StripeLayout, hand: Gathered, now_ns: u64) -> Joined {
        let word = self.slots[slot].load(Ordering::Relaxed);
        let (own, expiry) = (layout.held(word, now_ns), layout.expiry_of(word));
        let units = hand.units.min(layout.most() - own);
        let common = if own == 0 { hand.expiry } else { expiry.min(hand.expiry) };
        let worth = |units: u64, ns: u64| u128::from(units) * u128::from(ns);
        let brings = worth(units, common.saturating_sub(now_ns));
        let takes = worth(own, expiry.saturating_sub(common));
        let next = layout.pack(common, 0, own + units);
        Joined { slot, word, next, units, gain: brings.saturating_sub(takes) }
    }
}
