//! Helpers for tests of the compact store: a hasher with a fixed seed, and the layout of a limiter's states.

use super::kinds::Kind;
use super::oracle::{Oracle, Spec};
use super::subjects::Subject;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher};
use tollgate::{
    Capacity, Clock, Compact, CompactAlgorithm, ManualClock, Overflow, QuotaError, RateLimiter, Timestamp,
};

/// The overflow policies.
pub const POLICIES: [Overflow; 3] = [Overflow::Spill, Overflow::Forget, Overflow::Inherit];

/// Returns the overflow policies that an algorithm supports.
pub fn policies(kind: Kind) -> &'static [Overflow] {
    if matches!(kind, Kind::Sliding | Kind::SlidingStrict) { &[Overflow::Forget] } else { &POLICIES }
}

/// A hasher of 64-bit quality that is the same in every run.
#[derive(Copy, Clone, Debug)]
pub struct Seeded(pub u64);

/// The hasher that [`Seeded`] builds.
pub struct Mixer(u64);

impl BuildHasher for Seeded {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer(mix(self.0))
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        mix(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ n);
    }
}

/// SplitMix64's finalizer (S. Vigna).
fn mix(seed: u64) -> u64 {
    let mut hash = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

/// A small generator of pseudo-random numbers.
#[derive(Copy, Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).expect("a number below the bound")
    }

    /// Returns small numbers more often than large ones: a number is about as likely as all numbers of twice its size
    /// together.
    pub fn skewed(&mut self, bound: u64) -> u64 {
        let bits = self.below(u64::from(bound.ilog2()) + 2);
        self.below(1 << bits).min(bound - 1)
    }
}

/// The layout of a compact limiter's states, read from a snapshot.
#[derive(Copy, Clone, Debug)]
pub enum Layout {
    Ticks(Ticks),
    Windows {
        /// The range in nanoseconds within which window indices are unambiguous.
        half_range: u128,
    },
}

/// The ticks of a limiter. A tick is `den / num` nanoseconds.
#[derive(Copy, Clone, Debug)]
pub struct Ticks {
    pub num: u128,
    pub den: u128,
    /// The largest debt, in ticks.
    pub horizon: u128,
}

impl Ticks {
    /// Returns the tick that contains a time.
    pub fn floor(&self, ns: u64) -> u128 {
        u128::from(ns) * self.num / self.den
    }

    /// Returns the latest time, not after `ns`, at which a tick begins at a whole nanosecond.
    pub fn whole(&self, ns: u64) -> u64 {
        u64::try_from(u128::from(ns) / self.den * self.den).expect("a time not after another")
    }

    /// Returns the nanoseconds from `now` to the first nanosecond of a tick, or zero if the tick has begun.
    pub fn until(&self, now: u64, tick: u128) -> u128 {
        (tick * self.den).div_ceil(self.num).saturating_sub(now.into())
    }

    /// Returns the duration of `ticks` in nanoseconds, rounded up.
    pub fn nanos(&self, ticks: u128) -> u128 {
        (ticks * self.den).div_ceil(self.num)
    }

    /// Returns the ticks of an emission interval, rounded up. The limiter's own interval needs no rounding.
    ///
    /// An interval that is no simple fraction of a nanosecond is first rounded up to 1/32 ns, or less finely if a
    /// burst takes years.
    pub fn interval(&self, spec: Spec) -> u128 {
        let (mut num, mut den) = spec.interval();
        if !spec.is_exact() {
            let parts = |den: u128| (u128::from(spec.period_ns) * den).div_ceil(spec.limit.into());
            den = (1..=32)
                .rev()
                .find(|&den| den == 1 || parts(den) * u128::from(spec.burst) <= 1 << 61)
                .unwrap();
            num = parts(den);
        }
        (num * self.num).div_ceil(den * self.den)
    }

    /// Returns the quota with its period in ticks.
    pub fn spec(&self, kind: Kind, spec: Spec) -> Spec {
        let event = Spec::new(1, spec.period_ns);
        let interval = self.interval(if kind == Kind::Spacing { event } else { spec });
        let interval = u64::try_from(interval).expect("an interval fits 40 bits");
        if kind == Kind::Spacing {
            Spec::new(1, interval)
        } else {
            Spec::new(1, interval).with_burst(spec.burst)
        }
    }

