//! The content of a table at one time: for snapshots, for a change of the quota, and for the load.

use alloc::vec::Vec;

use super::times::MOST_AHEAD;
use super::{DecisionTime, Full, SlotTable};
use crate::algorithm::compact::slot::{EMPTY, FINGERPRINT_BITS, SlotWord};
use crate::algorithm::compact::{CompactState, STATE_BITS};
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sketch::tat::CellsImage;

/// The debts in a table at one time. Words and cells that are not ahead of that time are left out.
#[derive(Debug, Default)]
pub(in crate::store::compact) struct Image {
    /// The index of each slot, in ascending order, and a word with the slot's fingerprint and how far ahead it is.
    pub(in crate::store::compact) slots: Vec<(u64, u64)>,
    /// The debts in the sketch.
    pub(in crate::store::compact) spilled: CellsImage,
}

/// Methods for snapshots.
impl<N: CompactState, const WAYS: usize> SlotTable<N, WAYS> {
    /// The numbers of slots and cells, and the number of bits by which cells are shifted.
    pub(in crate::store::compact) fn shape(&self) -> [u64; 3] {
        let (cells, shift) = match &self.full {
            Full::Spill(spill) => (spill.cells().len() as u64, u64::from(spill.cells().shift()) + 1),
            Full::Forget => (0, 0),
            Full::Inherit => (0, 255),
        };
        [self.len() as u64, cells, shift]
    }

    /// The debts at a time. The slots are read before the cells. So if a debt is evicted in between, it is in the cells.
    pub(in crate::store::compact) fn image(&self, word: &N, time: CheckTime) -> Image {
        let now_ns = time.ns();
        let at = DecisionTime::new(word, now_ns);
        let mut image = Image::default();
        for (bucket, slots) in (0_u64..).zip(self.buckets.iter()) {
            // Most buckets of most tables are empty: one comparison for all slots takes a quarter of the time.
            // Ordering: Acquire, here and below: a thread that sees that an evicted key is gone also sees its debt.
            if slots.iter().fold(EMPTY, |all, slot| all | slot.load(Acquire)) == EMPTY {
                continue;
            }
            for (index, slot) in (bucket * WAYS as u64..).zip(slots) {
                let seen = slot.load(Acquire);
                // Limited to the horizon, because the word may have been written after the image began.
                if seen != EMPTY
                    && let Some(ahead @ 1..) = self.ahead(word, SlotWord::unpack(seen).state, &at)
                {
                    let ahead = ahead.min(MOST_AHEAD);
                    image.slots.push((index, SlotWord::pack(SlotWord::unpack(seen).fingerprint, ahead)));
                }
            }
        }
        // If no debt is spilled, the cells are skipped. So cells that have wrapped around are not taken for debts.
        if let Full::Spill(spill) = &self.full
            && spill.is_used(at.reference)
        {
            image.spilled =
                spill.cells().image(at.reference, &|| at.reference.wrapping_add(self.later(word, &at)));
        }
        image
    }

    /// Whether an image has the shape of this table.
    pub(in crate::store::compact) fn accepts(&self, image: &Image) -> bool {
        let slots = self.len() as u64;
        let ascending = image.slots.is_sorted_by(|a, b| a.0 < b.0);
        let sound = image.slots.iter().all(|&(index, stored)| {
            let SlotWord { fingerprint, state } = SlotWord::unpack(stored);
            index < slots && fingerprint > 0 && (1..=MOST_AHEAD).contains(&state)
        });
        let cells = match &self.full {
            Full::Spill(spill) => spill.cells().accepts(&image.spilled),
            Full::Forget | Full::Inherit => image.spilled.cells.is_empty() && image.spilled.ends.is_empty(),
        };
        ascending && sound && cells
    }

