//! The heaviest keys of a stream.
//!
//! Properties, for any keys and weights, adds and merges: every count is right within its own error, every
//! error within the bound that is stated, and every key above the bound is there (see `bounds`). And of the
//! sampling front: what all threads recorded is what is in it and what it dropped; it never waits, and never
//! allocates.

#[path = "top_keys/bounds.rs"]
mod bounds;
mod common;

use bounds::Exact;
use common::compact::Random;
use common::kinds::Kind;
use common::operations::config;
use common::oracle::Spec;
use common::trace::{TRACES, directory, normalized};
use common::{HOUR, MINUTE};
use proptest::prelude::*;
use proptest::sample::select;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, LazyLock, Mutex};
use tollgate::sketch::{CutText, SampledTopKeys, TopKeys, TopSample};
use tollgate::{Quota, RateLimiter, Timestamp};

/// The system's allocator, counting this thread's requests and the bytes that it holds.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Below zero if other threads' blocks were freed here.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(more: usize, less: usize) {
    // A thread that is being torn down no longer counts.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + u64::from(more > 0)));
    let _ = HELD.try_with(|held| held.set(held.get() + more.cast_signed() - less.cast_signed()));
}

// SAFETY: every call is handed on to `System` unchanged, which keeps the contract; the counters are
// thread-locals without a destructor and do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps `alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as above; `block` came from `System`, like every block here.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn top_keys<K>(entries: usize) -> TopKeys<K> {
    TopKeys::try_new(entries).expect("there is memory")
}

/// A few entries and more keys, so that most adds take another's entry; weights from nothing to all there is.
fn adds(keys: u32) -> impl Strategy<Value = Vec<(u32, u64)>> {
    let weight = prop_oneof![
        8 => Just(1_u64),
        4 => 0_u64..=20,
        1 => any::<u64>(),
        1 => select(vec![u64::MAX, u64::MAX - 1, u64::MAX / 2, 1 << 63]),
    ];
    let ordinary = prop::collection::vec((0..keys, 0_u64..=20), 0..200);
    prop_oneof![3 => ordinary, 1 => prop::collection::vec((0..keys, weight), 0..200)]
}

fn summed(entries: usize, adds: &[(u32, u64)]) -> (TopKeys<u32>, Exact<u32>) {
    let (mut ours, mut exact) = (top_keys(entries), Exact::new(entries));
    for &(key, n) in adds {
        ours.add(key, n);
        exact.add(key, n);
    }
    (ours, exact)
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn every_bound_holds_after_every_add(entries in 1_usize..12, adds in adds(30)) {
        let (mut ours, mut exact) = (top_keys(entries), Exact::new(entries));
        for (key, n) in adds {
            ours.add(key, n);
            exact.add(key, n);
            exact.judge(&ours);
        }
    }

    #[test]
    fn merged_bounds_are_those_of_all_units(
        entries in 1_usize..12,
        parts in prop::collection::vec((adds(30), adds(30)), 1..5),
    ) {
        let (mut ours, mut exact) = summed(entries, &[]);
        for (part, more) in &parts {
            let (other, other_exact) = summed(entries, part);
            ours.merge(&other);
            exact.merge(&other_exact);
            exact.judge(&ours);
            // And a summary that was merged goes on like any other.
            for &(key, n) in more {
                ours.add(key, n);
                exact.add(key, n);
            }
            exact.judge(&ours);
        }
    }

    #[test]
    fn of_different_sizes_the_smallest_says_how_good_the_merged_one_is(
        entries in prop::array::uniform3(1_usize..12),
        adds in prop::array::uniform3(adds(30)),
    ) {
        let [(mut first, mut exact), (second, second_exact), (third, third_exact)] =
            std::array::from_fn(|i| summed(entries[i], &adds[i]));
        for (other, other_exact) in [(&second, &second_exact), (&third, &third_exact)] {
            first.merge(other);
            exact.merge(other_exact);
            exact.judge(&first);
        }
        let (more, more_exact) = summed(first.capacity(), &adds[0]);
        first.merge(&more);
        exact.merge(&more_exact);
        exact.judge(&first);
        prop_assert_eq!(first.capacity(), entries[0]);
    }

    #[test]
    fn texts_that_differ_are_never_one_key(texts in prop::collection::vec("[ab€]{0,6}", 0..60)) {
        let mut ours = top_keys::<CutText<5>>(1 << 12);
        let mut exact = HashMap::<&str, u64>::new();
        for text in &texts {
            ours.add(text.as_str().into(), 1);
            *exact.entry(text).or_default() += 1;
        }
        prop_assert_eq!(ours.len(), exact.len());
        for (text, units) in exact {
            let key = CutText::new(text);
            prop_assert!(text.starts_with(key.as_str()) && key.as_str().len() <= 5);
            prop_assert!(key.as_str().len() > 2 || !key.is_cut(), "no more is cut than must be");
            prop_assert_eq!((key.is_cut(), key.whole_len()), (key.as_str() != text, text.len()));
            prop_assert_eq!(ours.get(&key).map(|entry| (entry.count, entry.error)), Some((units, 0)));
        }
    }
}

