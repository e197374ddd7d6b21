//! Counts of any number of keys: a count-min sketch with conservative update.
//!
//! ```text
//! row 0  | . . 5 . . . |     a key has a counter in each row, chosen by a hash of the row's own;
//! row 1  | 9 . . . . . |     others may count there too, so each is at least the key's count,
//! row 2  | . . . . 5 . |     and the least of them, here 5, is the estimate
//! ```
//! *Conservative update.* A count only has to raise what would be too low: the counters below the new
//! estimate.
//!
//! *Raise, then commit.* All other counters are raised to the new estimate first; then the least one is
//! exchanged for it, from exactly the value that the estimate was; if it changed, all begins again. Why no
//! count is ever lost: take two counts A and B of a key (or of two that share all counters), which commit
//! from estimates `a` and `b`.
//!
//! - Both in one counter: counters only grow, so the later one commits from what the earlier one left, or
//!   more.
//! - In two: A raised B's counter before it committed, and B raised A's. Had both raised after the other's
//!   commit, each would have seen the other's commit before its own, which is a circle (all orderings are
//!   Acquire and Release). So one of them, say A, raised B's counter before B committed there. Then B
//!   committed from what A had raised it to, or more.
//!
//! Either way one commits from an estimate that holds the other's count. So the counts of a key are in a row,
//! each from an estimate that holds all before it, and after each one all counters of the key are at what it
//! left, or above. (Exchanging the least counter first, or raising all of them by a maximum, loses counts:
//! see the models.) A count that has to begin again leaves the other counters raised, as if another key had
//! counted there.
//!
//! *Rows.* A row's place is the top of the hash times a power of one multiplier, the row's own. Two keys meet
//! in a row if the difference of their hashes does so little when multiplied, and the multiples of a random
//! difference by 1, a, a², … are successive numbers of a linear congruential generator: with a multiplier
//! that passes the spectral test in up to eight dimensions, rows are as independent as those numbers are in
//! their top bits. Double hashing (Kirsch and Mitzenmacher) has no such property: two keys that meet in two
//! rows mostly meet in all, once in width² pairs instead of once in width^depth, which in narrow sketches is
//! often. A full mix for each row instead makes an estimate take nearly twice as long.

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
/// Its powers, one for each row.
const POWERS: [u64; MAX_DEPTH] = {
    let mut powers = [MULTIPLIER; MAX_DEPTH];
    let mut row = 1;
    while row < MAX_DEPTH {
        powers[row] = powers[row - 1].wrapping_mul(MULTIPLIER);
        row += 1;
    }
    powers
};

/// Counts for any number of keys, in constant memory: estimates that are never too low.
///
/// A count-min sketch of `depth` rows of `width` counters of 32 bits, with conservative update. The estimate
/// of a key is at least what was counted for it. It is higher if others share all of the key's counters: with
/// `N` counted in all, by more than `e × N / width` with probability `e^-depth` at most (e = 2.718…), and
/// with conservative update and real traffic by far less.
///
/// Counters stop at [`CountMin::MAX`]: an estimate of it means that much or more. They do not age; to count
/// by the minute, [`clear`](Self::clear) it every minute.
///
/// # Consistency
/// All calls take `&self`, are lock-free and can be made from any number of threads. No count is ever lost.
/// An estimate holds every count that ended before it began, and perhaps some that run beside it. Each
/// [`add`](Self::add) to a key returns an estimate that holds its own count and those of all adds to the key
/// that returned less; so of adds of 1, at most `L` return `L` or less, however many threads there are.
///
/// This has a price: an [`add`](Self::add) takes 1.3 to 1.7 times as long as one of a sketch that adds to every row without
/// reading it first, as pingora-limits' does. The estimates of such a sketch are higher.
///
/// # Keys that clients choose
/// The default hasher has a secret, so clients cannot choose keys that share counters but by trying them out.
/// Estimates are as good as the hash: two keys with the same 64 bits are one key.
///
/// # Examples
/// ```
/// use tollgate::sketch::CountMin;
///
/// // At most 0.1 % of all counts too high, but for one key in a hundred: 2,719 counters in 5 rows.
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
    /// Row by row.
    counters: Array<AtomicU32>,
    width: usize,
    /// 1 to 8.
    depth: usize,
    hasher: H,
}

