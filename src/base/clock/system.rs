//! Clocks that read the machine's time.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::{Clock, Timestamp, saturating_nanos};
use crate::base::multiply_high;
use crate::base::sync::{AtomicU64, Ordering};

/// Returns the wall clock's nanoseconds since the Unix epoch, or zero if the wall clock is set before 1970.
pub fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, saturating_nanos)
}

/// Returns the clock from which all other clocks of the process start. The process reads the wall clock once, so the
/// clocks' times agree.
#[expect(clippy::disallowed_methods, reason = "the lint sends all other code to these clocks")]
fn process_clock() -> &'static StdClock {
    static CLOCK: OnceLock<StdClock> = OnceLock::new();
    CLOCK.get_or_init(|| StdClock { start: Instant::now(), origin_ns: unix_nanos().min(u64::MAX / 2) })
}

/// The default clock: the processor's time-stamp counter where the operating system itself uses it, otherwise the
/// operating system's monotonic clock ([`StdClock`]).
///
/// A reading of the counter costs about half as much as one of [`StdClock`]. But on some machines the counters of the
/// cores differ, or change their speed. Linux compares the counters of all cores, and names the source of its own time
/// in `/sys/devices/system/clocksource/clocksource0/current_clocksource`. The first clock of a process reads this file,
/// and uses the counter only if the file says `tsc`. No check reads a file.
///
/// | system | source of the default clock |
/// |---|---|
/// | Linux on x86-64, which says `tsc` | the counter |
/// | Linux which says `kvm-clock`, `xen` or `hyperv_clocksource_tsc_page` | the system's clock: the host of the virtual machine corrects its time when it moves the machine to other hardware, and nothing corrects a counter that a program reads itself |
/// | Linux which says `hpet` or `acpi_pm`, or has no such file | the system's clock: the kernel may have found that the counters of the cores differ |
/// | all other systems and processors | the system's clock: where the system trusts a counter, it reads that counter without a system call |
///
/// [`uses_counter`](Self::uses_counter) and `Debug` show the choice. To choose another source, pass
/// [`StdClock::new()`](StdClock::new) or [`DefaultClock::counter()`](Self::counter) to
/// [`Builder::clock`](crate::Builder::clock). A kernel that stops trusting the counter while the process runs is not
/// noticed until the process restarts.
///
/// The first clock that uses the counter compares it with the system's clock for 4 ms; no check waits for that. All
/// clocks of a process share one origin. One thread never sees the time step back. Readings of the counter on two cores may
/// differ by a fraction of a microsecond.
///
/// # Examples
/// ```
/// use tollgate::{DefaultClock, Gcra, Quota, RateLimiter, SlidingWindow};
///
/// let clock = DefaultClock::new();
/// let second = RateLimiter::builder(Gcra::new(Quota::per_second(10))).clock(clock.clone()).compact()?;
/// let day = RateLimiter::builder(SlidingWindow::new(Quota::per_day(1_000))).clock(clock).compact()?;
/// assert!(tollgate::check_all((second.on("alice"), day.on("alice"))).is_allowed());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Clone)]
pub struct DefaultClock {
    /// Nanoseconds for 2⁶⁴ counts of the processor's counter. Zero if the clock reads the system's time.
    scale: u64,
    /// The time at which the counter was zero, in nanoseconds since the origin, modulo 2⁶⁴.
    zero_ns: u64,
}

impl DefaultClock {
    /// Creates a clock. The first call in a process asks the system for its source, measures the speed of the
    /// counter if the system uses it, and reads the wall clock.
    #[must_use]
    pub fn new() -> Self {
        static TRUSTED: OnceLock<bool> = OnceLock::new();
        let trusted = || kernel_trusts_counter(std::fs::read_to_string(CLOCK_SOURCE).ok().as_deref());
        if *TRUSTED.get_or_init(trusted) { Self::counter() } else { Self::system() }
    }