#[test]
fn nothing_counts_nothing() {
    let mut ours = top_keys(1);
    ours.add("a", 0);
    assert!(ours.is_empty() && ours.top(1).is_empty() && ours.get("a").is_none());
    ours.add("a", 2);
    ours.add("b", 0);
    assert_eq!((ours.len(), ours.max_error(), ours.total()), (1, 0, 2));
    ours.add("b", 1);
    assert_eq!((ours.len(), ours.max_error(), ours.total()), (1, 2, 3));
    ours.clear();
    assert_eq!((ours.len(), ours.max_error(), ours.total(), ours.capacity()), (0, 0, 0, 1));
    ours.add("b", 1);
    assert_eq!(ours.top(9)[0].key, "b");
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(TopKeys::<u64>::try_new(0).unwrap_err().to_string().contains("at least 1"));
    assert!(SampledTopKeys::<u64>::try_new(0, 1).is_err());
    for entries in [1 << 31, usize::MAX / 2, usize::MAX] {
        let error = TopKeys::<u64>::try_new(entries).unwrap_err().to_string();
        assert!(error.contains("no memory"), "{error}");
    }
}

#[test]
fn of_equal_counts_the_one_that_has_its_entry_longer_is_first() {
    let mut ours = top_keys(4);
    for key in ["d", "b", "c", "a", "b", "c"] {
        ours.add(key, 1);
    }
    let keys = |ours: &TopKeys<&'static str>| ours.top(9).iter().map(|entry| entry.key).collect::<Vec<_>>();
    assert_eq!(keys(&ours), ["b", "c", "d", "a"]);

    // By when an entry was taken, whichever it was.
    let mut two = top_keys(2);
    ["a", "b", "c", "b"].into_iter().for_each(|key| two.add(key, 1));
    assert_eq!(keys(&two), ["b", "c"]);
    let mut many = top_keys(1_000);
    (0..1_000).for_each(|key| many.add(key, 1 + key % 2));
    let order: Vec<u64> = many.top(1_000).iter().map(|entry| entry.key).collect();
    assert!(order.into_iter().eq((0..1_000).map(|rank| (2 * rank + 1) % 1_001)));

    // The other's newcomers come after ours, in the other's order.
    let (mut left, mut right) = (top_keys(8), top_keys(8));
    ["p", "q"].into_iter().for_each(|key| left.add(key, 1));
    ["z", "q", "y"].into_iter().for_each(|key| right.add(key, 1));
    left.add("o", 2);
    left.merge(&right);
    assert_eq!(keys(&left), ["q", "o", "p", "z", "y"]);
    // And a newcomer comes after all of them.
    left.add("a", 1);
    assert_eq!(keys(&left), ["q", "o", "p", "z", "y", "a"]);
}

