//! Counts of any number of keys: a count-min sketch with conservative update.
//!
//! ```text
//! row 0  | . . 5 . . . |     A key has one counter in each row. Each row has its own hash function.
//! row 1  | 9 . . . . . |     Other keys may share a counter, so each counter is at least the key's count.
//! row 2  | . . . . 5 . |     The estimate is the smallest of the key's counters, here 5.
//! ```
//! *Conservative update.* An add raises only the counters that are below the new estimate.
//!
//! *Raise, then commit.* An add works in these steps:
//!
//! 1. Read all counters of the key. The smallest value is the estimate.
//! 2. Raise every other counter to the new estimate, if the counter is below it.
//! 3. Replace the smallest counter by the new estimate with a compare-exchange. The exchange expects exactly the
//!    value of the old estimate. This step is the commit. If the counter has changed, start again at step 1.
//!
//! Why no count is ever lost: take two adds A and B of one key (or of two keys that share all counters). They commit
//! from the estimates `a` and `b`.
//!
//! - Both commit in one counter. Counters only grow, so the later add commits from the value that the earlier add
//!   left, or from a higher one.
//! - They commit in two different counters. Before its commit, each add raised the counter in which the other add
//!   commits. Suppose that each of them reached that counter only after the other's commit there. Then each saw the
//!   other's commit before its own commit, which is a contradiction (all orderings are Acquire and Release). So one
//!   of them, say A, raised B's counter before B committed there. Then B committed from the value that A had raised
//!   the counter to, or from a higher one.
//!
//! In both cases, one add commits from an estimate that includes the other's count. So the adds of a key form a
//! sequence. Each add starts from an estimate that includes all earlier adds. After an add, all counters of the key
//! are at its result or above. An add that starts again leaves the other counters raised, as if another key had
//! counted there.
//!
//! Two simpler schemes lose counts, which the models show. The first exchanges the smallest counter and then raises
//! the others. The second raises every counter with an atomic maximum.
//!
//! *Rows.* Each row has its own multiplier, which is a power of one base multiplier. The top bits of hash ×
//! multiplier choose the counter in the row. Two keys share a counter in a row if the difference of their hashes,
//! times the row's multiplier, is small. The multiples of a random difference by 1, a, a², … are successive numbers
//! of a linear congruential generator. The base multiplier passes the spectral test in up to eight dimensions, so the
//! rows are as independent as the top bits of those numbers.
//!
//! Two other schemes were dropped. With double hashing (Kirsch and Mitzenmacher), two keys that share counters in two
//! rows usually share counters in all rows. So one pair in width² shares all counters, instead of one pair in
//! width^depth, which is frequent in narrow sketches. With a full mix for each row, an estimate takes nearly twice as
//! long.

#[cfg(all(test, tollgate_loom))]
mod models;
mod size;

use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::base::memory::{Array, Zeroed};
use crate::base::sync::AtomicU32;
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sketch::hash::{MULTIPLIER, scale};

const MAX_DEPTH: usize = 8;
const COUNTER: usize = size_of::<AtomicU32>();
/// Powers of [`MULTIPLIER`], one for each row.
const POWERS: [u64; MAX_DEPTH] = {
    let mut powers = [MULTIPLIER; MAX_DEPTH];
    let mut row = 1;
    while row < MAX_DEPTH {
        powers[row] = powers[row - 1].wrapping_mul(MULTIPLIER);
        row += 1;
    }
    powers
};

