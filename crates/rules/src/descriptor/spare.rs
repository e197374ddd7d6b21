//! Memory that a thread uses again for its next request.

use std::cell::Cell;
use std::thread::LocalKey;

/// What a thread keeps, if it keeps something.
pub(crate) type Spare<T> = Cell<Option<T>>;

/// Returns what the thread keeps. A thread that is ending has nothing any more.
#[inline]
pub(crate) fn take<T>(spare: &'static LocalKey<Spare<T>>) -> Option<T> {
    spare.try_with(Cell::take).unwrap_or_default()
}

/// Lets the thread keep memory, if there is any. `clear` empties it, and returns whether it is small enough; otherwise it is freed.
#[inline]
pub(crate) fn leave<T>(
    spare: &'static LocalKey<Spare<T>>,
    mut left: Option<T>,
    clear: impl FnOnce(&mut T) -> bool,
) {
    if left.as_mut().is_some_and(clear) {
        // A thread that is ending keeps nothing.
        let _ = spare.try_with(|spare| left = spare.replace(left.take()));
    }
    if left.is_some() {
        free(left);
    }
}

/// Not inlined, so that what leaves its memory to the thread is dropped without a call.
#[cold]
#[inline(never)]
fn free<T>(left: Option<T>) {
    drop(left);
}