#[test]
fn hashers_with_other_secrets_keep_the_same_keys() {
    let run = || {
        let mut random = Random(5);
        let mut ours = top_keys(20);
        (0..5_000).for_each(|_| ours.add(random.below(40).min(random.below(40)), 1));
        ours.top(20).into_iter().copied().collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

/// Every key of a hash that is the same for all.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Alike(u32);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

#[test]
fn keys_of_one_hash_stay_apart() {
    let (mut ours, mut exact) = (top_keys(50), Exact::new(50));
    let mut random = Random(1);
    for _ in 0..3_000 {
        let key = Alike(u32::try_from(random.below(120)).expect("small"));
        ours.add(key, 1);
        exact.add(key, 1);
    }
    exact.judge(&ours);
}

#[test]
fn a_flood_of_new_keys_pushes_out_no_heavy_one() {
    const ENTRIES: u64 = 100;
    let (mut ours, mut exact) = (top_keys(100), Exact::new(100));
    let mut turn = |key: u64| {
        ours.add(key, 1);
        exact.add(key, 1);
    };
    for round in 0..2_000 {
        // Of a hundred and one in each round, 1 and 2 come twice.
        [1, 2, 1, 2].into_iter().for_each(&mut turn);
        (0..97).for_each(|n| turn(1_000 + 97 * round + n));
    }
    exact.judge(&ours);
    let top = ours.top(3);
    assert_eq!([top[0].key.min(top[1].key), top[0].key.max(top[1].key)], [1, 2]);
    assert!(top[0].at_least() >= 4_000 - ours.total() / ENTRIES);
    // Those of the flood are as high as the floor, and say that it may be nothing.
    assert!(top[2].at_least() <= 1 && top[2].count <= ours.total() / ENTRIES + 1);
}

#[test]
fn one_key_more_than_entries_in_turn_is_the_worst_case() {
    const ENTRIES: u64 = 64;
    let (mut ours, mut exact) = (top_keys(64), Exact::new(64));
    for turn in 0..(ENTRIES + 1) * 1_000 {
        ours.add(turn % (ENTRIES + 1), 1);
        exact.add(turn % (ENTRIES + 1), 1);
    }
    exact.judge(&ours);
    // No entry is worth anything, and the bound is met.
    assert_eq!(ours.max_error(), ours.total() / ENTRIES);
    assert!(ours.top(64).iter().all(|entry| entry.at_least() <= 1));
}

#[test]
fn counts_stop_at_the_largest_number() {
    let mut ours = top_keys(2);
    ["a", "b"].into_iter().for_each(|key| ours.add(key, u64::MAX));
    ours.add("a", u64::MAX);
    ours.add("c", u64::MAX);
    assert_eq!((ours.total(), ours.max_error()), (u64::MAX, u64::MAX));
    assert!(ours.top(2).iter().all(|entry| entry.count == u64::MAX));
    let other = ours.clone();
    ours.merge(&other);
    assert_eq!(
        ours.top(2).iter().filter(|entry| entry.at_least() == u64::MAX).count(),
        1,
        "of c nothing is known"
    );
}

/// The keys of the most denials, most first, of equals the one that was first denied first; and how many
/// there are.
fn denials(denied: &[&str]) -> (Vec<(String, u64)>, u64) {
    let mut counts = HashMap::<&str, (u64, usize)>::new();
    for (turn, key) in denied.iter().enumerate() {
        counts.entry(key).or_insert((0, turn)).0 += 1;
    }
    let mut keys: Vec<_> = counts.into_iter().collect();
    keys.sort_by_key(|&(_, (count, first))| (Reverse(count), first));
    (keys.into_iter().map(|(key, (count, _))| (key.to_owned(), count)).collect(), denied.len() as u64)
}

/// What is denied in real traffic: the exact ten worst, against the ten worst by summaries of several sizes
/// and by the front that samples all.
#[test]
fn the_worst_of_the_real_traces_are_found() {
    const TEN_A_MINUTE: Spec = Spec { limit: 10, period_ns: MINUTE, burst: 10 };
    const SIXTY_AN_HOUR: Spec = Spec { limit: 60, period_ns: HOUR, burst: 60 };
    let Some(directory) = directory() else { return };
    for (name, _) in TRACES {
        let trace = normalized(&directory, name);
        for spec in [TEN_A_MINUTE, SIXTY_AN_HOUR] {
            let limiter = common::subjects::keyed(Kind::Gcra, spec).expect("an ordinary quota");
            let denied = |record: &&common::trace::Record| {
                limiter.check_at(record.client, 1, record.at_ns).is_denied()
            };
            let denied: Vec<&str> =
                trace.records.iter().filter(denied).map(|record| trace.client(record)).collect();
            let (exact, units) = denials(&denied);
            assert!(exact.len() > 5 && units > 1_000, "{name}: {} keys, {units} denials", exact.len());

            let all = SampledTopKeys::<CutText<8>>::try_new(exact.len(), 1).expect("small");
            let mut whole = top_keys::<CutText<8>>(exact.len());
            denied.iter().for_each(|key| {
                all.record_text(key);
                whole.add(CutText::new(key), 1);
            });
            let sampled = all.take();
            assert_eq!((sampled.dropped, sampled.keys.total()), (0, units));
            for ours in [&whole, &sampled.keys] {
                assert_eq!(ours.max_error(), 0);
                let ours: Vec<_> =
                    ours.top(usize::MAX).iter().map(|entry| (entry.key, entry.count)).collect();
                let exact: Vec<_> = exact.iter().map(|(key, n)| (CutText::new(key), *n)).collect();
                assert_eq!(ours, exact, "{name} {spec:?}: with room for all it is exact");
            }

            for entries in [16, 64, 256] {
                let mut ours = top_keys::<&str>(entries);
                let mut judge = Exact::new(entries);
                denied.iter().for_each(|&key| {
                    ours.add(key, 1);
                    judge.add(key, 1);
                });
                judge.judge(&ours);
                let top: Vec<&str> = ours.top(10).iter().map(|entry| entry.key).collect();
                let right = exact.iter().take(10).filter(|(key, _)| top.contains(&key.as_str())).count();
                // Who is ahead of the eleventh by more than the error is in our ten.
                let sure = ours.max_error() + exact.get(10).map_or(0, |(_, count)| *count);
                let certain = exact.iter().take(10).filter(|(_, count)| *count > sure).count();
                assert!(right >= certain, "{name} {spec:?}: {right} of {certain}");
            }
        }
    }
}

const THREADS: u64 = if cfg!(miri) { 3 } else { 16 };
const RECORDS: u64 = if cfg!(miri) { 60 } else { 60_000 };

/// Runs `work(thread, turn)` on more threads than there are cores.
fn stressed(work: impl Fn(u64, u64) + Sync) {
    let start = Barrier::new(usize::try_from(THREADS).expect("few"));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                (0..RECORDS).for_each(|turn| work(thread, turn));
            });
        }
    });
}

