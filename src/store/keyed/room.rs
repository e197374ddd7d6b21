//! The room of one key under the cap.

use super::Cap;
use crate::base::sync::Ordering;

/// The room of one key under the cap. When it is dropped, the room is given back, unless a node has taken it. This also
/// happens if the key's own code panics.
pub(super) struct Room<'s> {
    pub(super) cap: Option<&'s Cap>,
    /// Whether the room is that of a key that was just removed.
    pub(super) replaces: bool,
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