/// Counts events for any number of keys in constant memory; its estimates are never too low.
///
/// `CountMin` is a count-min sketch of `depth` rows of `width` 32-bit counters, with conservative update. The
/// estimate of a key is at least the sum of all counts added for it. It is higher if each of the key's counters is
/// shared with another key. With `N` units counted in total, the error exceeds `e × N / width` with probability at
/// most `e^-depth` (e = 2.718…). With conservative update and real traffic, the error is much smaller.
///
/// Counters stop at [`CountMin::MAX`]: an estimate of `MAX` means `MAX` or more. Counters do not age. To count per
/// minute, call [`clear`](Self::clear) every minute.
///
/// # Consistency
/// All methods take `&self`, are lock-free and can be called from any number of threads. No count is ever lost. An
/// estimate includes every add that returned before the estimate began, and may include adds that run at the same
/// time. Each [`add`](Self::add) to a key returns an estimate that includes its own count. The estimate also includes
/// every add to the key that returned a smaller value. So if all adds to a key add 1, at most `L` of them return `L`
/// or less, for any number of threads.
///
/// This guarantee has a cost. An [`add`](Self::add) takes 1.3 to 1.7 times as long as in a sketch that adds to every
/// row without reading it first, such as the one in pingora-limits. The estimates of that sketch are higher.
///
/// # Keys that clients choose
/// The default hasher has a secret. Clients can find keys that share counters only by trial. Two keys with the same
/// 64-bit hash are one key.
///
/// # Examples
/// ```
/// use tollgate::sketch::CountMin;
///
/// // At most 0.1 % of all counts too high, except for one key in a hundred: 2,719 counters in each of 5 rows.
/// let requests = CountMin::for_error(0.001, 0.01)?;
/// for _ in 0..3 {
///     requests.add("203.0.113.7", 1);
/// }
/// assert_eq!(requests.add("203.0.113.7", 2), 5);
/// assert_eq!(requests.estimate("203.0.113.7"), 5);
/// assert_eq!(requests.estimate("198.51.100.1"), 0);
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
/// With the same seeds, the same keys give the same estimates in every run:
/// ```
/// # use tollgate::sketch::CountMin;
/// let counts = CountMin::try_new(1_024, 4)?.with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4));
/// assert_eq!(counts.add(&7, 1), 1);
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
///
/// # Source
/// Cormode and Muthukrishnan 2005 (count-min); Estan and Varghese 2002 (conservative update).
pub struct CountMin<H = ahash::RandomState> {
    /// Stored row by row.
    counters: Array<AtomicU32>,
    width: usize,
    /// 1 to 8.
    depth: usize,
    hasher: H,
}

/// Calls a method that is generic over the depth. The compiler unrolls loops of a known length and keeps their arrays
/// in registers.
macro_rules! with_depth {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self.depth {
            1 => $self.$method::<1>($($argument),*),
            2 => $self.$method::<2>($($argument),*),
            3 => $self.$method::<3>($($argument),*),
            4 => $self.$method::<4>($($argument),*),
            5 => $self.$method::<5>($($argument),*),
            6 => $self.$method::<6>($($argument),*),
            7 => $self.$method::<7>($($argument),*),
            _ => $self.$method::<MAX_DEPTH>($($argument),*),
        }
    };
}

impl CountMin {
    /// The largest value of a counter. An estimate of `MAX` means `MAX` or more.
    pub const MAX: u64 = u32::MAX as u64;
}

impl<H> CountMin<H> {
    /// Returns the same sketch with another hasher. Default: ahash with random keys.
    ///
    /// Call it before the first add. Counts that were added with the old hasher stay in the counters, as counts of
    /// other keys.
    ///
    /// The hasher must return 64 bits of good quality. With a hasher that has no secret, clients can choose keys that
    /// share counters.
    #[must_use]
    pub fn with_hasher<I>(self, hasher: I) -> CountMin<I> {
        let Self { counters, width, depth, .. } = self;
        CountMin { counters, width, depth, hasher }
    }

    /// Counts `n` for the key with this hash and returns its new estimate, like [`CountMin::add`].
    ///
    /// `hash` must have 64-bit quality, because the sketch knows nothing else about the key. [`CountMin::hash`]
    /// returns a suitable hash.
    #[inline]
    pub fn add_hash(&self, hash: u64, n: u64) -> u64 {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        with_depth!(self.add_rows(hash, n)).into()
    }

    /// Returns the estimate of the key with this hash, like [`CountMin::estimate`].
    #[inline]
    #[must_use]
    pub fn estimate_hash(&self, hash: u64) -> u64 {
        with_depth!(self.estimate_rows(hash)).into()
    }

    /// Returns the index of the key's counter in each row.
    #[inline]
    fn places<const DEPTH: usize>(&self, hash: u64) -> [usize; DEPTH] {
        std::array::from_fn(|row| row * self.width + scale(hash.wrapping_mul(POWERS[row]), self.width))
    }

    #[inline]
    fn read<const DEPTH: usize>(&self, places: [usize; DEPTH]) -> [u32; DEPTH] {
        // Ordering: Acquire; pairs with the Release of raises and commits.
        places.map(|place| self.counters[place].load(Acquire))
    }

    #[inline]
    fn estimate_rows<const DEPTH: usize>(&self, hash: u64) -> u32 {
        least(&self.read::<DEPTH>(self.places(hash)))
    }