/// A key that half of the records of all threads are of, or one of many.
fn hot_or_new(thread: u64, turn: u64) -> u64 {
    if turn.is_multiple_of(2) { turn / 2 % 4 } else { 1_000 + thread * RECORDS + turn }
}

#[test]
fn nothing_is_lost_but_what_was_dropped() {
    let ours = SampledTopKeys::try_new(64, 1).expect("small");
    let taken = Mutex::new(Vec::<TopSample<u64>>::new());
    stressed(|thread, turn| {
        ours.record_with(3, || hot_or_new(thread, turn));
        match turn % (RECORDS / 6) {
            20 => taken.lock().expect("no panic").push(ours.take()),
            40 => assert!(ours.snapshot().keys.total() <= 3 * THREADS * RECORDS),
            _ => {}
        }
    });
    let mut taken = taken.into_inner().expect("no panic");
    taken.push(ours.take());
    let after = ours.take();
    assert_eq!((after.keys.total(), after.dropped), (0, 0));

    let units = |part: fn(&TopSample<u64>) -> u64| taken.iter().map(part).sum::<u64>();
    let (kept, dropped) = (units(|sample| sample.keys.total()), units(|sample| sample.dropped));
    assert_eq!(kept + dropped, 3 * THREADS * RECORDS, "{kept} kept, {dropped} dropped");
    assert!(taken.len() > 50);

    // All periods together, held against what was recorded.
    let mut all = top_keys(64);
    taken.iter().for_each(|sample| all.merge(&sample.keys));
    assert_eq!(all.total(), kept);
    assert!(all.max_error() <= kept / 64);
    let recorded = 3 * THREADS * RECORDS / 8;
    for key in 0..4 {
        let entry = all.get(&key).expect("heavy");
        assert!(entry.at_least() <= recorded && entry.count + dropped >= recorded, "{key}: {entry:?}");
    }
}

