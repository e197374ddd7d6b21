//! The stores of the limiters: the flags, and their meaning.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use tollgate::{Capacity, LimitKind, Overflow, StoreKind, stores::CapacityError};
use tollgate_report::error::Error;
use tollgate_report::human::size;

/// The least memory for one limit: a bucket of eight slots, and the same amount for its sketch. A sketch store takes 16
/// bytes less.
const MIN_BYTES: usize = 272;

/// The algorithms of the compact store.
const COMPACT_HOLDS: &str = "gcra, token-bucket, leaky-bucket, fixed-window and sliding-window";

/// The algorithms of the sketch store, and the reason.
const SKETCH_HOLDS: &str = "fixed-window and sliding-window";
const COUNTS_WINDOWS: &str = "the sketch store can only count units per window";

/// The store.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// Store for each client's state
    ///
    /// Keyed: exact, with every algorithm, as long as all active clients fit in memory (about 150 bytes each).
    ///
    /// Compact: the store of RateLimiter::new, and right for most servers. It uses only the memory that you give it,
    /// for any number of clients. It is almost exact as long as all clients with a debt fit (about 12 bytes each).
    /// "Evicted" clients still had a debt when another client took their slot. "Indebted" clients are new clients that
    /// started with a debt: their own earlier debt, or another client's.
    ///
    /// Sketch: for windows with more busy clients than fit in memory, and for floods of new clients. It takes 1 to 8
    /// bytes for each client with two or more requests in a window, and 3 bits for each other client. It keeps no state
    /// per client: clients share counters. No client gets more than the limit, and some clients are denied early, more
    /// often when the counters are fuller. The output shows three chances, each at the end of its worst window. "False
    /// positive": a new client is taken for an earlier client. "Overcounted": a new client is counted at least one unit
    /// too high. "Denied early": a new client is denied after less than half of its limit (one in a thousand is too
    /// many).
    ///
    /// To check whether the memory is enough for your traffic, a keyed store runs in parallel. It is charged with what
    /// the compact or sketch store admits, and decides every request: "wrongly denied" are the requests that it would
    /// have admitted, "wrongly admitted" those that it would have denied.
    #[arg(long, value_parser = one_of(&STORES), default_value_t = StoreKind::Keyed, help_heading = "Limiter")]
    pub store: StoreKind,

    /// Memory of the compact or sketch store: 64KiB, 4MiB, 1.5GiB [default: 4MiB]
    ///
    /// The required memory depends on the admitted requests, not on the number of clients. Compact: about 12 bytes for
    /// each client that has a debt at the same time. With gcra, each admitted request is a debt for the time of one
    /// unit (a second at 60/min); with windows, until the window ends. Sketch: 1 to 8 bytes for each client that comes
    /// twice in a window, 3 bits for each other client; twice that for sliding-window. Several limits share this memory
    /// evenly; each compared algorithm has all of it.
    #[arg(long, value_name = "SIZE", help_heading = "Limiter")]
    pub memory: Option<Memory>,

    /// Handling of a client's debt when another client needs its slot [default: spill; sliding-window: forget]
    ///
    /// For the compact store only, when its memory is full. sliding-window can only forget: it keeps two counts for each
    /// client, and neither of two such pairs always includes the other.
    #[arg(long, value_parser = one_of(&POLICIES), value_name = "POLICY", help_heading = "Limiter")]
    pub overflow: Option<Overflow>,
}

/// The stores of a replay: their names, and what the help says about them.
const STORES: [(&str, StoreKind, &str); 3] = [
    (
        "keyed",
        StoreKind::Keyed,
        "Each active client separately: exact, with as much memory as the clients need",
    ),
    (
        "compact",
        StoreKind::Compact,
        "A fingerprint of each client, in fixed memory; not for sliding-log and sub-window",
    ),
    (
        "sketch",
        StoreKind::Sketch,
        "Counters that clients share, in the smallest fixed memory; for fixed-window and sliding-window only",
    ),
];