    /// Returns an oracle that counts in ticks. Ask it with the tick that contains a time.
    pub fn oracle(&self, kind: Kind, spec: Spec) -> Box<dyn Oracle> {
        kind.oracle(self.spec(kind, spec))
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Layout {
    pub fn read(snapshot: &[u8]) -> Self {
        let number = |place: usize| {
            let bytes = snapshot[12 + 8 * place..][..8].try_into().expect("eight bytes");
            u128::from(u64::from_le_bytes(bytes))
        };
        // The numbers of a snapshot: the kind of state, the limit, the time of a window or unit, the bits of a count
        // or the ticks of a unit, and the horizon.
        let counts = match number(0) {
            0 => 1,
            1 | 2 => 2,
            _ => {
                let (num, den) = (number(4) * number(3), number(2));
                let common = gcd(num, den);
                return Self::Ticks(Ticks { num: num / common, den: den / common, horizon: number(5) });
            }
        };
        Self::Windows { half_range: number(2) << (39 - counts * number(4)) }
    }

    /// Returns the longest time between any two times of a test for which all states stay unambiguous.
    pub fn reach(&self) -> u64 {
        let reach = match self {
            Self::Ticks(ticks) => ((1 << 38) - 4 * ticks.horizon) * ticks.den / ticks.num,
            Self::Windows { half_range } => half_range / 2 - half_range / 16,
        };
        u64::try_from(reach).unwrap_or(u64::MAX)
    }

    pub fn ticks(&self) -> Option<&Ticks> {
        match self {
            Self::Ticks(ticks) => Some(ticks),
            Self::Windows { .. } => None,
        }
    }

    /// Returns the latest time, not after `ns`, that is decided exactly.
    pub fn whole(&self, ns: u64) -> u64 {
        self.ticks().map_or(ns, |ticks| ticks.whole(ns))
    }

    /// Converts a wait in the unit of the states to nanoseconds.
    pub fn wait(&self, now: u64, wait: u128) -> u128 {
        match self {
            Self::Ticks(ticks) if wait > 0 => ticks.until(now, ticks.floor(now) + wait),
            _ => wait,
        }
    }

    /// Returns the length of a tick, rounded up, or 0 for states that count nanoseconds.
    pub fn tick_ns(&self) -> u128 {
        self.ticks().map_or(0, |ticks| ticks.nanos(1))
    }
}

/// Replaces the checksum at the end of a snapshot, so that a forged snapshot passes the checksum and its content is
/// read.
pub fn seal(snapshot: &mut Vec<u8>) {
    snapshot.truncate(snapshot.len().saturating_sub(8));
    let mut sum = 0xCBF2_9CE4_8422_2325_u64;
    for chunk in snapshot.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    }
    // This is `mix` without its first step.
    let sum = mix((sum ^ snapshot.len() as u64).wrapping_sub(0x9E37_79B9_7F4A_7C15));
    snapshot.extend_from_slice(&sum.to_le_bytes());
}

/// Builds a compact limiter.
pub fn build<A: CompactAlgorithm, C: Clock>(
    algorithm: A,
    overflow: Overflow,
    capacity: Capacity,
    clock: C,
) -> RateLimiter<Compact<A, Seeded>, C> {
    let builder = RateLimiter::builder(algorithm).clock(clock).hasher(Seeded(5));
    builder.capacity(capacity).overflow(overflow).compact().expect("an ordinary quota")
}

/// A limiter and the layout of its states.
pub type Held = (Box<dyn Subject>, Layout);

/// Builds a compact limiter with far more room than a few keys need, and reads its layout. Returns `None` if the
/// algorithm itself refuses the quota.
pub fn compact(kind: Kind, spec: Spec) -> Option<Result<Held, QuotaError>> {
    compact_of(kind, spec, Capacity::memory(1 << 16), 0)
}

/// Builds a compact limiter of the given capacity and overdraft, as [`compact`] does.
pub fn compact_of(
    kind: Kind,
    spec: Spec,
    capacity: Capacity,
    overdraft: u64,
) -> Option<Result<Held, QuotaError>> {
    fn boxed<A: CompactAlgorithm + 'static>(limiter: RateLimiter<Compact<A, Seeded>, ManualClock>) -> Held {
        let layout = Layout::read(&limiter.snapshot());
        (Box::new(limiter), layout)
    }
    with_compact!(kind, spec, algorithm => {
        let builder = RateLimiter::builder(algorithm).clock(ManualClock::new(Timestamp::ZERO)).hasher(Seeded(7));
        builder.capacity(capacity).overdraft(overdraft).compact().map(boxed)
    })
}

impl<A, H, C> Subject for RateLimiter<Compact<A, H>, C>
where
    A: CompactAlgorithm,
    H: BuildHasher + Send + Sync,
    C: Clock + Debug + Send + Sync,
{
    verbs!(key => &key);

    fn holds(&self, _key: u32) -> bool {
        true
    }
}
