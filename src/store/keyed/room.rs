//! The cap of a keyed store, and the room of one key under it.

use crossbeam_utils::CachePadded;

use super::WhenFull;
use super::table::Replaced;
use crate::base::sync::{AtomicUsize, Ordering};

/// The number of keys that a full store looks at to forget one of them.
const TO_FORGET: usize = 6;
/// The number of keys that a full store looks at before it gives a new key no place, if its cap is above
/// [`FULLY_SEARCHED_CAP`].
const TO_REFUSE: usize = 12;
/// A store with a cap up to this value looks at all of its keys before it gives a new key no place.
const FULLY_SEARCHED_CAP: usize = 256;

pub(super) struct Cap {
    pub(super) max: usize,
    pub(super) when_full: WhenFull,
    /// Keys that the store holds or is about to hold. Only stores with a cap write this shared line, and only at first
    /// sight and removal.
    pub(super) held: CachePadded<AtomicUsize>,
}

impl Cap {
    /// The number of keys that a full store looks at for each new key.
    pub(super) fn searched(&self) -> usize {
        match self.when_full {
            WhenFull::Forget => TO_FORGET,
            WhenFull::Deny | WhenFull::Admit if self.max <= FULLY_SEARCHED_CAP => self.max,
            WhenFull::Deny | WhenFull::Admit => TO_REFUSE,
        }
    }
}

/// The room of one key under the cap. When it is dropped, the room is given back, unless a node has taken it. This also
/// happens if the key's own code panics.
pub(super) struct Room<'s> {
    pub(super) cap: Option<&'s Cap>,
    /// The key that was just removed to make this room.
    pub(super) replaced: Option<Replaced<'s>>,
}

impl Room<'_> {
    /// Records that a node owns the room now.
    pub(super) fn taken(mut self) {
        self.cap = None;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(cap) = self.cap {
            cap.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
