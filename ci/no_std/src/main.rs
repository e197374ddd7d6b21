//! A program without the standard library that checks limiters at times of its own choice. It exits with 0 if every decision is
//! correct.
//!
//! The program has its own panic handler and its own allocator. If a dependency linked the standard library, there would be two
//! panic handlers, and the program would not link. The program uses the C library only to allocate memory, to write output, and
//! to exit, as an embedded program would use its machine.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::ToString;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

use tollgate::sketch::TatSketch;
use tollgate::{Algorithm, Clock, CompactAlgorithm, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, ManualClock, MinimumSpacing, Overflow, Quota, RateLimiter, SlidingLog, SlidingWindow, SubWindow, Timestamp, TokenBucket, joint::AllOf};

#[link(name = "c")]
unsafe extern "C" {
    fn aligned_alloc(align: usize, size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
    fn write(file: c_int, bytes: *const c_void, len: usize) -> isize;
    fn abort() -> !;
}

/// An allocator that uses the C library and counts its allocations.
struct Memory(AtomicUsize);

#[global_allocator]
static MEMORY: Memory = Memory(AtomicUsize::new(0));

// SAFETY: the C library returns blocks of the requested size and alignment.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the alignment is a power of two, and the size is a multiple of the alignment, as the function requires.
        unsafe {
            aligned_alloc(layout.align().max(16), layout.size().next_multiple_of(layout.align().max(16)))
                .cast()
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: `alloc` returned this block.
        unsafe { free(memory.cast()) }
    }
}

struct Output(c_int);

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the pointer and the length belong to a string. A failed write only loses output.
        unsafe { write(self.0, text.as_ptr().cast(), text.len()) };
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let _ = writeln!(Output(2), "{info}");
    // SAFETY: the function has no requirements. It ends the program.
    unsafe { abort() }
}

/// Two functions that the precompiled `alloc` refers to, because it was built with unwinding. The standard library would define
/// them. No code calls them, because a panic ends this program.
mod unwinding {
    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}

    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Resume() -> ! {
        // SAFETY: the function has no requirements. It ends the program.
        unsafe { super::abort() }
    }
}

const SEEDS: [u64; 4] = [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344];