    /// Writes the image of `then_ns` to an empty table, at `now_ns`.
    ///
    /// Debts are paid during the time between the two. If the clock is behind the time of the image, no time counts as
    /// passed.
    pub(in crate::store::compact) fn fill_with(&self, word: &N, image: &Image, then_ns: u64, now_ns: u64) {
        let reference = word.reference(now_ns);
        let passed = if now_ns > then_ns { reference.wrapping_sub(word.reference(then_ns)) } else { 0 };
        let most = image
            .slots
            .iter()
            .map(|&(_, stored)| SlotWord::unpack(stored).state.saturating_sub(passed))
            .max();
        self.newest.raise_to(self.covering_ns(word, now_ns, most.unwrap_or(0)));
        for &(index, stored) in &image.slots {
            let SlotWord { fingerprint, state: ahead } = SlotWord::unpack(stored);
            if let Some(left @ 1..) = ahead.checked_sub(passed) {
                #[expect(clippy::cast_possible_truncation, reason = "below the number of slots (`accepts`)")]
                let index = index as usize;
                let slot = &self.buckets[index / WAYS][index % WAYS];
                slot.store(SlotWord::pack(fingerprint, reference.wrapping_add(left)), Release);
            }
        }
        if let Full::Spill(spill) = &self.full {
            spill.replace(&image.spilled, word.reference(then_ns), reference, now_ns > then_ns);
        }
    }

    /// Whether keys have the same addresses in another table.
    pub(in crate::store::compact) fn has_addresses_of<M: CompactState>(
        &self,
        other: &SlotTable<M, WAYS>,
    ) -> bool {
        self.len() == other.len()
    }

    /// Calls `visit` with a hash that leads to each key that owes, and with the key's decision.
    ///
    /// Returns false if keys can owe debts that are in no slot (spilled or inherited debts), or if the bits that the
    /// table keeps of a hash do not lead back to the bucket.
    ///
    /// The hash has the key's bucket and fingerprint. Its home is the slot that the key is in, which may differ from
    /// the key's own home. So an insert by this hash can take another slot than an insert by the key. The table detects
    /// and undoes this, as for any two threads that do not see the same words, but not under [`Full::Inherit`].
    pub(in crate::store::compact) fn for_each(
        &self,
        word: &N,
        time: CheckTime,
        mut visit: impl FnMut(u64, &Decision),
    ) -> bool {
        match &self.full {
            Full::Inherit => return false,
            Full::Spill(spill) if spill.is_used(word.reference(time.ns())) => return false,
            Full::Spill(_) | Full::Forget => {}
        }
        let width = u64::MAX / self.buckets.len() as u64;
        for (index, slot) in (0_u64..).zip(self.slots()) {
            let seen = slot.load(Acquire);
            if seen == EMPTY {
                continue;
            }
            let (bucket, home) = (index / WAYS as u64, index % WAYS as u64);
            let low = home << FINGERPRINT_BITS | SlotWord::unpack(seen).fingerprint;
            // The middle of the bucket's hashes. The low bits do not affect the bucket.
            let top = bucket.saturating_mul(width).saturating_add(bucket).saturating_add(width / 2);
            let hash = top & !(u64::MAX >> (STATE_BITS - WAYS.ilog2())) | low;
            let place = self.place(hash);
            if self.number_of(place) as u64 != bucket || !place.owns(seen) {
                return false;
            }
            visit(hash, &self.peek(word, self.place(hash), time, 0));
        }
        // A debt may have been spilled in the meantime.
        !matches!(&self.full, Full::Spill(spill) if spill.is_used(word.reference(time.ns())))
    }

    /// Whether no key was ever inserted.
    pub(in crate::store::compact) fn is_new(&self) -> bool {
        self.slots().all(|slot| slot.load(Relaxed) == EMPTY)
    }

    fn is_live(&self, word: u64, reference: u64) -> bool {
        word != EMPTY && self.times().owes(word, reference)
    }

    /// The number of slots whose keys owe.
    pub(in crate::store::compact) fn live_slots(&self, word: &N, time: CheckTime) -> usize {
        let reference = word.reference(time.ns());
        self.slots().filter(|slot| self.is_live(slot.load(Relaxed), reference)).count()
    }

    /// The share of slots whose keys owe. It looks at 4,096 slots, or at all slots if there are fewer.
    pub(in crate::store::compact) fn fill(&self, word: &N, time: CheckTime) -> f64 {
        let looked_at = 4096 / WAYS;
        let reference = word.reference(time.ns());
        let buckets = self.buckets.len().min(looked_at);
        let mut live = 0_u32;
        for index in 0..buckets {
            // The buckets are evenly spread.
            let bucket = index * (self.buckets.len() / buckets);
            for slot in self.bucket(bucket) {
                live += u32::from(self.is_live(slot.load(Relaxed), reference));
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "at most 4096")]
        let slots = (buckets * WAYS) as f64;
        f64::from(live) / slots
    }
}
