//! Where the limiters keep their states: the flags, and what they come to.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use super::algorithms::Kind;
use super::error::Error;
use crate::{Capacity, CapacityError};

/// The least memory for one limit: a bucket of eight slots, and as much for its sketch. A sketch store
/// takes 16 bytes less.
pub const LEAST_BYTES: usize = 272;

/// What the compact store holds.
pub const COMPACT_HOLDS: &str = "gcra, token-bucket, leaky-bucket, fixed-window and sliding-window";

/// What the sketch store holds.
pub const SKETCH_HOLDS: &str = "fixed-window and sliding-window";

/// Where states are kept.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// Where each client's state is kept
    ///
    /// Keyed: exact, with every algorithm, while there is room for all active clients (some 150 bytes each).
    ///
    /// Compact: what RateLimiter::new makes, and right for most servers. It stays in the memory that you give it, however
    /// many clients come, and is as good as exact while those that owe something fit (some 12 bytes each). "Evicted" are
    /// clients that still owed when another took their slot, and "indebted" newcomers that found a debt, their own from
    /// before or another's.
    ///
    /// Sketch: for windows with more busy clients than there is memory for (1 to 8 bytes for each that comes twice in a
    /// window, 3 bits for the others), and for floods of ever new ones. Nothing is kept of any client: it is decided by counters that it shares with others.
    /// So nobody gets more than the limit, and some are denied early, the more often the fuller the counters are. Of that
    /// it tells three chances, each at the end of the window in which it was worst: that a newcomer is "mistaken" for a
    /// client that came before, that one is "overcounted" by a unit at least, and that one is "denied early", having used
    /// less than half of its limit (one in a thousand is too many).
    ///
    /// To see whether the memory is enough for your traffic, a keyed store is charged with what the compact or sketch one
    /// admits, and asked about every request: "wrongly denied" are those that it would have admitted, "wrongly admitted"
    /// those that it would have denied.
    #[arg(long, value_enum, default_value_t = Store::Keyed, help_heading = "Limiter")]
    pub store: Store,

    /// Memory of the compact or sketch store: 64KiB, 4MiB, 1.5GiB [default: 4MiB]
    ///
    /// What is needed follows the requests admitted, not the number of clients. Compact: some 12 bytes for each client that
    /// owes something at one time. With gcra, each admitted request is owed for the time of one unit (a second at 60/min);
    /// with windows, until the window is over. Sketch: 1 to 8 bytes for each client that comes twice in a window, 3 bits for
    /// the others; twice that for sliding-window. If there are several limits, they share this memory evenly; each
    /// algorithm that is compared has all of it.
    #[arg(long, value_name = "SIZE", help_heading = "Limiter")]
    pub memory: Option<Memory>,

    /// What happens to a client that owes when another needs its slot [default: spill; sliding-window: forget]
    ///
    /// Of the compact store only, and only when its memory is short. sliding-window can only forget: of two pairs of counts
    /// neither covers the other.
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Limiter")]
    pub overflow: Option<Overflow>,
}

/// Which store.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Store {
    /// Every active client apart: exact, and as much memory as that takes
    Keyed,
    /// A fingerprint of each client, in fixed memory; not for sliding-log and sub-window
    Compact,
    /// Counters that clients share, in fixed memory, the least of all; for fixed-window and sliding-window only
    Sketch,
}

/// What becomes of a client that still owes when its slot is needed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Overflow {
    /// Keep its debt in a sketch, in half of the memory: nobody gets more than the limit, some are denied early
    Spill,
    /// Forget its debt: nobody is denied early, some get more than the limit
    Forget,
    /// Let the newcomer take it over: nobody gets more than the limit, but a flood of new clients can lock out all
    Inherit,
}

impl Overflow {
    /// The name on the command line and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spill => "spill",
            Self::Forget => "forget",
            Self::Inherit => "inherit",
        }
    }
}

impl From<Overflow> for crate::Overflow {
    fn from(overflow: Overflow) -> Self {
        match overflow {
            Overflow::Spill => Self::Spill,
            Overflow::Forget => Self::Forget,
            Overflow::Inherit => Self::Inherit,
        }
    }
}

/// An amount of memory, as the library reads it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Memory {
    bytes: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self::of(Capacity::default())
    }
}

impl Memory {
    /// Of a text or the default, which are both in bytes.
    fn of(capacity: Capacity) -> Self {
        Self { bytes: capacity.bytes().unwrap_or_default() }
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.bytes as u64
    }

    /// Twice as much.
    #[must_use]
    pub fn doubled(self) -> Self {
        Self { bytes: self.bytes.saturating_mul(2) }
    }