/// Runs a method that is generic in the depth: loops of a known length are unrolled, and their arrays are
/// registers.
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
    /// What counters stop at. An estimate of this means that much or more.
    pub const MAX: u64 = u32::MAX as u64;
}

impl<H> CountMin<H> {
    /// The same sketch with another hasher. Default: ahash with random keys.
    ///
    /// For a sketch on which nothing was counted yet. What was counted by the old hasher stays, as counts of
    /// other keys.
    ///
    /// A hasher needs 64 bits of good quality. One without a secret lets clients choose keys that share
    /// counters.
    #[must_use]
    pub fn with_hasher<I>(self, hasher: I) -> CountMin<I> {
        let Self { counters, width, depth, .. } = self;
        CountMin { counters, width, depth, hasher }
    }

    /// Counts `n` for the key with this hash, and returns its new estimate, as [`CountMin::add`].
    ///
    /// `hash` must be of 64-bit quality: it is all that is known of the key. By [`CountMin::hash`] it is that
    /// of the key.
    #[inline]
    pub fn add_hash(&self, hash: u64, n: u64) -> u64 {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        with_depth!(self.add_rows(hash, n)).into()
    }

    /// The estimate of the key with this hash, as [`CountMin::estimate`].
    #[inline]
    #[must_use]
    pub fn estimate_hash(&self, hash: u64) -> u64 {
        with_depth!(self.estimate_rows(hash)).into()
    }

