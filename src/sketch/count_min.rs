//! Counts of any number of keys: a count-min sketch with conservative update.
//!
//! ```text
//! row 0  | . . 5 . . . |     a key has a counter in each row, chosen by a hash of the row's own;
//! row 1  | 9 . . . . . |     others may count there too, so each is at least the key's count,
//! row 2  | . . . . 5 . |     and the least of them, here 5, is the estimate
//! ```
//! *Conservative update.* A count only has to raise what would be too low: the counters below the new estimate.
//!
//! *Raise, then commit.* All other counters are raised to the new estimate first; then the least one is exchanged for it,
//! from exactly the value that the estimate was; if it changed, all begins again. Why no count is ever lost: take two counts
//! A and B of a key (or of two that share all counters), which commit from estimates `a` and `b`.
//!
//! - Both in one counter: counters only grow, so the later one commits from what the earlier one left, or more.
//! - In two: A raised B's counter before it committed, and B raised A's. Had both raised after the other's
//!   commit, each would have seen the other's commit before its own, which is a circle (all orderings are Acquire and
//!   Release). So one of them, say A, raised B's counter before B committed there. Then B committed from what A had
//!   raised it to, or more.
//!
//! Either way one commits from an estimate that holds the other's count. So the counts of a key are in a row, each from an
//! estimate that holds all before it, and after each one all counters of the key are at what it left, or above. (Exchanging
//! the least counter first, or raising all of them by a maximum, loses counts: see the models.) A count that has to
//! begin again leaves the other counters raised, as if another key had counted there.
//!
//! *Rows.* Each row takes its place from a full mix of the hash and the row's number. Double hashing (Kirsch and
//! Mitzenmacher) spares the mixes, but two keys that meet in two rows then meet in all of them: once in width² pairs,
//! instead of once in width^depth, which in narrow sketches is often. A mix takes a nanosecond, and those of all rows run side
//! by side.

#[cfg(all(test, tollgate_loom))]
mod models;

use std::fmt;
use std::hash::{BuildHasher, Hash};

use super::error::Reason;
use super::{SketchError, mix, scale};
use crate::memory::Array;
use crate::sync::AtomicU32;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

const MAX_DEPTH: usize = 8;
const COUNTER: usize = size_of::<AtomicU32>();
/// SplitMix64's increment, the golden ratio: rows are as far apart as successive states of that generator.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Counts for any number of keys, in constant memory: estimates that are never too low.
///
/// A count-min sketch of `depth` rows of `width` counters of 32 bits, with conservative update. The estimate of a key is at
/// least what was counted for it. It is higher if others share all of the key's counters: with `N` counted in
/// all, by more than `e × N / width` with probability `e^-depth` at most (e = 2.718…), and with conservative
/// update and real traffic by far less.
///
/// Counters stop at [`CountMin::MAX`]: an estimate of it means that much or more. They do not age; to count by
/// the minute, [`clear`](Self::clear) it every minute.
///
/// # Consistency
/// All calls take `&self`, are lock-free and can be made from any number of threads. No count is ever lost. An
/// estimate holds every count that ended before it began, and perhaps some that run beside it. Each
/// [`add`](Self::add) to a key returns an estimate that holds its own count and those of all adds to the key that
/// returned less; so of adds of 1, at most `L` return `L` or less, however many threads there are.
///
/// # Keys that clients choose
/// The default hasher has a secret, so clients cannot choose keys that share counters but by trying them out. Estimates are as
/// good as the hash: two keys with the same 64 bits are one key.
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

/// The least of a key's counters.
struct Least {
    count: u32,
    row: usize,
}