    #[inline]
    fn add_rows<const DEPTH: usize>(&self, hash: u64, n: u32) -> u32 {
        let places = self.places::<DEPTH>(hash);
        loop {
            let seen = self.read(places);
            let count = least(&seen);
            let next = count.saturating_add(n);
            // `n` is 0, or the estimate is at the maximum.
            if next == count {
                return count;
            }
            let mut row = 0;
            if seen.iter().fold(0, |differ, other| differ | (other ^ count)) == 0 {
                // All counters are equal, which is the usual case if the sketch has room. On this path the indices do
                // not depend on the counts. So the processor can start on the next key before the counts arrive from
                // memory. This saves a third of the time if the counters are not in a cache.
                for &other in &places[1..] {
                    self.raise(other, count, next);
                }
            } else {
                // The processor cannot predict which counters to raise. So the loop runs over a bit mask of them,
                // without a branch for each row.
                row = rows_where(&seen, |other| other == count).trailing_zeros() as usize;
                let mut low = rows_where(&seen, |other| other < next) & !(1 << row);
                while low != 0 {
                    let other = low.trailing_zeros() as usize;
                    self.raise(places[other], seen[other], next);
                    low &= low - 1;
                }
            }
            // Ordering: AcqRel. A thread that sees the commit also sees the raises before it. Relaxed on failure: the
            // next round reads all counters again.
            if self.counters[places[row]].compare_exchange(count, next, AcqRel, Relaxed).is_ok() {
                return next;
            }
        }
    }

    /// Raises a counter, whose last known value is `seen`, to at least `count`.
    #[inline]
    fn raise(&self, place: usize, mut seen: u32, count: u32) {
        while seen < count {
            // Ordering: AcqRel, and Acquire on failure. If this thread raises the counter or finds it high enough,
            // its next commit comes after the commit of the count that it found. Release: a thread that sees this
            // value also sees the values that it is based on.
            match self.counters[place].compare_exchange(seen, count, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Resets all counts to zero.
    ///
    /// An add that runs at the same time may be dropped, kept, or kept in part. An add that begins after `clear`
    /// returned is counted in full.
    ///
    /// # Complexity
    /// O(width × depth) for the caller. Other threads do not wait.
    pub fn clear(&self) {
        self.counters.iter().for_each(Zeroed::clear);
    }

    /// Returns the number of counters in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the size of the counters in bytes.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.counters.len() * COUNTER
    }
}

impl<H: BuildHasher> CountMin<H> {
    /// Counts `n` for a key and returns its new estimate: at least the sum of all counts of the key, including this
    /// one.
    ///
    /// An `n` of 0 counts nothing. Counters stop at [`CountMin::MAX`].
    ///
    /// # Complexity
    /// O(depth): a load and at most one exchange in each row. Lock-free: an add retries only if a write of another
    /// thread took effect.
    #[inline]
    pub fn add<K: Hash + ?Sized>(&self, key: &K, n: u64) -> u64 {
        self.add_hash(self.hash(key), n)
    }

    /// Returns the estimate of a key: at least the sum of all counts that were added for it.
    ///
    /// # Complexity
    /// O(depth): a load in each row. It writes nothing.
    #[inline]
    #[must_use]
    pub fn estimate<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.estimate_hash(self.hash(key))
    }

    /// Returns the hash of a key, for [`CountMin::add_hash`] and [`CountMin::estimate_hash`].
    #[inline]
    #[must_use]
    pub fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }
}

impl<H> fmt::Debug for CountMin<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountMin")
            .field("width", &self.width)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

#[inline]
fn least<const DEPTH: usize>(counts: &[u32; DEPTH]) -> u32 {
    counts.iter().fold(u32::MAX, |least, &count| least.min(count))
}