    /// Creates a clock that uses the processor's counter even if the system does not: for machines whose counters are
    /// known to agree and to have a constant speed. On processors other than x86-64, it reads the system's time.
    ///
    /// If the counters do not agree, conforming requests are denied: half of them, if one of two cores is 1.6 s behind.
    #[must_use]
    pub fn counter() -> Self {
        counter::clock()
    }

    /// Returns whether the clock reads the processor's counter. Otherwise it reads the system's monotonic clock.
    #[must_use]
    pub fn uses_counter(&self) -> bool {
        self.scale != 0
    }

    fn system() -> Self {
        Self { scale: 0, zero_ns: 0 }
    }
}

/// The file in which Linux names the source of its time.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Returns whether the kernel reads its own time from the processor's counter, by the content of its file
/// [`CLOCK_SOURCE`].
fn kernel_trusts_counter(source: Option<&str>) -> bool {
    source.is_some_and(|source| source.trim_end() == "tsc")
}

/// Reads the system's time. The function is not inlined, so that a check which reads the counter does not save its
/// registers for this call.
#[cold]
#[inline(never)]
fn system_now_ns() -> u64 {
    process_clock().now().as_nanos()
}

impl Default for DefaultClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for DefaultClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefaultClock")
            .field("uses_counter", &self.uses_counter())
            .field("now", &self.now())
            .finish()
    }
}

impl Clock for DefaultClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp(match self.scale {
            0 => system_now_ns(),
            // The count wraps after 292 years at the earliest, because the process began in the first half of the
            // range. Until then the sum is right, even if the counter was zero before the origin.
            scale => self.zero_ns.wrapping_add(multiply_high(counter::read(), scale)),
        })
    }
}

/// The time-stamp counter of an x86-64 processor.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod counter {
    use std::sync::OnceLock;

    use super::{Clock, DefaultClock, multiply_high, process_clock};

    /// How long the counter is compared with the system's time. Both readings of a comparison are exact to a few
    /// nanoseconds, so the speed of the clock is wrong by a few millionths. Time synchronisation changes the speed of
    /// the system's clock by more.
    const CALIBRATION_NS: u64 = 4_000_000;

    /// Reads the counter. Other threads' readings may come up to a fraction of a microsecond earlier or later than the
    /// order of their memory accesses, because the processor executes the instruction out of order.
    #[inline(always)]
    pub(super) fn read() -> u64 {
        let (low, high): (u64, u64);
        // SAFETY: every x86-64 processor has the instruction; it writes these two registers and nothing else.
        unsafe {
            core::arch::asm!("rdtsc", out("rax") low, out("rdx") high, options(nomem, nostack, preserves_flags));
        }
        high << 32 | low
    }

    /// Returns the process's clock that reads the counter.
    pub(super) fn clock() -> DefaultClock {
        static CLOCK: OnceLock<DefaultClock> = OnceLock::new();
        CLOCK.get_or_init(calibrated).clone()
    }

    /// One moment, as both clocks show it.
    struct BothClocks {
        system_ns: u64,
        count: u64,
    }

    impl BothClocks {
        /// Reads the system's time between two readings of the counter. Of several tries, the one with the smallest
        /// difference counts: the thread was not preempted in it.
        fn read() -> Self {
            let once = |_| {
                let before = read();
                let system_ns = process_clock().now().as_nanos();
                let took = read().wrapping_sub(before);
                (took, Self { system_ns, count: before.wrapping_add(took / 2) })
            };
            let tries = (0..16).map(once);
            tries.min_by_key(|(took, _)| *took).map_or(Self { system_ns: 0, count: 0 }, |(_, moment)| moment)
        }
    }

    /// Returns the clock whose counter has the speed of the system's clock. Returns the system's clock if the counter
    /// stands, or if one count takes a nanosecond or longer.
    fn calibrated() -> DefaultClock {
        let begin = BothClocks::read();
        while process_clock().now().as_nanos() < begin.system_ns.saturating_add(CALIBRATION_NS) {
            std::hint::spin_loop();
        }
        let end = BothClocks::read();
        let counts = end.count.wrapping_sub(begin.count);
        let scale = scale(end.system_ns.saturating_sub(begin.system_ns), counts);
        if scale == 0 {
            return DefaultClock::system();
        }
        DefaultClock { scale, zero_ns: end.system_ns.wrapping_sub(multiply_high(end.count, scale)) }
    }

    /// Returns the [`DefaultClock::scale`] of a counter that counted `counts` in `ns` nanoseconds, rounded down. Returns
    /// zero if one count takes a nanosecond or longer.
    fn scale(ns: u64, counts: u64) -> u64 {
        if ns >= counts {
            return 0;
        }
        u64::try_from((u128::from(ns) << 64) / u128::from(counts)).unwrap_or(0)
    }

    #[cfg(all(test, not(tollgate_loom)))]
    mod tests {
        use super::*;

        #[test]
        fn scale_is_nanoseconds_for_all_counts() {
            assert_eq!(scale(1, 2), 1 << 63);
            assert_eq!(multiply_high(3_000_000, scale(1_000_000, 3_000_000)), 999_999, "rounded down");
            for (ns, counts) in [(0, 0), (1, 0), (5, 5), (6, 5), (u64::MAX, u64::MAX), (0, 9)] {
                assert_eq!(scale(ns, counts), 0, "{ns} ns, {counts} counts");
            }
            assert_eq!(scale(u64::MAX - 1, u64::MAX), u64::MAX - 1);
        }

        /// The counter runs as fast as the system's clock, within a thousandth. The usual error is a few millionths.
        // G41
        #[test]
        fn counter_agrees_with_the_system() {
            let clock = DefaultClock::new();
            if !clock.uses_counter() {
                return; // the counters of the cores may differ
            }
            // The thread may be preempted between two readings, so the time between two readings of one clock is compared with the
            // shortest and the longest that the other one allows.
            let read = || (process_clock().now(), clock.now(), process_clock().now());
            let (earliest, begin, latest) = read();
            loop {
                let (before, now, after) = read();
                let passed = now.duration_since(begin).as_nanos();
                let (least, most) =
                    (before.duration_since(latest).as_nanos(), after.duration_since(earliest).as_nanos());
                assert!(
                    passed >= (least - least / 1_000).saturating_sub(100),
                    "{passed} ns of at least {least}"
                );
                assert!(passed <= most + most / 1_000 + 100, "{passed} ns of at most {most}");
                if least > 20_000_000 {
                    break;
                }
            }
        }
    }
}