#[test]
fn samples_are_right_on_average() {
    // Every key comes at every 64th record, which one that counts would see all of or none.
    const KEYS: u64 = 64;
    const EVERY: u32 = 64;
    const TIMES: u64 = 20_000;
    let ours = SampledTopKeys::try_new(200, EVERY).expect("small");
    for turn in 0..KEYS * TIMES {
        ours.record(turn % KEYS);
    }
    let sample = ours.snapshot();
    assert_eq!((sample.keys.max_error(), sample.dropped, ours.every()), (0, 0, 64));
    let off = |count: u64, times: u64| {
        let deviation = (times as f64 * f64::from(EVERY - 1)).sqrt();
        (count as f64 - times as f64) / deviation
    };
    // Eight standard deviations: one run in 10^15 is so far off.
    assert!(off(sample.keys.total(), KEYS * TIMES).abs() < 8.0, "{sample:?}");
    let mut squares = 0.0;
    for key in 0..KEYS {
        let entry = sample.keys.get(&key).expect("there is room");
        assert!(entry.count.is_multiple_of(64), "scaled");
        let off = off(entry.count, TIMES);
        assert!(off.abs() < 8.0, "{entry:?}");
        squares += off * off;
    }
    // And no nearer than chance is: the mean of 64 squares is 1 ± 0.18.
    assert!((0.2..2.6).contains(&(squares / KEYS as f64)), "{squares}");
    assert_eq!(ours.top(3), sample.keys.top(3).into_iter().copied().collect::<Vec<_>>());

    ours.reset();
    assert!(ours.top(3).is_empty());
}

#[test]
fn many_threads_are_sampled_alike() {
    let ours = SampledTopKeys::try_new(64, 16).expect("small");
    stressed(|thread, turn| ours.record(hot_or_new(thread, turn)));
    let sample = ours.take();
    let (all, recorded) = (sample.keys.total() + sample.dropped, THREADS * RECORDS);
    // Threads that share a stripe may draw alike, so it varies by more than by chance alone: at most as if
    // all did.
    let deviation = (recorded as f64 * 15.0 * THREADS as f64).sqrt();
    assert!((all as f64 - recorded as f64).abs() < 8.0 * deviation, "{all} of {recorded}");
}

/// A key that panics when it is compared, if it is told to.
#[derive(Clone, PartialOrd, Debug)]
struct Faulty(u64);

static FAIL: AtomicBool = AtomicBool::new(false);

impl PartialEq for Faulty {
    fn eq(&self, other: &Self) -> bool {
        assert!(!FAIL.load(Ordering::Relaxed), "told to");
        self.0 == other.0
    }
}

impl Eq for Faulty {}

impl Hash for Faulty {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_key_that_panics_spoils_nothing() {
    let ours = SampledTopKeys::try_new(2, 1).expect("small");
    [1, 1, 2].into_iter().for_each(|key| ours.record(Faulty(key)));
    FAIL.store(true, Ordering::Relaxed);
    let recorded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ours.record(Faulty(1))));
    assert!(recorded.is_err(), "it was compared");
    FAIL.store(false, Ordering::Relaxed);
    ours.record(Faulty(1));
    ours.record(Faulty(3));
    let sample = ours.snapshot();
    assert_eq!((sample.keys.total(), sample.keys.top(1)[0].count, sample.keys.max_error()), (5, 3, 1));
}

/// Two for each thread that can run at once, as the documentation has it.
fn stripes() -> usize {
    let threads = std::thread::available_parallelism().map_or(4, usize::from);
    (2 * threads.next_power_of_two()).min(16)
}

/// A key whose comparison, which is made under the lock of a stripe, records another, until all stripes are taken.
#[derive(Clone, Hash, Debug)]
struct Nested;

static NESTING: AtomicBool = AtomicBool::new(true);
static FRONT: LazyLock<SampledTopKeys<Nested>> =
    LazyLock::new(|| SampledTopKeys::try_new(3, 1).expect("small"));

