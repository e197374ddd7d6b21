//! Loom models of reclamation. Each runs with both forms of the barriers: with full fences, and with the system's barrier.
//!
//! An item is a cell that is reachable through a pointer, and that `free` writes. Loom fails a model in which a thread
//! reads the cell while it is written, or without an order before it.

mod hold;

use super::domain::{Domain, MANY, Record};
use super::*;
use crate::base::sync::modelled::cell;
use crate::base::sync::{Arc, AtomicPtr, AtomicUsize, Ordering, explore_long, spawn};

/// A cell that readers find as long as it is published.
struct Item {
    value: cell::UnsafeCell<u32>,
    freed: AtomicUsize,
}

struct World {
    domain: Domain,
    items: [Item; 2],
    published: [AtomicPtr<Item>; 2],
}

// SAFETY: loom checks the accesses of the cells.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

unsafe fn free(item: *mut Item, _: usize, _: &Pinned) {
    // SAFETY: the world lives as long as its threads.
    let item = unsafe { &*item };
    // SAFETY: loom checks that no other thread reads the cell.
    item.value.with_mut(|value| unsafe { *value = 1 });
    item.freed.fetch_add(1, Ordering::Relaxed);
}

impl World {
    fn new(has_barrier: bool) -> Arc<Self> {
        let item = || Item { value: cell::UnsafeCell::new(0), freed: AtomicUsize::new(0) };
        let world = Self {
            domain: Domain::new(),
            items: [item(), item()],
            published: [AtomicPtr::new(std::ptr::null_mut()), AtomicPtr::new(std::ptr::null_mut())],
        };
        world.domain.choose(|| has_barrier);
        let world = Arc::new(world);
        for (place, item) in world.published.iter().zip(&world.items) {
            place.store(std::ptr::from_ref(item).cast_mut(), Ordering::Relaxed);
        }
        world
    }

    /// Reads an item if it is still published. The record is pinned.
    fn read(&self, item: usize) {
        let found = self.published[item].load(Ordering::Acquire);
        // SAFETY: what the model checks.
        if let Some(found) = unsafe { found.as_ref() } {
            // SAFETY: loom checks that no other thread writes the cell.
            let value = found.value.with(|value| unsafe { *value });
            assert_eq!(value, 0, "an item is freed after its readers have unpinned");
        }
    }

    fn pinned_read(&self, record: &Record, item: usize) {
        let _ = self.domain.pin(record);
        self.read(item);
        let _ = self.domain.unpin(record);
    }

    /// Unpublishes and retires an item. The bag becomes a batch at once.
    fn unpublish(&self, record: &Record, item: usize) {
        let _ = self.domain.pin(record);
        self.published[item].store(std::ptr::null_mut(), Ordering::Release);
        let retired = Retired::new(std::ptr::from_ref(&self.items[item]).cast_mut(), 0, free);
        assert!(self.domain.retire(record, retired, usize::MAX), "the caller collects");
        let _ = self.domain.unpin(record);
    }

    fn collect(&self, record: &Record) {
        let _ = self.domain.pin(record);
        let guard = Pinned::of_domain();
        // SAFETY: the domain passes only items that no thread can use. The model checks this.
        self.domain.collect(record, |item| unsafe { item.free(&guard) });
        let _ = self.domain.unpin(record);
    }

    /// Runs with a record of the domain, in a thread that begins and ends.
    fn with_record<R>(&self, run: impl FnOnce(&Record) -> R) {
        let record = self.domain.register();
        run(record);
        self.domain.leave(record);
    }

    fn freed(&self, item: usize) -> usize {
        self.items[item].freed.load(Ordering::Relaxed)
    }
}

fn model(run: impl Fn(bool) + Sync + Send + Copy + 'static) {
    for has_barrier in [false, true] {
        explore_long(3, 10_000, move || run(has_barrier));
    }
}

/// A thread reads an item while another thread retires it, collects, and frees it.
fn read_racing_free(read: fn(&World, &Record), free: fn(&World, &Record)) {
    model(move |has_barrier| {
        let world = World::new(has_barrier);
        let reader = spawn(&world, move |world| world.with_record(|record| read(world, record)));
        let record = world.domain.register();
        free(&world, record);
        reader.join().unwrap();
        // The group that was made before is freed by the second collection from now on at the latest.
        for _ in 0..2 {
            world.collect(record);
        }
        assert_eq!(world.freed(0), 1, "an item is freed once");
    });
}

fn free_plainly(world: &World, record: &Record) {
    world.unpublish(record, 0);
    world.collect(record);
    world.collect(record);
}

// G34
#[test]
fn item_is_freed_after_its_readers_unpin() {
    read_racing_free(|world, record| world.pinned_read(record, 0), free_plainly);
}

