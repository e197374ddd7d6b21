//! Reclamation in the models of other modules: an item is freed as soon as no thread is pinned. (The domain itself would
//! have more interleavings than those models.) The module remembers each retired item until then, so that a second
//! retire of the same item fails the model.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use super::{Free, Retired};
use crate::base::sync::{AtomicUsize, Ordering, modelled};

/// Orders the accesses of a thread before its unpin before the accesses of threads that pin later, as the domain does.
struct Order {
    /// Set when anything was retired; not an atomic of the model. Until then nothing is freed, so no order is needed.
    needed: std::sync::OnceLock<()>,
    unpins: AtomicUsize,
}

modelled::lazy_static! {
    static ref ORDER: Order = Order { needed: std::sync::OnceLock::new(), unpins: AtomicUsize::new(0) };
}

fn order() {
    if ORDER.needed.get().is_some() {
        // Ordering: AcqRel. An unpin releases the thread's work, and every later pin acquires it.
        ORDER.unpins.fetch_add(1, Ordering::AcqRel);
    }
}

#[derive(Default)]
struct Epoch {
    pinned: usize,
    retired: Vec<Retired>,
    /// The number of items retired since the last `take_retired`.
    count: usize,
}

thread_local! {
    // A loom execution runs all its threads on one OS thread, so the model's threads share this value.
    static EPOCH: RefCell<Epoch> = RefCell::default();
}

/// Pins the calling thread while it exists.
pub(crate) struct Pinned(());

/// Pins the calling thread.
pub(crate) fn pin() -> Pinned {
    EPOCH.with_borrow_mut(|epoch| epoch.pinned += 1);
    order();
    Pinned(())
}

impl Pinned {
    /// A guard for the models of the domain, which pin its records. It must not be dropped.
    #[cfg(test)]
    pub(super) fn of_domain() -> std::mem::ManuallyDrop<Self> {
        std::mem::ManuallyDrop::new(Self(()))
    }

    /// Calls `free` with `ptr` and `part` once no other thread is pinned.
    ///
    /// # Safety
    /// The same contract as `retire` outside the models.
    pub(crate) unsafe fn retire<T>(&self, ptr: *mut T, part: usize, _bytes: usize, free: Free<T>) {
        EPOCH.with_borrow_mut(|epoch| {
            let is_this = |other: &Retired| other.ptr == ptr.cast() && other.part == part;
            assert!(!epoch.retired.iter().any(is_this), "a node is retired at most once");
            epoch.retired.push(Retired::new(ptr, part, free));
            epoch.count += 1;
        });
        let _ = ORDER.needed.set(());
    }

    /// Unpins and pins again, as outside the models.
    pub(crate) fn repin(&mut self) {
        *self = pin();
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A panic ends the model, so nothing needs to be freed.
        if std::thread::panicking() {
            return;
        }
        order();
        // The thread stays pinned while it frees, as in a collection.
        let last = |epoch: &mut Epoch| {
            if epoch.pinned == 1 { std::mem::take(&mut epoch.retired) } else { Vec::new() }
        };
        loop {
            let retired = EPOCH.with_borrow_mut(last);
            if retired.is_empty() {
                break;
            }
            for item in retired {
                // SAFETY: the contract of `retire`: no other thread was pinned when these items were taken.
                unsafe { item.free(self) };
            }
        }
        EPOCH.with_borrow_mut(|epoch| epoch.pinned -= 1);
    }
}

/// Returns how many items were retired since the last call, and starts a new model.
#[cfg(test)]
pub(crate) fn take_retired() -> usize {
    EPOCH.with_borrow_mut(|epoch| std::mem::take(&mut epoch.count))
}

/// A shared value that is replaced as a whole. In the models a replaced value is freed only when the `Swap` is dropped.
#[derive(Debug)]
pub(crate) struct Swap<T> {
    present: AtomicUsize,
    /// A mutex of the standard library. The model never switches threads while it is held, so it orders nothing; only
    /// the index orders accesses.
    values: std::sync::Mutex<Vec<Arc<T>>>,
}

/// A loaded value.
#[derive(Debug)]
pub struct Loaded<T>(Arc<T>);

/// A replaced value.
pub(crate) struct Former<T>(Arc<T>);

impl<T: Send + Sync + 'static> Swap<T> {
    /// Holds a value.
    pub(crate) fn new(value: T) -> Self {
        let values = std::sync::Mutex::new(vec![Arc::new(value)]);
        Self { present: AtomicUsize::new(0), values }
    }
}

impl<T> Swap<T> {
    /// Returns the current value.
    pub(crate) fn load(&self) -> Loaded<T> {
        let present = self.present.load(Ordering::Acquire);
        Loaded(self.values.lock().unwrap()[present].clone())
    }

    /// Replaces the current value, and returns it.
    pub(crate) fn swap(&self, value: Arc<T>) -> Former<T> {
        let mut values = self.values.lock().unwrap();
        let last = values.last().unwrap().clone();
        values.push(value);
        let newest = values.len() - 1;
        drop(values);
        self.present.store(newest, Ordering::Release);
        Former(last)
    }
}

impl<T> Loaded<T> {
    /// Returns an `Arc` of the value.
    pub fn to_arc(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}

impl<T> Deref for Loaded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Former<T> {
    /// Frees the values that no thread uses, the last one first.
    pub(crate) fn free_unused(formers: &mut Vec<Self>) {
        formers.retain(|former| Arc::strong_count(&former.0) > 1);
    }
}