/// The policies of a full compact store.
const POLICIES: [(&str, Overflow, &str); 3] = [
    (
        "spill",
        Overflow::Spill,
        "Keep its debt in a sketch, in half of the memory: no client gets more than the limit, some are denied early",
    ),
    ("forget", Overflow::Forget, "Drop its debt: no client is denied early, some get more than the limit"),
    (
        "inherit",
        Overflow::Inherit,
        "Give its debt to the new client: no client gets more than the limit, but a flood of new clients can lock out all",
    ),
];

/// Returns a parser of the names in a list.
fn one_of<T: Copy + Send + Sync + 'static>(
    list: &'static [(&'static str, T, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let names = list.iter().map(|(name, _, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).try_map(|text| {
        let found = list.iter().find(|(name, ..)| *name == text);
        found.map(|(_, value, _)| *value).ok_or("no such name")
    })
}

/// An amount of memory, in the library's syntax.
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
    /// Returns the least memory for one limit.
    pub const LEAST: Self = Self { bytes: MIN_BYTES };

    /// Reads a text or the default; both are in bytes.
    fn of(capacity: Capacity) -> Self {
        Self { bytes: capacity.bytes().unwrap_or_default() }
    }

    /// Returns the bytes.
    pub fn bytes(self) -> u64 {
        self.bytes as u64
    }

    /// Returns twice the amount.
    pub fn doubled(self) -> Self {
        Self { bytes: self.bytes.saturating_mul(2) }
    }

    /// Returns the share of `some` limits, if all limits together have this amount.
    pub fn part(self, limits: usize, all: usize) -> Self {
        Self { bytes: (self.bytes / all.max(1)).saturating_mul(limits) }
    }

    /// Returns the share of each limit.
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size(self.bytes))
    }
}

/// The chosen store, and its size.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Storage {
    /// The store.
    pub store: StoreKind,
    /// The memory of all limits together; the keyed store allocates what it needs.
    pub memory: Memory,
    /// The overflow policy, if it is not the algorithm's default.
    pub overflow: Option<Overflow>,
}

impl StoreArgs {
    /// Reads the flags, for this many limits.
    ///
    /// # Errors
    /// Returns an error if the flags contradict each other, or the memory is too small.
    pub fn storage(&self, limits: usize) -> Result<Storage, Error> {
        let storage =
            Storage { store: self.store, memory: self.memory.unwrap_or_default(), overflow: self.overflow };
        let (memory, least) = (storage.memory, MIN_BYTES * limits.max(1));
        let more = match (self.store, self.memory, self.overflow) {
            (StoreKind::Keyed | StoreKind::Direct, None, None) => return Ok(storage),
            (StoreKind::Keyed | StoreKind::Direct, Some(memory), _) => {
                return Err(Error::usage(format!(
                    "--memory {memory}: the keyed store takes as much memory as its active clients need; for a fixed size, \
                     use --store compact or --store sketch"
                )));
            }
            (StoreKind::Keyed | StoreKind::Direct, None, Some(overflow)) => {
                return Err(Error::usage(format!(
                    "--overflow {overflow}: the keyed store never overflows; remove the flag, or use --store compact"
                )));
            }
            (StoreKind::Sketch, _, Some(overflow)) => {
                return Err(Error::usage(format!(
                    "--overflow {overflow}: the sketch store has no slots, so it has no overflow policy; when it fills \
                     up, it denies some clients early; remove the flag, or use --store compact"
                )));
            }
            (StoreKind::Sketch, ..) => "1 to 8 for each client with two or more requests in one window",
            (StoreKind::Compact, ..) => "about 12 for each client that has a debt at the same time",
        };
        if memory.bytes >= least {
            return Ok(storage);
        }
        let each = if limits > 1 { format!(" ({MIN_BYTES} for each limit)") } else { String::new() };
        let name = storage.store;
        Err(Error::usage(format!(
            "--memory {memory}: the {name} store needs at least {least} bytes{each}, and {more}"
        )))
    }
}