/// Returns a bit mask of the rows for which `holds` is true.
#[inline]
fn rows_where<const DEPTH: usize>(counts: &[u32; DEPTH], holds: impl Fn(u32) -> bool) -> u32 {
    (0..).zip(counts).fold(0, |rows, (row, &count)| rows | (u32::from(holds(count)) << row))
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::Ordering::Release;
    use crate::sketch::hash::mix;

    fn counts(width: usize, depth: usize) -> CountMin {
        CountMin::try_new(width, depth).unwrap().with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4))
    }

    #[test]
    fn add_raises_only_lower_counters() {
        let counts = counts(64, 4);
        let places = counts.places::<4>(7);
        for (place, count) in places.into_iter().zip([10, 3, 4, 9]) {
            counts.counters[place].store(count, Release);
        }
        assert_eq!(counts.add_hash(7, 2), 5);
        let counts = places.map(|place| counts.counters[place].load(Acquire));
        assert_eq!(counts, [10, 5, 5, 9]);
    }

    #[test]
    fn rows_use_all_counters_evenly() {
        for width in [1, 2, 3, 6, 7, 64, 100] {
            let counts = counts(width, MAX_DEPTH);
            let mut used = vec![0_u32; width * MAX_DEPTH];
            let keys = 1_000 * width as u64;
            for key in 0..keys {
                for (row, place) in counts.places::<MAX_DEPTH>(mix(key)).into_iter().enumerate() {
                    assert_eq!(place / width, row);
                    used[place] += 1;
                }
            }
            // 1,000 draws each, with a standard deviation of 32 or less.
            assert!(used.iter().all(|&used| used.abs_diff(1_000) < 160), "{width}: {used:?}");
        }
    }

    /// Compares the errors with those of plain count-min, in which an add raises every counter of the key.
    #[test]
    fn conservative_update_never_exceeds_plain() {
        for (width, depth) in [(16, 2), (100, 4), (1_000, 4)] {
            let counts = counts(width, depth);
            let mut plain = vec![0_u64; width * depth];
            let (mut error, mut plain_error, mut truth) = (0, 0, vec![0_u64; 500]);
            for event in 0..20_000 {
                // Low key numbers are more frequent than high ones.
                let key = mix(event) % 500 * (mix(!event) % 500) / 500;
                truth[key as usize] += 1;
                counts.add_hash(mix(key), 1);
                for place in &counts.places::<MAX_DEPTH>(mix(key))[..depth] {
                    plain[*place] += 1;
                }
            }
            for (key, truth) in (0..).zip(truth) {
                let places = counts.places::<MAX_DEPTH>(mix(key));
                let by_plain = places[..depth].iter().map(|&place| plain[place]).min().unwrap();
                let estimate = counts.estimate_hash(mix(key));
                assert!((truth..=by_plain).contains(&estimate), "{key}: {truth} {estimate} {by_plain}");
                error += estimate - truth;
                plain_error += by_plain - truth;
            }
            assert!(
                error * 4 < plain_error * 3,
                "{width}: total error {error}, plain count-min {plain_error}"
            );
        }
    }

    /// Counts the pairs of keys that share counters in each set of rows, and compares the numbers with those of
    /// independent rows. The sum of the squared differences is chi-squared.
    #[test]
    fn rows_are_independent_of_each_other() {
        const PAIRS: u64 = 1 << 17;
        for width in [2_u32, 3, 4, 6, 16] {
            let counts = counts(width as usize, MAX_DEPTH);
            let mut met = [0_u64; 1 << MAX_DEPTH];
            for pair in 0..PAIRS {
                let [a, b] = [2 * pair, 2 * pair + 1].map(|key| counts.places::<MAX_DEPTH>(mix(key)));
                let rows = (0..MAX_DEPTH).fold(0, |rows, row| rows | (usize::from(a[row] == b[row]) << row));
                met[rows] += 1;
            }
            let meeting = f64::from(width).recip();
            let pairs = (0_u32..).zip(&met).map(|(rows, &met)| {
                let together = f64::from(rows.count_ones());
                let apart = MAX_DEPTH as f64 - together;
                (PAIRS as f64 * meeting.powf(together) * (1.0 - meeting).powf(apart), met as f64)
            });
            // All sets of rows with fewer than ten expected pairs count as one set.
            let (rare, mut all): (Vec<_>, Vec<_>) = pairs.partition(|(expected, _)| *expected < 10.0);
            let rare = rare.iter().fold((0.0, 0.0), |sum, set| (sum.0 + set.0, sum.1 + set.1));
            all.extend((rare.0 > 0.0).then_some(rare));
            let sum: f64 = all.iter().map(|(expected, met)| (met - expected).powi(2) / expected).sum();
            // The mean is the number of sets minus one, and the variance is twice that. The bound is five standard
            // deviations.
            let free = all.len() as f64 - 1.0;
            assert!(
                sum < free + 5.0 * (2.0 * free).sqrt(),
                "{width}: chi-squared is {sum} with {free} degrees of freedom"
            );
        }
    }
}