    /// As much as some of all limits have of it.
    #[must_use]
    pub fn part(self, limits: usize, all: usize) -> Self {
        Self { bytes: (self.bytes / all.max(1)).saturating_mul(limits) }
    }

    /// Each limit's part.
    #[must_use]
    pub fn share(self, limits: usize) -> Capacity {
        Capacity::memory(self.bytes / limits.max(1))
    }
}

impl FromStr for Memory {
    type Err = CapacityError;

    fn from_str(text: &str) -> Result<Self, CapacityError> {
        text.parse().map(Self::of)
    }
}

impl fmt::Display for Memory {
    /// As the flag takes it, in the largest unit that leaves no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            bytes if bytes.is_multiple_of(1 << 30) => write!(f, "{}GiB", bytes >> 30),
            bytes if bytes.is_multiple_of(1 << 20) => write!(f, "{}MiB", bytes >> 20),
            bytes if bytes.is_multiple_of(1 << 10) => write!(f, "{}KiB", bytes >> 10),
            bytes => write!(f, "{bytes}B"),
        }
    }
}

/// Which store, and how large.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Storage {
    /// The keyed one.
    Keyed,
    /// The compact one.
    Compact(Compact),
    /// The sketch.
    Sketch(Sketch),
}

/// How the compact store is set up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Compact {
    /// Of all limits together.
    pub memory: Memory,
    /// If not the algorithm's own.
    pub overflow: Option<Overflow>,
}

/// How the sketch store is set up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sketch {
    /// Of all limits together.
    pub memory: Memory,
}

impl Compact {
    /// What is done when a bucket is full, with this algorithm.
    #[must_use]
    pub fn overflow(&self, kind: Kind) -> Overflow {
        self.overflow.unwrap_or(if kind == Kind::SlidingWindow { Overflow::Forget } else { Overflow::Spill })
    }
}

impl StoreArgs {
    /// What the flags say, for this many limits.
    ///
    /// # Errors
    /// If they contradict each other, or the memory is too little.
    pub fn storage(&self, limits: usize) -> Result<Storage, Error> {
        let memory = self.memory.unwrap_or_default();
        let storage = match (self.store, self.memory, self.overflow) {
            (Store::Keyed, None, None) => return Ok(Storage::Keyed),
            (Store::Keyed, Some(memory), _) => {
                return Err(Error::usage(format!(
                    "--memory {memory}: the keyed store takes as much memory as its active clients need; for one of \
                     fixed size add --store compact or --store sketch"
                )));
            }
            (Store::Keyed, None, Some(overflow)) => {
                return Err(Error::usage(format!(
                    "--overflow {}: the keyed store never overflows; for one of fixed size add --store compact",
                    overflow.as_str()
                )));
            }
            (Store::Sketch, _, Some(overflow)) => {
                return Err(Error::usage(format!(
                    "--overflow {}: the sketch store has no slots that could run out; when it fills up, clients are \
                     denied early for what others used, and that is all it can do; leave the flag out, or use \
                     --store compact",
                    overflow.as_str()
                )));
            }
            (Store::Compact, _, overflow) => Storage::Compact(Compact { memory, overflow }),
            (Store::Sketch, _, None) => Storage::Sketch(Sketch { memory }),
        };
        let least = LEAST_BYTES * limits.max(1);
        if memory.bytes < least {
            let each = if limits > 1 { format!(" ({LEAST_BYTES} for each limit)") } else { String::new() };
            let name = storage.as_str();
            let more = match self.store {
                Store::Sketch => "1 to 8 for each client that comes twice in one window",
                _ => "some 12 for each client that owes at the same time",
            };
            return Err(Error::usage(format!(
                "--memory {memory}: the {name} store needs at least {least} bytes{each}, and {more}"
            )));
        }
        Ok(storage)
    }
}

