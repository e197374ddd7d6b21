//! Reclamation: memory that other threads may still read is freed once no thread can read it.
//!
//! A thread *pins* before it reads a pointer that another thread may unpublish, and unpins when it does not use that
//! pointer any more. A thread that has unpublished memory *retires* it. Retired memory waits until all threads have
//! unpinned that were pinned at that time. Then it is *freed*: a function of the caller is called.
//!
//! | part | contents |
//! |---|---|
//! | `domain` | the protocol: epochs, records of threads, batches, and why nothing is freed too early |
//! | `hold` | a second protocol, for a value that is in use for longer than a pin, or on another thread |
//! | `swap` | a value that is held while another thread replaces it |
//! | `barrier` | the two barriers: a light one for threads that pin, a heavy one for the thread that frees |
//! | `thread` | the record of the calling thread; threads that end |
//! | `modelled` | a simple replacement, for the models of other modules |
//!
//! # Rules
//! 1. Freeing neither pins nor collects. The function that frees gets the guard of the collecting thread. The `Drop` of a
//!    key may use any limiter: it pins and retires, but a collection never begins inside a collection. So the depth of
//!    the stack does not depend on the number of items that wait.
//! 2. One call frees at most [`domain::FREED`] times [`domain::BATCH`] items, or fewer large ones. So its work is
//!    bounded, whatever waits.
//! 3. A thread that ends frees nothing. It hands its waiting items over, and another thread frees them. This also holds
//!    for a thread whose thread-local values are being dropped, which may pin and retire even after its record is gone.
//! 4. Only a thread that fills a batch collects. If more than [`domain::MANY`] batches wait, threads that pin collect too,
//!    in their first pin and then in one of 64. So more is freed than comes, until only [`domain::MANY`] batches wait,
//!    and one batch for each thread.
//! 5. Nothing is freed that was retired after the oldest pin began. An operation pins for its own time. A visit of all
//!    keys pins for one shard at a time.
//!
//! # Why not arc-swap
//! Its load and its guard's drop take a locked instruction each, a tenth of a check by rules. A place is written plainly,
//! because the barriers and the records were here already.
//!
//! # Why not crossbeam-epoch
//! Its pin needs a full fence, which takes a quarter of a check, and a collection may begin inside another one: a
//! function that frees pins, and a pin collects. On a thread that is ending, each such pin registers the thread again,
//! and every registration collected, until the stack overflowed. As an engine that only stores what waits, it would need
//! pins of its own beside the light ones, and two epochs.

mod barrier;
mod domain;
mod hold;
#[cfg(tollgate_loom)]
mod modelled;
#[cfg(all(test, tollgate_loom, not(tollgate_shuttle)))]
mod models;
#[cfg(not(tollgate_loom))]
mod swap;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
#[cfg(not(tollgate_loom))]
mod thread;

#[cfg(tollgate_loom)]
pub use self::modelled::Loaded;
#[cfg(all(test, tollgate_loom))]
pub(crate) use self::modelled::take_retired;
#[cfg(tollgate_loom)]
pub(crate) use self::modelled::{Former, Pinned, Swap, pin};
#[cfg(not(tollgate_loom))]
pub use self::swap::Loaded;
#[cfg(not(tollgate_loom))]
pub(crate) use self::swap::{Former, Swap};
#[cfg(not(tollgate_loom))]
pub(crate) use self::thread::{Pinned, pin};

/// Frees a retired part of `T`, on any thread. The guard is that of the thread that frees.
pub(crate) type Free<T> = unsafe fn(*mut T, usize, &Pinned);

/// What waits: `free(ptr, part)`, once no thread can use that part.
struct Retired {
    ptr: *mut (),
    part: usize,
    free: Free<()>,
}

impl Retired {
    fn new<T>(ptr: *mut T, part: usize, free: Free<T>) -> Self {
        // SAFETY: all thin pointers have one layout, and `free` is called only with this pointer.
        let free = unsafe { std::mem::transmute::<Free<T>, Free<()>>(free) };
        Self { ptr: ptr.cast(), part, free }
    }

    /// # Safety
    /// No thread can use the part any more.
    unsafe fn free(self, guard: &Pinned) {
        // SAFETY: the caller's duty, and the contract of `Pinned::retire`.
        unsafe { (self.free)(self.ptr, self.part, guard) };
    }
}