/// Without a counter, every clock reads the system's time.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod counter {
    use super::DefaultClock;

    pub(super) fn read() -> u64 {
        0
    }

    pub(super) fn clock() -> DefaultClock {
        DefaultClock::system()
    }
}

/// The operating system's monotonic clock, [`Instant`], anchored once to the wall clock.
///
/// The clock never steps back: the standard library guarantees this. No call waits for calibration. On most systems the
/// clock stops while the machine is suspended.
///
/// # Examples
/// ```
/// use tollgate::{Clock, Gcra, Quota, RateLimiter, StdClock, Timestamp};
///
/// let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(10))).clock(StdClock::new()).direct();
/// assert!(limiter.check().is_allowed());
/// assert!(limiter.clock().now() > Timestamp::from_secs(1_700_000_000)); // since 1970
/// ```
#[derive(Clone, Debug)]
pub struct StdClock {
    start: Instant,
    origin_ns: u64,
}

impl StdClock {
    /// Creates a clock, anchored to the wall clock.
    #[must_use]
    pub fn new() -> Self {
        process_clock().clone()
    }
}

impl Default for StdClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for StdClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp(self.origin_ns.saturating_add(saturating_nanos(self.start.elapsed())))
    }
}

/// A clock that returns the time of the last [`CoarseClock::refresh`], from one shared word.
///
/// Use it in servers that already have a regular tick, such as each iteration of an event loop. A reading costs one
/// load instead of 10 to 20 ns. Clones share the word.
///
/// Between refreshes all checks see the same time. In any interval of length `t`, a limiter therefore admits at most
/// its bound for `t` plus the longest time between two refreshes.
///
/// # Examples
/// ```
/// use tollgate::{Clock, CoarseClock};
///
/// let clock = CoarseClock::new();
/// let turn = clock.now();
/// assert_eq!(clock.now(), turn); // the same reading until the next refresh
/// clock.refresh(); // at the next iteration of the loop
/// assert!(clock.now() >= turn);
/// ```
#[derive(Clone, Debug)]
pub struct CoarseClock {
    source: DefaultClock,
    latest_ns: Arc<AtomicU64>,
}