/// Runs a method that is generic in the depth: loops of a known length have no branches left, which is 1.3 times as fast.
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

    /// `depth` rows (1 to 8) of `width` counters each (any number).
    ///
    /// Four bytes a counter, which are taken from the system as they are first written.
    ///
    /// # Errors
    /// If the width is 0, the depth is not 1 to 8, or there is no memory for so many counters.
    pub fn try_new(width: usize, depth: usize) -> Result<Self, SketchError> {
        if width == 0 {
            return Err(Reason::ZeroWidth.into());
        }
        let depth = checked_depth(depth)?;
        let bytes = width as u128 * depth as u128 * COUNTER as u128;
        let counters = width.checked_mul(depth).and_then(Array::zeroed);
        let counters = counters.ok_or(Reason::Memory { bytes })?;
        Ok(Self { counters, width, depth, hasher: ahash::RandomState::new() })
    }

    /// A sketch whose estimate of a key is too high by more than `epsilon` of all that was counted, with probability `delta`
    /// at most: `⌈e / epsilon⌉` counters in each of `⌈ln(1 / delta)⌉` rows.
    ///
    /// That holds for plain count-min too, and any traffic; with conservative update the error is mostly several times less.
    ///
    /// # Errors
    /// If either is not above 0 and below 1 (or not a number), if `delta` is below e⁻⁸ = 0.000335, which would take
    /// more than eight rows, or if there is no memory for so many counters.
    pub fn for_error(epsilon: f64, delta: f64) -> Result<Self, SketchError> {
        let epsilon = share("epsilon", epsilon)?;
        let delta = share("delta", delta)?;
        let depth = rows(delta);
        if depth > MAX_DEPTH {
            // As many as make eight rows fail so rarely, by Markov's inequality in each.
            let width = (widening(delta) / epsilon).ceil();
            return Err(Reason::Delta { got: delta, width }.into());
        }
        Self::try_new(whole(std::f64::consts::E / epsilon), depth)
    }

    /// As many counters as fit into `bytes`, in `depth` rows (1 to 8).
    ///
    /// # Errors
    /// If the depth is not 1 to 8, if `bytes` is less than 4 a row, or if there is no memory for so many.
    pub fn for_memory(bytes: usize, depth: usize) -> Result<Self, SketchError> {
        let depth = checked_depth(depth)?;
        let width = bytes / COUNTER / depth;
        if width == 0 {
            return Err(Reason::TooFewBytes { got: bytes, least: depth * COUNTER }.into());
        }
        Self::try_new(width, depth)
    }

    /// The width and the depth for limiting by estimates: where all keys together count `units` in a window, and each is
    /// refused above `limit`, a key at half its limit is refused wrongly with probability `wrong_denials` at most.
    ///
    /// Such a key is refused if in each row the others put more than what is left of the limit into its counter. With `ρ` the
    /// used share of the limit, here ½, they put `units / width` there on average, and so more than `(1 − ρ) × limit`
    /// with probability `units / (width × (1 − ρ) × limit)` at most (Markov's inequality). With
    ///
    /// ```text
    /// width = e × units / ((1 − ρ) × limit)        depth = ⌈ln(1 / wrong_denials)⌉
    /// ```
    /// that is 1/e in a row, and `wrong_denials` in all of them. Where that is more than eight rows it is eight, and
    /// the width is `wrong_denials^(-1/8)` in place of e times as much.
    ///
    /// # Errors
    /// If the limit is 0, or `wrong_denials` is not above 0 and below 1.
    ///
    /// # Examples
    /// ```
    /// use tollgate::sketch::CountMin;
    ///
    /// // 10 M requests a minute, 1,000 for each client.
    /// let (width, depth) = CountMin::size_for_limit(10_000_000, 1_000, 0.01)?;
    /// assert_eq!((width, depth), (54_366, 5));
    /// let counts = CountMin::try_new(width, depth)?;
    /// assert_eq!(counts.state_bytes(), 4 * 54_366 * 5);
    /// # Ok::<(), tollgate::sketch::SketchError>(())
    /// ```
    #[expect(clippy::cast_precision_loss, reason = "a bound, rounded in the sixteenth digit")]
    pub fn size_for_limit(units: u64, limit: u64, wrong_denials: f64) -> Result<(usize, usize), SketchError> {
        if limit == 0 {
            return Err(Reason::ZeroLimit.into());
        }
        let wrong_denials = share("the share of wrong denials", wrong_denials)?;
        let depth = rows(wrong_denials);
        let factor = if depth > MAX_DEPTH { widening(wrong_denials) } else { std::f64::consts::E };
        Ok((whole(factor * units as f64 * 2.0 / limit as f64), depth.min(MAX_DEPTH)))
    }
}

impl<H> CountMin<H> {
    /// The same sketch with another hasher. Default: ahash with random keys.
    ///
    /// For a sketch on which nothing was counted yet. What was counted by the old hasher stays, as counts of other keys.
    ///
    /// A hasher needs 64 bits of good quality. One without a secret lets clients choose keys that share counters.
    #[must_use]
    pub fn with_hasher<I>(self, hasher: I) -> CountMin<I> {
        let Self { counters, width, depth, .. } = self;
        CountMin { counters, width, depth, hasher }
    }