fn at_ms(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

/// Checks every ten milliseconds for ten seconds. Returns how many checks were admitted in the first second, and in total.
fn admitted(mut check: impl FnMut(Timestamp) -> bool) -> (u32, u32) {
    let mut run = |millis: core::ops::Range<u64>| {
        millis.step_by(10).map(|millis| u32::from(check(at_ms(millis)))).sum::<u32>()
    };
    let first = run(0..1_000);
    (first, first + run(1_000..10_000))
}

fn direct<A: Algorithm>(algorithm: A) -> (u32, u32) {
    let limiter = RateLimiter::builder(algorithm).clock(ManualClock::default()).direct();
    admitted(|now| limiter.at(now).check().is_allowed())
}

fn compact<A: CompactAlgorithm>(algorithm: A) -> (u32, u32) {
    let limiter =
        RateLimiter::builder(algorithm).clock(ManualClock::default()).seeds(SEEDS).compact().unwrap();
    admitted(|now| limiter.at(now).check("alice").is_allowed())
}

fn algorithms() {
    let quota: Quota = "10/s burst 5".parse().unwrap();
    assert_eq!(quota.to_string().parse(), Ok(quota));
    assert!("10/fortnight".parse::<Quota>().unwrap_err().to_string().contains("fortnight"));

    // Ten units per second, with a burst of five: the burst is admitted immediately, and then one unit every tenth of a second.
    for (first, all) in [
        direct(Gcra::new(quota)),
        direct(TokenBucket::new(quota)),
        direct(LeakyBucketMeter::new(quota)),
        compact(Gcra::new(quota)),
        compact(TokenBucket::new(quota)),
        compact(LeakyBucketMeter::new(quota)),
    ] {
        assert_eq!((first, all), (14, 104));
    }
    // Ten units in each second, in aligned windows and in others.
    let ten = Quota::per_second(10);
    for of in [
        direct(FixedWindow::new(ten)),
        direct(SlidingLog::new(ten)),
        direct(TokenBucket::interval(ten)),
        compact(FixedWindow::new(ten)),
    ] {
        assert_eq!(of, (10, 100));
    }
    for (first, all) in [
        direct(SlidingWindow::new(ten)),
        direct(SubWindow::new(ten, 10)),
        direct(SubWindow::new(ten, 10).strict()),
        compact(SlidingWindow::new(ten)),
    ] {
        assert!(first == 10 && (80..=100).contains(&all), "{all} in ten seconds");
    }
    assert_eq!(direct(MinimumSpacing::new(Duration::from_millis(100))), (10, 100));
    assert_eq!(compact(MinimumSpacing::new(Duration::from_millis(100))), (10, 100));

    let queue = LeakyBucketQueue::new(Quota::per_second(10).burst(3));
    let queue = RateLimiter::builder(queue).clock(ManualClock::default()).direct();
    let turns: Vec<_> = (0..3).map(|_| queue.at(at_ms(0)).check().delay().as_millis()).collect();
    assert_eq!(turns, [0, 100, 200]);
    assert!(queue.at(at_ms(0)).check().is_denied());
}

/// Uses more keys than there are slots. The limiter keeps the debts of evicted keys and admits no key twice.
fn full() {
    let quota = Quota::per_hour(2);
    let build =
        || RateLimiter::builder(Gcra::new(quota)).clock(ManualClock::default()).seeds(SEEDS).capacity(256);
    let spilling = build().compact().unwrap();
    let forgetting = build().overflow(Overflow::Forget).compact().unwrap();
    let mut again = [0_u32; 2];
    for _ in 0..2 {
        for key in 0..2_000_u32 {
            again[0] += u32::from(spilling.at(at_ms(0)).check_n(&key, 2).is_allowed());
            again[1] += u32::from(forgetting.at(at_ms(0)).check_n(&key, 2).is_allowed());
        }
    }
    assert!(again[0] <= 2_000, "{} of 2,000 keys were admitted", again[0]);
    assert!(again[1] > 2_000, "forgotten keys are admitted again: {}", again[1]);
    assert!(spilling.gauges().evicted > 0 && forgetting.gauges().evicted > 1_000);
}

fn verbs() {
    let clock = ManualClock::new(at_ms(0));
    let limiter = RateLimiter::builder(Gcra::new(Quota::per_minute(60).burst(10)))
        .clock(&clock)
        .seeds(SEEDS)
        .tiers([Quota::per_minute(600)])
        .overdraft(10)
        .compact()
        .unwrap();

    let allocated = MEMORY.0.load(Ordering::Relaxed);
    let charge = limiter.check_n("alice", 10);
    assert!(charge.is_allowed() && limiter.check("alice").is_denied());
    assert_eq!(limiter.check("alice").retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(limiter.refund_n("alice", &charge, 4), 4);
    assert_eq!(limiter.take("alice", 7).cost(), 4);
    assert!(limiter.reserve("alice", 1, Duration::from_secs(2)).is_allowed());
    clock.advance(Duration::from_secs(60));
    assert_eq!(limiter.peek("alice").remaining(), 10);
    let tier = limiter.tier(&Quota::per_minute(600)).unwrap();
    assert!(limiter.at(clock.now()).check_with("bob", 600, &tier).is_allowed());
    assert_eq!(MEMORY.0.load(Ordering::Relaxed), allocated, "checks allocate nothing");

    let mut decisions = Vec::new();
    limiter.check_each([1, 2, 3, 1].iter().map(|key| (key, 1)), |decision| decisions.push(decision));
    assert!(decisions.iter().all(|decision| decision.is_allowed()));

    let spacing = MinimumSpacing::new(Duration::from_secs(2));
    let spacing = RateLimiter::builder(spacing).clock(&clock).direct();
    let limits = (limiter.on("carol"), spacing.on());
    assert!(AllOf::new(limits).at(at_ms(60_000)).check().is_allowed());
    assert_eq!(AllOf::new(limits).at(at_ms(61_000)).check().denied_by(), Some(1));
    assert_eq!(limiter.peek("carol").remaining(), 9);

    let other = RateLimiter::builder(Gcra::new(Quota::per_minute(60).burst(10)));
    let other =
        other.clock(&clock).seeds(SEEDS).tiers([Quota::per_minute(600)]).overdraft(10).compact().unwrap();
    other.restore(&limiter.snapshot()).unwrap();
    assert_eq!(other.peek("carol").remaining(), 9);
    assert!(other.restore(b"nothing").unwrap_err().to_string().len() > 10);

    let sketch = TatSketch::try_new(Quota::per_minute(2), 1_024).unwrap();
    assert!(sketch.check_at(7, 2, at_ms(0)).is_allowed() && sketch.check_at(7, 1, at_ms(1)).is_denied());
}

/// The entry point, which the C library calls.
#[unsafe(no_mangle)]
extern "C" fn main(_arguments: c_int, _values: *const *const u8) -> c_int {
    algorithms();
    full();
    verbs();
    let _ = writeln!(Output(1), "without std: every decision is right");
    0
}