impl PartialEq for Nested {
    fn eq(&self, _: &Self) -> bool {
        if NESTING.load(Ordering::Relaxed) {
            FRONT.record_with(5, || Nested);
            RECORDED.fetch_add(5, Ordering::Relaxed);
        }
        true
    }
}

impl Eq for Nested {}

static RECORDED: AtomicU64 = AtomicU64::new(0);

#[test]
fn what_finds_all_stripes_taken_is_dropped_and_counted() {
    // Each goes one stripe deeper than the one before, until it finds the key in all of them.
    for _ in 0..40 {
        FRONT.record_with(7, || Nested);
    }
    NESTING.store(false, Ordering::Relaxed);
    let recorded = 40 * 7 + RECORDED.load(Ordering::Relaxed);
    let sample = FRONT.take();
    assert_eq!(sample.dropped, 5 * (40 - stripes() as u64), "{sample:?}");
    assert_eq!(sample.keys.total() + sample.dropped, recorded);
    assert_eq!(sample.keys.top(1)[0].count, sample.keys.total());
    assert_eq!((FRONT.take().dropped, FRONT.snapshot().keys.total()), (0, 0));
}

#[test]
fn memory_is_what_is_stated_and_nothing_later() {
    const ENTRIES: usize = 1_000;
    type Key = CutText<32>;
    // What is made once for all: seeds, the number of this thread, the hasher of texts.
    SampledTopKeys::<Key>::try_new(1, 1).expect("small").record_text("");
    let held = HELD.get();
    let ours = SampledTopKeys::<Key>::try_new(ENTRIES, 1).expect("small");
    let held = usize::try_from(HELD.get() - held).expect("it is held");
    let stripes = stripes();
    assert_eq!(held, ours.state_bytes());
    assert!(held <= stripes * (ENTRIES * (size_of::<Key>() + 32 + 16 + 32) + 512), "{held}");

    let texts: Vec<String> = (0..20_000).map(|n| format!("{:>40} or so", n % 3_000)).collect();
    let texts_and_ours = HELD.get();
    let before = ALLOCATIONS.get();
    texts.iter().for_each(|text| ours.record_text(text));
    ours.reset();
    texts.iter().for_each(|text| ours.record_text(text));
    assert_eq!(ALLOCATIONS.get(), before);

    let sample = ours.take();
    assert!(sample.keys.max_error() > 0, "entries were taken from one another");
    ours.record_text("one");
    let mut copy = ours.take().keys.clone();
    let before = ALLOCATIONS.get();
    texts.iter().for_each(|text| copy.add(CutText::new(text), 1));
    assert_eq!(ALLOCATIONS.get(), before, "a copy has all its memory too");
    drop((sample, copy));
    assert_eq!(HELD.get(), texts_and_ours, "a period that is over leaves nothing behind");
    assert_eq!(ours.state_bytes(), held);
}

#[test]
fn a_denied_request_is_recorded_beside_the_check() {
    let limiter = RateLimiter::new(Quota::per_minute(5));
    let denied = SampledTopKeys::<u64>::try_new(10, 1).expect("small");
    for turn in 0..100_u64 {
        let hash = limiter.hash(&(turn % 3));
        if limiter.check_hash_at(hash, 1, Timestamp::from_secs(1)).is_denied() {
            denied.record(hash);
        }
    }
    let top = denied.top(3);
    assert_eq!(top[0].key, limiter.hash(&0_u64));
    assert_eq!([top[0].count, top[1].count, top[2].count], [29, 28, 28]);
    assert!(format!("{denied:?} {:?}", denied.snapshot()).contains("SampledTopKeys"));
}

#[test]
fn all_of_it_can_be_sent_and_shared() {
    fn shared<T: Send + Sync + std::fmt::Debug + 'static>() {}
    shared::<TopKeys<String>>();
    shared::<SampledTopKeys<CutText<64>>>();
    // Keys that cannot be shared may still be counted by those who share the front.
    shared::<SampledTopKeys<Cell<u8>>>();
    shared::<TopSample<u64>>();
}
