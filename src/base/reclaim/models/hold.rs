//! Loom models of held values, with both forms of the barriers.
//!
//! A value is a cell to which a pointer leads. A reader holds the value and reads the cell. The thread that replaces the
//! pointer writes the cell, which stands for freeing the value. Loom fails a model in which these are not in order.

use super::super::domain::{Domain, Place, Record};
use super::super::hold::let_go;
use super::super::{Pinned, Retired};
use super::model;
use crate::base::sync::modelled::cell;
use crate::base::sync::{Arc, AtomicPtr, AtomicUsize, Ordering, spawn, thread::JoinHandle};
use std::ptr::{NonNull, from_ref};

struct Value {
    cell: cell::UnsafeCell<u32>,
    /// The count of the users that hold the value in no place.
    users: AtomicUsize,
    freed: AtomicUsize,
}

impl Value {
    fn new() -> Self {
        Self { cell: cell::UnsafeCell::new(0), users: AtomicUsize::new(0), freed: AtomicUsize::new(0) }
    }

    fn read(&self) {
        // SAFETY: loom checks that no other thread writes the cell.
        let read = self.cell.with(|cell| unsafe { *cell });
        assert_eq!(read, 0, "a value is freed after its last use");
    }

    fn free(&self) {
        // SAFETY: loom checks that no other thread uses the cell.
        self.cell.with_mut(|cell| unsafe { *cell += 1 });
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    fn freed(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }
}

unsafe fn free(value: *mut Value, _: usize, _: &Pinned) {
    // SAFETY: the world lives as long as its threads.
    unsafe { &*value }.free();
}

struct World {
    domain: Domain,
    values: [Value; 2],
    present: AtomicPtr<Value>,
}

// SAFETY: loom checks the accesses of the cells.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

type Held<'w> = (NonNull<Value>, &'w Place);
type Hold = for<'w> fn(&'w World, &'w Record) -> Option<Held<'w>>;

fn use_and_let_go((value, place): Held<'_>) {
    // SAFETY: what the models check.
    unsafe { value.as_ref() }.read();
    let_go(place);
}

impl World {
    fn new(has_barrier: bool) -> Arc<Self> {
        let values = [Value::new(), Value::new()];
        let world = Self { domain: Domain::new(), values, present: AtomicPtr::new(std::ptr::null_mut()) };
        world.domain.choose(|| has_barrier);
        let world = Arc::new(world);
        world.present.store(world.pointer(0), Ordering::Relaxed);
        world
    }

    fn pointer(&self, value: usize) -> *mut Value {
        from_ref(&self.values[value]).cast_mut()
    }

    /// Replaces the first value by the second.
    fn replace(&self) {
        self.present.swap(self.pointer(1), Ordering::AcqRel);
    }

    fn hold<'w>(&'w self, record: &'w Record) -> Option<Held<'w>> {
        self.domain.hold(record, &self.present)
    }

    fn free_left(&self) {
        while let Some(value) = self.domain.take_left() {
            // SAFETY: no thread holds the value. The model checks this.
            unsafe { value.free(&Pinned::of_domain()) };
        }
    }

    /// Runs with a record of the domain, in a thread that begins and ends.
    fn with_record<'w>(&'w self, run: impl FnOnce(&'w Record)) {
        let record = self.domain.register();
        run(record);
        self.domain.leave(record);
    }

    /// Replaces the first value, and frees it if no thread uses it.
    fn replace_and_free(&self) {
        self.replace();
        assert!(self.domain.pass_heavy_barrier());
        if !self.domain.is_held(self.pointer(0)) {
            self.values[0].free();
        }
    }
}

/// Hands a held value to another thread, which uses it and lets it go.
fn hand_over(world: &Arc<World>, held: Held<'_>) -> JoinHandle<()> {
    let (value, place) = (held.0.as_ptr().expose_provenance(), from_ref(held.1).expose_provenance());
    spawn(world, move |_| {
        let value = std::ptr::with_exposed_provenance_mut(value);
        // SAFETY: the world lives as long as its threads, and records are never freed.
        let held = unsafe { (NonNull::new_unchecked(value), &*std::ptr::with_exposed_provenance(place)) };
        use_and_let_go(held);
    })
}

/// A thread holds a value, uses it and lets it go, twice, while another thread replaces and frees it.
fn use_racing_free(hold: Hold, end: fn(Held<'_>), replace_and_free: fn(&World)) {
    model(move |has_barrier| {
        let world = World::new(has_barrier);
        let reader = spawn(&world, move |world| {
            world.with_record(|record| {
                for _ in 0..2 {
                    if let Some(held) = hold(world, record) {
                        end(held);
                    }
                }
            });
        });
        replace_and_free(&world);
        reader.join().unwrap();
        assert!(!world.domain.is_held(world.pointer(0)), "the place is empty");
    });
}

// G34
#[test]
fn held_value_is_not_freed() {
    use_racing_free(World::hold, use_and_let_go, World::replace_and_free);
}

/// The control: the reader passes no light barrier between the place and the second read.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_hold_without_light_barrier_uses_freed_value() {
    let hold: Hold = |world, record| Domain::hold_without_barrier(record, &world.present);
    use_racing_free(hold, use_and_let_go, World::replace_and_free);
}

