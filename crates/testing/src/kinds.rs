//! Names every algorithm, and builds its oracle.

use super::oracle::{
    Aligned, Bucket, Fixed, Gcra, Interval, Log, Meter, Oracle, Queue, Sliding, Spacing, Spec, Sub,
};
/// An algorithm and its options.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Gcra,
    Greedy,
    Meter,
    Queue,
    Interval,
    Aligned(u64),
    Adaptive(u64),
    Fixed,
    FirstUse,
    Sliding,
    SlidingStrict,
    Sub(u32),
    SubStrict(u32),
    Log,
    /// Admissions at least one period apart.
    Spacing,
}

/// All algorithms, with typical options.
pub const ALL: [Kind; 17] = [
    Kind::Gcra,
    Kind::Greedy,
    Kind::Meter,
    Kind::Queue,
    Kind::Interval,
    Kind::Aligned(17),
    Kind::Adaptive(17),
    Kind::Fixed,
    Kind::FirstUse,
    Kind::Sliding,
    Kind::SlidingStrict,
    Kind::Sub(1),
    Kind::Sub(6),
    Kind::SubStrict(6),
    Kind::SubStrict(60),
    Kind::Log,
    Kind::Spacing,
];

impl Kind {
    /// Returns whether this is one of the four algorithms with the same limit.
    pub fn is_bucket_family(self) -> bool {
        matches!(self, Self::Gcra | Self::Greedy | Self::Meter | Self::Queue)
    }

    pub fn oracle(self, spec: Spec) -> Box<dyn Oracle> {
        match self {
            Self::Gcra => Box::new(Gcra::new(spec)),
            Self::Greedy => Box::new(Bucket::new(spec)),
            Self::Meter => Box::new(Meter::new(spec)),
            Self::Queue => Box::new(Queue::new(spec)),
            Self::Interval => Box::new(Interval::new(spec)),
            Self::Aligned(origin) => Box::new(Aligned::new(spec, origin)),
            Self::Adaptive(origin) => Box::new(Aligned::adaptive(spec, origin)),
            Self::Fixed => Box::new(Fixed::new(spec)),
            Self::FirstUse => Box::new(Fixed::from_first_use(spec)),
            Self::Sliding => Box::new(Sliding::new(spec)),
            Self::SlidingStrict => Box::new(Sliding::strict(spec)),
            Self::Sub(parts) => Box::new(Sub::new(spec, parts)),
            Self::SubStrict(parts) => Box::new(Sub::strict(spec, parts)),
            Self::Log => Box::new(Log::new(spec)),
            Self::Spacing => Box::new(Spacing::new(spec.period_ns)),
        }
    }
}