impl CoarseClock {
    /// Creates a clock that returns the current time until it is refreshed.
    #[must_use]
    pub fn new() -> Self {
        let source = DefaultClock::new();
        let latest_ns = Arc::new(AtomicU64::new(source.now().0));
        Self { source, latest_ns }
    }

    /// Reads the real clock, and makes the time visible to every clone. Never moves the time back.
    pub fn refresh(&self) {
        // Ordering: Relaxed. The word is the whole message; it publishes nothing else.
        self.latest_ns.fetch_max(self.source.now().0, Ordering::Relaxed);
    }
}

impl Default for CoarseClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Timestamp {
        // Ordering: Relaxed, as in `refresh`.
        Timestamp(self.latest_ns.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Gcra, ManualClock, Quota, RateLimiter};

    /// A machine whose second core has a counter that is behind. The system's own time is the same on both cores.
    struct Machine {
        time: ManualClock,
        counter_behind: Duration,
    }

    impl Machine {
        /// Returns the time that the default clock reads on a core if the kernel names this source.
        fn now(&self, source: Option<&str>, second_core: bool) -> Timestamp {
            let now = self.time.now();
            if kernel_trusts_counter(source) && second_core {
                return Timestamp(now.0 - saturating_nanos(self.counter_behind));
            }
            now
        }

        /// Returns how many of 500 requests are admitted. They conform to the quota, and arrive on both cores in turn.
        fn admitted(&self, source: Option<&str>) -> usize {
            let limiter = RateLimiter::direct(Gcra::new(Quota::per_second(10).burst(10)));
            let mut admitted = 0;
            for request in 0..500 {
                self.time.advance(Duration::from_millis(100));
                let now = self.now(source, request % 2 == 1);
                admitted += usize::from(limiter.at(now).check().is_allowed());
            }
            admitted
        }
    }

    /// A regression test: the default clock once used the counter of every processor that declares it as invariant.
    // G41
    #[test]
    fn counters_that_differ_between_cores_are_not_used() {
        let machine = |behind_ms| Machine {
            time: ManualClock::new(Timestamp::from_secs(1_000_000)),
            counter_behind: Duration::from_millis(behind_ms),
        };
        for source in [Some("hpet\n"), Some("acpi_pm\n"), Some("kvm-clock\n"), Some("xen\n"), Some(""), None]
        {
            assert_eq!(machine(1_600).admitted(source), 500, "{source:?}");
        }
        assert_eq!(machine(0).admitted(Some("tsc\n")), 500, "the kernel has compared the counters");
        // The harm of a wrong choice: nearly all requests of the second core are denied.
        let admitted = machine(1_600).admitted(Some("tsc\n"));
        assert!((250..260).contains(&admitted), "{admitted}");
    }

    // G41
    #[test]
    fn default_clock_uses_only_a_trusted_counter() {
        let source = std::fs::read_to_string(CLOCK_SOURCE).ok();
        let clock = DefaultClock::new();
        if !kernel_trusts_counter(source.as_deref()) {
            assert!(!clock.uses_counter(), "{source:?}");
        }
        let text = format!("{clock:?}");
        assert!(
            text.starts_with(&format!("DefaultClock {{ uses_counter: {}, now: ", clock.uses_counter())),
            "{text}"
        );
        assert!(!DefaultClock::system().uses_counter());
        let (before, now) = (StdClock::new().now(), DefaultClock::system().now());
        assert!(before <= now && now <= StdClock::new().now());
    }
}
