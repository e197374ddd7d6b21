//! The sampled variant for many threads: its samples, its drops and its allocations.

use super::top_keys;
use crate::counting::{allocated, held};
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, LazyLock, Mutex};
use tollgate::sketch::{CutText, SampledTopKeys, TopKeys, TopSample};
use tollgate::{Quota, RateLimiter, Timestamp};

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

/// Returns one of four hot keys in every second turn, and a new key in the other turns.
fn hot_or_new(thread: u64, turn: u64) -> u64 {
    if turn.is_multiple_of(2) { turn / 2 % 4 } else { 1_000 + thread * RECORDS + turn }
}

// G63
#[test]
fn kept_and_dropped_units_equal_recorded() {
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

    // Compare all periods together with the records.
    let mut all = top_keys(64);
    taken.iter().for_each(|sample| all.merge(&sample.keys));
    assert_eq!(all.total(), kept);
    assert!(all.max_error() <= kept / 64);
    let recorded = 3 * THREADS * RECORDS / 8;
    for key in 0..4 {
        let entry = all.get(&key).expect("an entry of a heavy key");
        assert!(entry.at_least() <= recorded && entry.count + dropped >= recorded, "{key}: {entry:?}");
    }
}

#[test]
fn samples_are_right_on_average() {
    // Each key comes at every 64th record. A variant that counts every 64th record would see all of one key.
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
    // Eight standard deviations: one run in 10^15 is that far off.
    assert!(off(sample.keys.total(), KEYS * TIMES).abs() < 8.0, "{sample:?}");
    let mut squares = 0.0;
    for key in 0..KEYS {
        let entry = sample.keys.get(&key).expect("room for all keys");
        assert!(entry.count.is_multiple_of(64), "a count is not scaled");
        let off = off(entry.count, TIMES);
        assert!(off.abs() < 8.0, "{entry:?}");
        squares += off * off;
    }
    // The results are not closer than chance allows: the mean of 64 squares is 1 ± 0.18.
    assert!((0.2..2.6).contains(&(squares / KEYS as f64)), "{squares}");
    assert_eq!(ours.top(3), sample.keys.top(3).into_iter().copied().collect::<Vec<_>>());

    ours.reset();
    assert!(ours.top(3).is_empty());
}

#[test]
fn threads_are_sampled_without_bias() {
    let ours = SampledTopKeys::try_new(64, 16).expect("small");
    stressed(|thread, turn| ours.record(hot_or_new(thread, turn)));
    let sample = ours.take();
    let (all, recorded) = (sample.keys.total() + sample.dropped, THREADS * RECORDS);
    // Threads that share a stripe may draw the same numbers. So the deviation is larger than by chance, at most as if
    // all threads drew the same.
    let deviation = (recorded as f64 * 15.0 * THREADS as f64).sqrt();
    assert!((all as f64 - recorded as f64).abs() < 8.0 * deviation, "{all} of {recorded}");
}

/// A key whose comparison panics while `FAIL` is set.
#[derive(Clone, PartialOrd, Debug)]
struct Faulty(u64);

static FAIL: AtomicBool = AtomicBool::new(false);

impl PartialEq for Faulty {
    fn eq(&self, other: &Self) -> bool {
        assert!(!FAIL.load(Ordering::Relaxed), "the comparison panics");
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
fn panicking_key_comparison_corrupts_nothing() {
    let ours = SampledTopKeys::try_new(2, 1).expect("small");
    [1, 1, 2].into_iter().for_each(|key| ours.record(Faulty(key)));
    FAIL.store(true, Ordering::Relaxed);
    let recorded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ours.record(Faulty(1))));
    assert!(recorded.is_err(), "the comparison must panic");
    FAIL.store(false, Ordering::Relaxed);
    ours.record(Faulty(1));
    ours.record(Faulty(3));
    let sample = ours.snapshot();
    assert_eq!((sample.keys.total(), sample.keys.top(1)[0].count, sample.keys.max_error()), (5, 3, 1));
}

/// The documented number of stripes: two for each thread that can run at the same time.
fn stripes() -> usize {
    let threads = std::thread::available_parallelism().map_or(4, usize::from);
    (2 * threads.next_power_of_two()).min(16)
}

/// A key whose comparison records another key, under the lock of a stripe, until all stripes are taken.
#[derive(Clone, Debug)]
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

impl Hash for Nested {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

static RECORDED: AtomicU64 = AtomicU64::new(0);

#[test]
fn records_without_free_stripe_are_dropped() {
    // Each record goes one stripe deeper than the one before, until it finds the key in all stripes.
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

// G63
#[test]
fn top_keys_allocate_stated_memory_once() {
    const ENTRIES: usize = 1_000;
    type Key = CutText<32>;
    // Allocate first what is allocated only once: seeds, the number of this thread, the hasher of texts.
    SampledTopKeys::<Key>::try_new(1, 1).expect("small").record_text("");
    let before = held();
    let ours = SampledTopKeys::<Key>::try_new(ENTRIES, 1).expect("small");
    let bytes = usize::try_from(held() - before).expect("allocated memory");
    let stripes = stripes();
    assert_eq!(bytes, ours.state_bytes());
    assert!(bytes <= stripes * (ENTRIES * (size_of::<Key>() + 32 + 16 + 32) + 512), "{bytes}");

    let texts: Vec<String> = (0..20_000).map(|n| format!("{:>40} or so", n % 3_000)).collect();
    let texts_and_ours = held();
    let before = allocated();
    texts.iter().for_each(|text| ours.record_text(text));
    ours.reset();
    texts.iter().for_each(|text| ours.record_text(text));
    assert_eq!(allocated(), before);

    let sample = ours.take();
    assert!(sample.keys.max_error() > 0, "no entry was replaced");
    ours.record_text("one");
    let mut copy = ours.take().keys.clone();
    let before = allocated();
    texts.iter().for_each(|text| copy.add(CutText::new(text), 1));
    assert_eq!(allocated(), before, "a copy allocates when keys are added");
    drop((sample, copy));
    assert_eq!(held(), texts_and_ours, "a finished period leaves memory behind");
    assert_eq!(ours.state_bytes(), bytes);
}

#[test]
fn denied_requests_are_recorded_after_check() {
    let limiter = RateLimiter::new(Quota::per_minute(5));
    let denied = SampledTopKeys::<u64>::try_new(10, 1).expect("small");
    for turn in 0..100_u64 {
        let hash = limiter.hash(&(turn % 3));
        if limiter.at(Timestamp::from_secs(1)).check_hash(hash, 1).is_denied() {
            denied.record(hash);
        }
    }
    let top = denied.top(3);
    assert_eq!(top[0].key, limiter.hash(&0_u64));
    assert_eq!([top[0].count, top[1].count, top[2].count], [29, 28, 28]);
    assert!(format!("{denied:?} {:?}", denied.snapshot()).contains("SampledTopKeys"));
}

#[test]
fn top_key_types_are_send_and_sync() {
    fn shared<T: Send + Sync + std::fmt::Debug + 'static>() {}
    shared::<TopKeys<String>>();
    shared::<SampledTopKeys<CutText<64>>>();
    // Threads that share the sampler may count keys that are not `Sync`.
    shared::<SampledTopKeys<Cell<u8>>>();
    shared::<TopSample<u64>>();
}