/// The control: the reader does not read the pointer again.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_hold_without_second_read_uses_freed_value() {
    let hold: Hold = |world, record| world.domain.hold_without_second_read(record, &world.present);
    use_racing_free(hold, use_and_let_go, World::replace_and_free);
}

/// The control: the thread that frees passes no heavy barrier before it looks at the places.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_free_without_heavy_barrier_frees_held_value() {
    use_racing_free(World::hold, use_and_let_go, |world| {
        world.replace();
        if !world.domain.is_held(world.pointer(0)) {
            world.values[0].free();
        }
    });
}

/// The control: the place is emptied without an order after the last use.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_place_emptied_without_order_frees_value_in_use() {
    use_racing_free(
        World::hold,
        |(value, place)| {
            // SAFETY: what the model checks.
            unsafe { value.as_ref() }.read();
            place.store(std::ptr::null_mut(), Ordering::Relaxed);
        },
        World::replace_and_free,
    );
}

/// A thread hands the first value to another thread, which lets it go, and then holds the second value in the same place. A
/// third thread, which sees the second value there, frees the first.
fn next_value_in_place_racing_free(hold: Hold) {
    model(move |has_barrier| {
        let world = World::new(has_barrier);
        let record = world.domain.register();
        let first = world.hold(record).unwrap();
        let user = hand_over(&world, first);
        let replacing = spawn(&world, World::replace_and_free);
        if let Some(second) = hold(&world, record) {
            let_go(second.1);
        }
        user.join().unwrap();
        replacing.join().unwrap();
    });
}

// G34
#[test]
fn next_value_in_place_orders_use_of_former() {
    next_value_in_place_racing_free(World::hold);
}

/// The control: the thread does not acquire the place that another thread has emptied.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_place_of_unknown_use_frees_value_in_use() {
    next_value_in_place_racing_free(|world, record| {
        world.domain.hold_in_place_of_unknown_use(record, &world.present)
    });
}

/// A thread whose places are all in use counts itself as a user, while another thread replaces and frees the value.
fn count_racing_free(replace_and_free: fn(&World)) {
    model(move |has_barrier| {
        let world = World::new(has_barrier);
        let reader = spawn(&world, move |world| {
            world.with_record(|record| {
                let other = AtomicPtr::new(world.pointer(1));
                let in_place = world.domain.hold(record, &other).unwrap();
                assert!(world.hold(record).is_none(), "all places are in use");
                let count = |value: NonNull<Value>| {
                    // SAFETY: the value is held during the call.
                    unsafe { value.as_ref() }.users.fetch_add(1, Ordering::Relaxed);
                };
                let value = world.domain.hold_counted(record, &world.present, count);
                // SAFETY: what the model checks.
                let value = unsafe { value.as_ref() };
                value.read();
                // Ordering: Release, as in `Arc`.
                value.users.fetch_sub(1, Ordering::Release);
                let_go(in_place.1);
            });
        });
        replace_and_free(&world);
        reader.join().unwrap();
        assert!(!world.domain.is_held(world.pointer(0)), "the place is empty");
    });
}

/// The number of counted users. Ordering: Acquire, as before an `Arc` frees.
fn users(world: &World) -> usize {
    world.values[0].users.load(Ordering::Acquire)
}

// G34
#[test]
fn counted_value_is_not_freed() {
    count_racing_free(|world| {
        world.replace();
        assert!(world.domain.pass_heavy_barrier());
        if world.domain.is_unused(world.pointer(0), || users(world) == 0) {
            world.values[0].free();
        }
    });
}

/// The control: the thread that frees reads the count before the places.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_count_read_before_places_frees_value_in_use() {
    count_racing_free(|world| {
        world.replace();
        assert!(world.domain.pass_heavy_barrier());
        if users(world) == 0 && !world.domain.is_held(world.pointer(0)) {
            world.values[0].free();
        }
    });
}

/// A value is left behind while another thread holds it. That thread lets it go while the owner and a third thread free values that
/// were left behind. The first that sees the empty place frees it, or else the next one does.
fn leave_racing_let_go(free_left: fn(&World)) {
    model(move |has_barrier| {
        let world = World::new(has_barrier);
        let first = world.hold(world.domain.register()).unwrap();
        let user = hand_over(&world, first);
        world.domain.leave_behind(Retired::new(world.pointer(0), 0, free));
        let other = spawn(&world, free_left);
        world.free_left();
        user.join().unwrap();
        other.join().unwrap();
        free_left(&world);
        assert_eq!(world.values[0].freed(), 1, "a value that was left behind is freed once");
    });
}

// G34
#[test]
fn value_left_behind_is_freed_once_it_is_not_held() {
    leave_racing_let_go(World::free_left);
}

/// The control: frees the value without a look at the places.
// G34
#[test]
#[should_panic(expected = "Causality violation")]
fn control_value_left_behind_is_freed_while_it_is_held() {
    leave_racing_let_go(|world| {
        // SAFETY: what the model checks.
        world.domain.free_left_carelessly(|value| unsafe { value.free(&Pinned::of_domain()) });
    });
}
