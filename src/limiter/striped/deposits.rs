//! Units that were deposited from outside a check. All stripes can draw from them.
//!
//! A *slot* is a word like a stripe's word, without a block size. Deposits of different expiries go to different slots,
//! as long as a slot is empty. When no slot is empty, a deposit joins a slot with another expiry. All units of the slot
//! then take the earlier expiry. A deposit with the same expiry as a slot joins that slot.
//!
//! The *worth* of units is their number times the time for which they may still be spent:
//!
//! 1. A deposit goes to the slot where it adds most to the worth of all slots.
//! 2. If that slot has no room for all units, the rest goes to the next best slot, and so on.
//! 3. Units that would not increase the worth are lost. A deposit therefore never joins a slot that would lose more
//!    worth than the deposit adds.

use super::word::{Gathered, StripeLayout, exchange};
use crate::base::sync::{AtomicU64, Ordering};

/// Slots that hold deposited units. As a reference (`&Deposits`), the type hides the number of slots.
#[derive(Debug)]
pub struct Deposits<S: ?Sized = [AtomicU64]> {
    /// The latest expiry of all deposits. After that time no call needs to read the slots.
    until_ns: AtomicU64,
    slots: S,
}

/// The effect of a deposit on a slot.
struct Joined {
    slot: usize,
    /// The slot's word before and after.
    word: u64,
    next: u64,
    /// The number of units that the slot takes.
    units: u64,
    /// The worth that the slot gains, in unit-nanoseconds; 0 if it would lose worth.
    gain: u128,
}

impl<const SLOTS: usize> Deposits<[AtomicU64; SLOTS]> {
    pub(super) fn new() -> Self {
        Self { until_ns: AtomicU64::new(0), slots: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Deposits {
    /// Returns the slots if a unit in them may be alive, and no slots otherwise.
    #[inline(always)]
    pub(super) fn slots(&self, now_ns: u64) -> &[AtomicU64] {
        // Ordering: Relaxed, here and below; see the text of `striped`.
        let until_ns = self.until_ns.load(Ordering::Relaxed);
        if until_ns > now_ns { &self.slots } else { &[] }
    }

    /// Returns how many more units the slots have room for.
    pub(super) fn room(&self, layout: &StripeLayout, now_ns: u64) -> u64 {
        let words = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        words.map(|word| layout.most() - layout.held(word, now_ns)).fold(0, u64::saturating_add)
    }

    /// Puts units into slots. Returns the number of units that they took.
    pub(super) fn add(&self, layout: &StripeLayout, mut hand: Gathered, now_ns: u64) -> u64 {
        if !layout.is_alive(hand.expiry, now_ns) {
            return 0;
        }
        self.until_ns.fetch_max(hand.expiry, Ordering::Relaxed);
        let mut kept = 0;
        // Each exchange fills a slot, except the last one, so the loop ends.
        while hand.units > 0 {
            let choices = (0..self.slots.len()).map(|slot| self.join(slot, layout, hand, now_ns));
            // Of equal gains, prefers the fuller slot: one of the same expiry to an empty one.
            let best = choices.max_by_key(|choice| (choice.gain, choice.next & layout.most()));
            let Some(Joined { slot, word, next, units, gain: 1.. }) = best else { break };
            if exchange(&self.slots[slot], word, next) {
                kept += units;
                hand.units -= units;
            }
        }
        kept
    }

    /// Returns the effect of adding a hand to a slot. The units of the hand must be alive.
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