impl Storage {
    /// Returns the overflow policy of the compact store, with this algorithm.
    pub fn overflow(&self, algorithm: LimitKind) -> Overflow {
        let forgets = matches!(algorithm, LimitKind::SlidingWindow { .. });
        self.overflow.unwrap_or(if forgets { Overflow::Forget } else { Overflow::Spill })
    }

    /// Returns the flags that select this store, with a leading space.
    pub fn flags(&self) -> String {
        if self.store == StoreKind::Keyed {
            return String::new();
        }
        let overflow = self.overflow.map_or(String::new(), |overflow| format!(" --overflow {overflow}"));
        format!(" --store {} --memory {}{overflow}", self.store, self.memory)
    }

    /// Returns the store for some of all limits. Each limit keeps the memory that it has when all are in force.
    pub fn part(self, limits: usize, all: usize) -> Self {
        Self { memory: self.memory.part(limits, all), ..self }
    }

    /// Returns the reason why this store cannot hold an algorithm, whatever the limit, and a way out.
    fn refuses(&self, algorithm: LimitKind) -> Option<(String, String)> {
        let is_window = matches!(algorithm, LimitKind::FixedWindow | LimitKind::SlidingWindow { .. });
        let (why, holds, stores) = match (self.store, algorithm) {
            (StoreKind::Sketch, _) if is_window => return None,
            (StoreKind::Sketch, kind) => {
                (COUNTS_WINDOWS, SKETCH_HOLDS, if kind.has_burst() { "compact or " } else { "" })
            }
            (StoreKind::Compact, LimitKind::SlidingWindow { .. }) => {
                let overflow = self.overflow.filter(|&overflow| overflow != Overflow::Forget)?;
                let why = format!(
                    "the compact store can only drop the debts of this algorithm, so --overflow {overflow} is not possible"
                );
                return Some((why, "use --overflow forget".to_owned()));
            }
            (StoreKind::Compact, LimitKind::SlidingLog) => {
                ("the compact store cannot hold a log of times", COMPACT_HOLDS, "")
            }
            (StoreKind::Compact, LimitKind::SubWindow { .. }) => {
                ("the compact store cannot hold a count for each part of a window", COMPACT_HOLDS, "")
            }
            (StoreKind::Keyed | StoreKind::Compact | StoreKind::Direct, _) => return None,
        };
        Some((why.to_owned(), format!("it supports {holds}; use one of them, or --store {stores}keyed")))
    }

    /// Returns the algorithms that this store can hold, and the reasons why others are left out.
    ///
    /// # Errors
    /// Returns an error if the user named one of the others.
    pub fn holds(
        &self,
        algorithms: &[LimitKind],
        by_name: bool,
    ) -> Result<(Vec<LimitKind>, Vec<String>), Error> {
        let mut held = Vec::new();
        let mut left_out: Vec<(String, String)> = Vec::new();
        for &algorithm in algorithms {
            let name = algorithm.name();
            match (self.refuses(algorithm), left_out.last_mut()) {
                (None, _) => held.push(algorithm),
                (Some((why, instead)), _) if by_name => {
                    return Err(Error::usage(format!("{name}: {why}; {instead}")));
                }
                // The reason is the same as for the previous algorithm.
                (Some((why, _)), Some((names, same))) if *same == why => *names += &format!(", {name}"),
                (Some((why, _)), _) => left_out.push((name.to_owned(), why)),
            }
        }
        Ok((held, left_out.iter().map(|(names, why)| format!("{names} left out: {why}")).collect()))
    }

    /// Returns the algorithm for which to suggest a limit, if the user named none.
    pub fn default_algorithm(&self) -> LimitKind {
        match self.store {
            StoreKind::Keyed | StoreKind::Compact | StoreKind::Direct => LimitKind::Gcra,
            StoreKind::Sketch => LimitKind::FixedWindow,
        }
    }

    /// Returns a line about the store; nothing about the keyed store.
    pub fn line(&self, limits: usize) -> String {
        if self.store == StoreKind::Keyed {
            return String::new();
        }
        let each = if limits > 1 { format!(", shared by {limits} limits") } else { String::new() };
        format!("Store    {}, {} in all{each}\n", self.store, self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_size_round_trips() {
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
}