// G34
#[test]
fn item_is_kept_for_a_second_pin() {
    let twice = |world: &World, record: &Record| {
        world.pinned_read(record, 0);
        let _ = world.domain.pin(record);
        world.domain.repin(record);
        world.read(0);
        let _ = world.domain.unpin(record);
    };
    read_racing_free(twice, free_plainly);
}

/// The control: the reader does not pin.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_read_without_pin_sees_freed_item() {
    read_racing_free(|world, _| world.read(0), free_plainly);
}

/// The control: the reader passes no light barrier after it has stored its epoch.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_pin_without_light_barrier_sees_freed_item() {
    let read = |world: &World, record: &Record| {
        world.domain.pin_without_barrier(record);
        world.read(0);
        let _ = world.domain.unpin(record);
    };
    read_racing_free(read, free_plainly);
}

/// The control: the thread that frees passes no heavy barrier before it reads the records.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_collect_without_heavy_barrier_frees_too_early() {
    let free = |world: &World, record: &Record| {
        world.unpublish(record, 0);
        world.domain.group_without_barrier();
        world.collect(record);
        world.collect(record);
    };
    read_racing_free(|world, record| world.pinned_read(record, 0), free);
}

/// The control: the epoch advances before the heavy barrier, so a reader may have the next epoch and a retired item.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_epoch_advanced_too_early_frees_too_early() {
    let free = |world: &World, record: &Record| {
        world.domain.advance_before_retiring();
        world.unpublish(record, 0);
        world.domain.group_as_of_last_epoch();
        world.collect(record);
    };
    read_racing_free(|world, record| world.pinned_read(record, 0), free);
}

/// A thread ends with an item in its bag. Another thread takes its record and retires an item of its own, while a third
/// reads.
fn end_racing_register(end: fn(&World, &Record)) {
    model(move |has_barrier| {
        let world = World::new(has_barrier);
        let main = world.domain.register();
        let ending = world.domain.register();
        let _ = world.domain.pin(ending);
        world.published[0].store(std::ptr::null_mut(), Ordering::Release);
        let retired = Retired::new(std::ptr::from_ref(&world.items[0]).cast_mut(), 0, free);
        assert!(!world.domain.retire(ending, retired, 1), "the item stays in the bag");
        let _ = world.domain.unpin(ending);
        let ending = std::ptr::from_ref(ending).addr();
        let ends = spawn(&world, move |world| {
            // SAFETY: records are never freed.
            let ending = unsafe { &*std::ptr::with_exposed_provenance::<Record>(ending) };
            end(world, ending);
        });
        let begins = spawn(&world, |world| world.with_record(|record| world.unpublish(record, 1)));
        ends.join().unwrap();
        begins.join().unwrap();
        for _ in 0..3 {
            world.collect(main);
        }
        assert_eq!((world.freed(0), world.freed(1)), (1, 1), "each item is freed once");
    });
}

// G34
#[test]
fn ending_thread_hands_its_items_over() {
    end_racing_register(|world, record| world.domain.leave(record));
}

/// The control: gives the record back before its bag is empty.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_record_given_back_too_early_shares_its_bag() {
    end_racing_register(|world, record| world.domain.leave_carelessly(record));
}

/// Two threads collect at the same time.
// G34
#[test]
fn racing_collections_free_once() {
    model(|has_barrier| {
        let world = World::new(has_barrier);
        let record = world.domain.register();
        world.unpublish(record, 0);
        let collecting = spawn(&world, |world| {
            world.with_record(|record| [(); 2].map(|()| world.collect(record)));
        });
        world.unpublish(record, 1);
        world.collect(record);
        collecting.join().unwrap();
        for _ in 0..4 {
            world.collect(record);
        }
        assert_eq!((world.freed(0), world.freed(1)), (1, 1), "each item is freed once");
    });
}

/// One thread frees batches while another one brings as many.
fn freed_racing_fresh(count_freed: fn(&Domain, usize)) {
    explore_long(3, 10_000, move || {
        let domain = Arc::new(Domain::new());
        domain.choose(|| true);
        (0..=MANY).for_each(|_| domain.count_fresh());
        let frees = spawn(&domain, move |domain| count_freed(domain, 1));
        domain.count_fresh();
        frees.join().unwrap();
        assert_eq!(domain.backlog(), (true, true), "the flag is not lost");
    });
}

// G34
#[test]
fn backlog_is_known_after_racing_counts() {
    freed_racing_fresh(Domain::count_freed);
}

/// The control: does not count again after it has cleared the flag.
// G34
#[test]
#[should_panic(expected = "the flag is not lost")]
fn control_careless_count_loses_backlog() {
    freed_racing_fresh(Domain::count_freed_carelessly);
}