impl Storage {
    /// The name in JSON.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Keyed => "keyed",
            Self::Compact(_) => "compact",
            Self::Sketch(_) => "sketch",
        }
    }

    /// The flags that choose this store, beginning with a space.
    #[must_use]
    pub fn flags(&self) -> String {
        match self {
            Self::Keyed => String::new(),
            Self::Compact(Compact { memory, overflow }) => {
                let overflow =
                    overflow.map_or(String::new(), |overflow| format!(" --overflow {}", overflow.as_str()));
                format!(" --store compact --memory {memory}{overflow}")
            }
            Self::Sketch(Sketch { memory }) => format!(" --store sketch --memory {memory}"),
        }
    }

    /// The store for some of all limits, with as much memory for each as it has beside the others.
    #[must_use]
    pub fn part(self, limits: usize, all: usize) -> Self {
        match self {
            Self::Keyed => self,
            Self::Compact(setup) => {
                Self::Compact(Compact { memory: setup.memory.part(limits, all), ..setup })
            }
            Self::Sketch(setup) => Self::Sketch(Sketch { memory: setup.memory.part(limits, all) }),
        }
    }

    /// Why an algorithm cannot be kept here, whatever the limit.
    #[must_use]
    pub fn refuses(&self, kind: Kind) -> Option<String> {
        let compact = match self {
            Self::Keyed => return None,
            Self::Compact(compact) => compact,
            Self::Sketch(_) => {
                let counts = matches!(kind, Kind::FixedWindow | Kind::SlidingWindow);
                return (!counts).then(|| "the sketch store can only count in whole windows".to_owned());
            }
        };
        match kind {
            Kind::SlidingLog => Some("the compact store cannot hold a log of times".to_owned()),
            Kind::SubWindow => Some("the compact store cannot hold a count for each part of a window".to_owned()),
            Kind::SlidingWindow => compact.overflow.filter(|&overflow| overflow != Overflow::Forget).map(|overflow| {
                format!("in the compact store its two counts can only be forgotten, so --overflow {} is not for it", overflow.as_str())
            }),
            Kind::Gcra | Kind::TokenBucket | Kind::LeakyBucket | Kind::FixedWindow => None,
        }
    }

    /// The kinds that can be kept here, and why others are left out.
    ///
    /// # Errors
    /// If one of the others was asked for by name.
    pub fn holds(&self, kinds: &[Kind], by_name: bool) -> Result<(Vec<Kind>, Vec<String>), Error> {
        let mut held = Vec::new();
        let mut left_out: Vec<(Vec<&str>, String)> = Vec::new();
        for &kind in kinds {
            match (self.refuses(kind), left_out.last_mut()) {
                (None, _) => held.push(kind),
                (Some(why), _) if by_name => {
                    let instead = self.instead(kind);
                    return Err(Error::usage(format!("{}: {why}; {instead}", kind.as_str())));
                }
                // For the same reason as the one before.
                (Some(why), Some((names, same))) if *same == why => names.push(kind.as_str()),
                (Some(why), _) => left_out.push((vec![kind.as_str()], why)),
            }
        }
        let notes = left_out.iter().map(|(names, why)| format!("{} left out: {why}", names.join(", ")));
        Ok((held, notes.collect()))
    }

    /// What to do about an algorithm that cannot be kept here.
    fn instead(&self, kind: Kind) -> String {
        match (self, kind) {
            (Self::Compact(_), Kind::SlidingWindow) => "use --overflow forget".to_owned(),
            (Self::Sketch(_), Kind::Gcra | Kind::TokenBucket | Kind::LeakyBucket) => {
                format!("it holds {SKETCH_HOLDS}; use one of them, or --store compact or keyed")
            }
            (Self::Sketch(_), _) => format!("it holds {SKETCH_HOLDS}; use one of them, or --store keyed"),
            _ => format!("it holds {COMPACT_HOLDS}; use one of them, or --store keyed"),
        }
    }

    /// The algorithm to suggest a limit for, if none was asked for.
    #[must_use]
    pub fn favourite(&self) -> Kind {
        match self {
            Self::Keyed | Self::Compact(_) => Kind::Gcra,
            Self::Sketch(_) => Kind::FixedWindow,
        }
    }

    /// A line about the store; nothing about the keyed one.
    #[must_use]
    pub fn line(&self, limits: usize) -> String {
        let memory = match self {
            Self::Keyed => return String::new(),
            Self::Compact(Compact { memory, .. }) | Self::Sketch(Sketch { memory }) => memory,
        };
        let each = if limits > 1 { format!(", shared by {limits} limits") } else { String::new() };
        format!("Store    {}, {memory} in all{each}\n", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_as_it_is_read() {
        let texts = [
            ("64KiB", "64KiB"),
            ("4m", "4MiB"),
            ("2048MiB", "2GiB"),
            ("1.5GiB", "1536MiB"),
            ("64kB", "64000B"),
            ("272", "272B"),
        ];
        for (text, written) in texts {
            let memory: Memory = text.parse().unwrap();
            assert_eq!(memory.to_string(), written);
            assert_eq!(memory.to_string().parse(), Ok(memory));
        }
        assert_eq!(Memory::default().to_string(), "4MiB");
    }

    #[test]
    fn limits_share_the_memory() {
        let memory: Memory = "4MiB".parse().unwrap();
        assert_eq!(memory.share(1), Capacity::memory(4 << 20));
        assert_eq!(memory.share(3), Capacity::memory((4 << 20) / 3));
        for limits in 1..=3 {
            assert_eq!(memory.part(limits, 3).share(limits), memory.share(3));
        }
    }
}