    /// The place of a key's counter in each row.
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
            // Nothing to count, or no more can be.
            if next == count {
                return count;
            }
            let mut row = 0;
            if seen.iter().fold(0, |differ, other| differ | (other ^ count)) == 0 {
                // All alike, as mostly where there is room. Here the processor knows the places before the
                // counts have come, and goes on to the next key: a third less time where the counters are in
                // no cache.
                for &other in &places[1..] {
                    self.raise(other, count, next);
                }
            } else {
                // A loop over those to be raised, since which they are cannot be predicted.
                row = rows_where(&seen, |other| other == count).trailing_zeros() as usize;
                let mut low = rows_where(&seen, |other| other < next) & !(1 << row);
                while low != 0 {
                    let other = low.trailing_zeros() as usize;
                    self.raise(places[other], seen[other], next);
                    low &= low - 1;
                }
            }
            // Ordering: AcqRel: the raises come before it for whoever sees it. Relaxed on failure: all is
            // read again.
            if self.counters[places[row]].compare_exchange(count, next, AcqRel, Relaxed).is_ok() {
                return next;
            }
        }
    }

    /// Raises a counter, last seen at `seen`, to `count` at least.
    #[inline]
    fn raise(&self, place: usize, mut seen: u32, count: u32) {
        while seen < count {
            // Ordering: AcqRel, and Acquire on failure: whether it was raised here or found high enough, the
            // commit that comes next is after that of the count which is found. Release: who sees this sees
            // what it is based on.
            match self.counters[place].compare_exchange(seen, count, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Forgets all counts.
    ///
    /// Adds that run at the same time may be forgotten or kept, or be counted in the new counts for a part;
    /// those that begin after it returned are counted in full.
    ///
    /// # Complexity
    /// O(width × depth): nobody waits for it, but the caller does.
    pub fn clear(&self) {
        self.counters.iter().for_each(Zeroed::clear);
    }

    /// Counters in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The bytes of its counters.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.counters.len() * COUNTER
    }
}

impl<H: BuildHasher> CountMin<H> {
    /// Counts `n` for a key, and returns its new estimate: at least all that was counted for it, this
    /// included.
    ///
    /// An `n` of 0 counts nothing. Counters stop at [`CountMin::MAX`].
    ///
    /// # Complexity
    /// O(depth): a load and at most an exchange in each row. Lock-free: begins again only if another thread's
    /// write took effect.
    #[inline]
    pub fn add<K: Hash + ?Sized>(&self, key: &K, n: u64) -> u64 {
        self.add_hash(self.hash(key), n)
    }

    /// At most how much was counted for a key; never less than was.
    ///
    /// # Complexity
    /// O(depth): a load in each row. Writes nothing.
    #[inline]
    #[must_use]
    pub fn estimate<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.estimate_hash(self.hash(key))
    }

    /// The hash of a key, for [`CountMin::add_hash`] and [`CountMin::estimate_hash`].
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

/// A bit for each row.
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
    fn a_counter_that_all_share_counts_all() {
        for depth in 1..=MAX_DEPTH {
            let counts = counts(1, depth);
            for (before, key) in (0..10).zip(["a", "b", "c"].iter().cycle()) {
                assert_eq!(counts.add(key, 1), before + 1);
            }
            assert_eq!(counts.estimate("d"), 10);
        }
    }

    #[test]
    fn nothing_is_counted_for_nothing() {
        let counts = counts(3, 2);
        assert_eq!(counts.add(&1, 0), 0);
        assert_eq!(counts.add(&1, 5), 5);
        assert_eq!(counts.add(&1, 0), 5);
        assert_eq!(counts.estimate(&1), 5);
    }

    #[test]
    fn counters_stop_at_their_most() {
        for depth in 1..=MAX_DEPTH {
            let counts = counts(2, depth);
            assert_eq!(counts.add(&1, CountMin::MAX - 1), CountMin::MAX - 1);
            assert_eq!(counts.add(&1, 1), CountMin::MAX);
            assert_eq!(counts.add(&1, 1), CountMin::MAX);
            for huge in [CountMin::MAX, CountMin::MAX + 1, u64::MAX] {
                counts.clear();
                assert_eq!(counts.add(&1, huge), CountMin::MAX, "{huge}");
                assert_eq!(counts.add(&1, huge), CountMin::MAX, "{huge}");
                assert_eq!(counts.estimate(&1), CountMin::MAX);
            }
        }
    }

    #[test]
    fn sums_pass_the_most_without_wrapping() {
        let counts = counts(2, 3);
        assert_eq!(counts.add(&1, CountMin::MAX - 5), CountMin::MAX - 5);
        assert_eq!(counts.add(&1, 7), CountMin::MAX);
    }

    #[test]
    fn a_clear_forgets_all() {
        let counts = counts(7, 5);
        for key in 0..100 {
            counts.add(&key, 3);
        }
        counts.clear();
        assert!((0..100).all(|key| counts.estimate(&key) == 0));
    }

    #[test]
    fn a_count_raises_only_what_is_too_low() {
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
    fn each_row_is_used_all_over_and_alike() {
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
            // 1,000 each, with a standard deviation of 32 or less.
            assert!(used.iter().all(|&used| used.abs_diff(1_000) < 160), "{width}: {used:?}");
        }
    }

    /// Plain count-min: every counter of a key counts.
    #[test]
    fn conservative_update_is_nowhere_worse_than_plain() {
        for (width, depth) in [(16, 2), (100, 4), (1_000, 4)] {
            let counts = counts(width, depth);
            let mut plain = vec![0_u64; width * depth];
            let (mut error, mut plain_error, mut truth) = (0, 0, vec![0_u64; 500]);
            for event in 0..20_000 {
                // Low numbers more often than high ones.
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
            assert!(error * 4 < plain_error * 3, "{width}: {error} in all, plain {plain_error}");
        }
    }

    /// Pairs of keys that meet in some rows meet in the others as often as any: the sum of squared
    /// differences between the numbers of pairs that meet in each set of rows and those that independent rows
    /// give is chi-squared.
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
            let (mut sum, mut sets) = (0.0, 0.0);
            // Sets of rows that few pairs meet in count together.
            let (mut rare_expected, mut rare_met) = (0.0, 0.0);
            for (rows, &met) in (0_u32..).zip(&met) {
                let meeting = f64::from(width).recip();
                let together = f64::from(rows.count_ones());
                let apart = MAX_DEPTH as f64 - together;
                let expected = PAIRS as f64 * meeting.powf(together) * (1.0 - meeting).powf(apart);
                if expected < 10.0 {
                    rare_expected += expected;
                    rare_met += met as f64;
                } else {
                    sum += (met as f64 - expected).powi(2) / expected;
                    sets += 1.0;
                }
            }
            if rare_expected > 0.0 {
                sum += (rare_met - rare_expected).powi(2) / rare_expected;
                sets += 1.0;
            }
            // Its mean is the number of sets less one, its variance twice that; five standard deviations.
            let free: f64 = sets - 1.0;
            assert!(sum < free + 5.0 * (2.0 * free).sqrt(), "{width}: {sum} for {free}");
        }
    }
}