    /// Counts `n` for the key with this hash, and returns its new estimate, as [`CountMin::add`].
    ///
    /// `hash` must be of 64-bit quality: it is all that is known of the key. By [`CountMin::hash`] it is that of the key.
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
        std::array::from_fn(|row| {
            let own = mix(hash.wrapping_add((row as u64 + 1).wrapping_mul(GOLDEN)));
            row * self.width + scale(own, self.width)
        })
    }

    #[inline]
    fn read<const DEPTH: usize>(&self, places: [usize; DEPTH]) -> [u32; DEPTH] {
        // Ordering: Acquire; pairs with the Release of raises and commits.
        places.map(|place| self.counters[place].load(Acquire))
    }

    #[inline]
    fn estimate_rows<const DEPTH: usize>(&self, hash: u64) -> u32 {
        least(&self.read::<DEPTH>(self.places(hash))).count
    }

    #[inline]
    fn add_rows<const DEPTH: usize>(&self, hash: u64, n: u32) -> u32 {
        let places = self.places::<DEPTH>(hash);
        loop {
            let seen = self.read(places);
            let Least { count, row } = least(&seen);
            let next = count.saturating_add(n);
            // Nothing to count, or no more can be.
            if next == count {
                return count;
            }
            for other in 0..DEPTH {
                if other != row {
                    self.raise(places[other], seen[other], next);
                }
            }
            // Ordering: AcqRel: the raises come before it for whoever sees it. Relaxed on failure: all is read again.
            if self.counters[places[row]].compare_exchange(count, next, AcqRel, Relaxed).is_ok() {
                return next;
            }
        }
    }

    /// Raises a counter, last seen at `seen`, to `count` at least.
    #[inline]
    fn raise(&self, place: usize, mut seen: u32, count: u32) {
        while seen < count {
            // Ordering: AcqRel, and Acquire on failure: whether it was raised here or found high enough, the commit that comes
            // next is after that of the count which is found. Release: who sees this sees what it is based on.
            match self.counters[place].compare_exchange(seen, count, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Forgets all counts.
    ///
    /// Adds that run at the same time may be forgotten or kept, or be counted in the new counts for a part; those that begin
    /// after it returned are counted in full.
    ///
    /// # Complexity
    /// O(width × depth): nobody waits for it, but the caller does.
    pub fn clear(&self) {
        for counter in self.counters.iter() {
            // A look first, so that untouched memory stays so.
            if counter.load(Relaxed) != 0 {
                // Ordering: Release, as any other write of a counter.
                counter.store(0, Release);
            }
        }
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
    /// Counts `n` for a key, and returns its new estimate: at least all that was counted for it, this included.
    ///
    /// An `n` of 0 counts nothing. Counters stop at [`CountMin::MAX`].
    ///
    /// # Complexity
    /// O(depth): a load and at most an exchange in each row. Lock-free: begins again only if another thread's write took
    /// effect.
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
fn least<const DEPTH: usize>(counts: &[u32; DEPTH]) -> Least {
    let mut least = Least { count: counts[0], row: 0 };
    for (row, &count) in counts.iter().enumerate().skip(1) {
        if count < least.count {
            least = Least { count, row };
        }
    }
    least
}

fn checked_depth(depth: usize) -> Result<usize, SketchError> {
    if (1..=MAX_DEPTH).contains(&depth) { Ok(depth) } else { Err(Reason::Depth { got: depth }.into()) }
}

/// A share that is neither nothing nor all.
pub(super) fn share(what: &'static str, share: f64) -> Result<f64, SketchError> {
    // No comparison holds for what is not a number.
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err(Reason::Share { what, got: share }.into()) }
}

/// The rows of which each may fail once in e times, for all to fail so rarely.
fn rows(failures: f64) -> usize {
    whole((1.0 / failures).ln())
}

/// By how much wider than its mean error allows a row must be, for eight rows to fail so rarely.
fn widening(failures: f64) -> f64 {
    failures.powf(-1.0 / MAX_DEPTH as f64)
}

/// Rounds up to a number that is at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates; what is so large is refused"
)]
fn whole(number: f64) -> usize {
    (number.ceil() as usize).max(1)
}
