//! All algorithms: their kinds, and for each kind its oracle, its algorithm, and what can hold it.

use std::time::Duration;

use tollgate::Quota;

use super::oracle::{
    Aligned, Bucket, Fixed, Gcra, Interval, Log, Meter, Oracle, Queue, Sliding, Spacing, Spec, Sub,
};

/// The list of all algorithms, for the macro [`use_kinds`]. A line has:
///
/// - the name of its [`Kind`], with its option if it has one;
/// - its kinds in [`ALL`], with typical options;
/// - what can hold it: a `compact` store, a `sketch`, and `leases`;
/// - its oracle for a [`Spec`], and its algorithm for a quota, which is `None` if it refuses the quota.
#[macro_export]
macro_rules! kinds {
    ($($what:tt)+) => {
        $crate::use_kinds! { $($what)+;
            Gcra, [Gcra], [compact leases],
                spec => Gcra::new(spec), quota => Some(tollgate::Gcra::new(quota));
            Greedy, [Greedy], [compact leases],
                spec => Bucket::new(spec), quota => Some(tollgate::TokenBucket::new(quota));
            Meter, [Meter], [compact leases],
                spec => Meter::new(spec), quota => Some(tollgate::LeakyBucketMeter::new(quota));
            Queue, [Queue], [compact],
                spec => Queue::new(spec), quota => Some(tollgate::LeakyBucketQueue::new(quota));
            Interval, [Interval], [leases],
                spec => Interval::new(spec), quota => tollgate::TokenBucket::try_interval(quota).ok();
            Aligned(origin: u64), [Aligned(17)], [],
                spec => Aligned::new(spec, origin),
                quota => tollgate::TokenBucket::try_aligned(quota, $crate::at(origin)).ok();
            Adaptive(origin: u64), [Adaptive(17)], [],
                spec => Aligned::adaptive(spec, origin),
                quota => tollgate::TokenBucket::try_aligned_adaptive(quota, $crate::at(origin)).ok();
            Fixed, [Fixed], [compact sketch leases],
                spec => Fixed::new(spec), quota => tollgate::FixedWindow::try_new(quota).ok();
            FirstUse, [FirstUse], [leases],
                spec => Fixed::from_first_use(spec), quota => tollgate::FixedWindow::try_from_first_use(quota).ok();
            Sliding, [Sliding], [compact sketch leases],
                spec => Sliding::new(spec), quota => tollgate::SlidingWindow::try_new(quota).ok();
            SlidingStrict, [SlidingStrict], [compact sketch],
                spec => Sliding::strict(spec),
                quota => tollgate::SlidingWindow::try_new(quota).ok().map(tollgate::SlidingWindow::strict);
            Sub(parts: u32), [Sub(1), Sub(6)], [],
                spec => Sub::new(spec, parts), quota => tollgate::SubWindow::try_new(quota, parts).ok();
            SubStrict(parts: u32), [SubStrict(6), SubStrict(60)], [leases],
                spec => Sub::strict(spec, parts),
                quota => tollgate::SubWindow::try_new(quota, parts).ok().map(tollgate::SubWindow::strict);
            Log, [Log], [leases],
                spec => Log::new(spec), quota => tollgate::SlidingLog::try_new(quota).ok();
            // Admissions at least one period apart.
            Spacing, [Spacing], [compact],
                spec => Spacing::new(spec.period_ns), quota => Some(tollgate::MinimumSpacing::new(quota.period()));
        }
    };
}

/// Uses the list of [`kinds`]. `define` defines [`Kind`] and its lists; `with` is what [`with_algorithm`] and the like do.
#[macro_export]
macro_rules! use_kinds {
    (define; $($name:ident $(($option:ident: $type:ty))?, [$($of:ident $(($value:expr))?),+], $holders:tt,
        $spec:ident => $oracle:expr, $quota:ident => $algorithm:expr;)+) => {
        /// An algorithm and its options.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($name $(($type))?,)+
        }

        /// All kinds, and whether any store, a compact store, a sketch and leases can hold each.
        const HELD: &[(Kind, [bool; 4])] = &[$($((
            Kind::$of $(($value))?,
            [
                $crate::if_held!(any $holders true, false),
                $crate::if_held!(compact $holders true, false),
                $crate::if_held!(sketch $holders true, false),
                $crate::if_held!(leases $holders true, false),
            ],
        ),)+)+];

        impl Kind {
            pub fn oracle(self, spec: Spec) -> Box<dyn Oracle> {
                match self {
                    $(Self::$name $(($option))? => {
                        let $spec = spec;
                        Box::new($oracle)
                    })+
                }
            }
        }
    };
    (with $by:ident, $kind:expr, $quota_spec:expr, $bound:ident => $body:expr;
        $($name:ident $(($option:ident: $type:ty))?, [$($all:tt)*], $holders:tt,
        $spec:ident => $oracle:expr, $quota:ident => $algorithm:expr;)+) => {
        $crate::kinds::quota($quota_spec).and_then(|quota| match $kind {
            $($crate::kinds::Kind::$name $(($option))? => {
                $crate::if_held!($by $holders {
                    let $quota = quota;
                    $algorithm.map(|$bound| $body)
                }, {
                    unreachable!("nothing holds {:?} there", $crate::kinds::Kind::$name $(($option))?)
                })
            })+
        })
    };
}

/// The first expression if the list has the holder, and else the second one. All algorithms are in stores of `any` kind.
#[macro_export]
macro_rules! if_held {
    (any $list:tt $then:expr, $else:expr) => { $then };
    (compact [compact $($more:tt)*] $then:expr, $else:expr) => { $then };
    (sketch [sketch $($more:tt)*] $then:expr, $else:expr) => { $then };
    (leases [leases $($more:tt)*] $then:expr, $else:expr) => { $then };
    ($by:ident [] $then:expr, $else:expr) => { $else };
    ($by:ident [$other:ident $($more:tt)*] $then:expr, $else:expr) => {
        $crate::if_held!($by [$($more)*] $then, $else)
    };
}

kinds!(define);

const fn count(holder: usize) -> usize {
    let (mut number, mut at) = (0, 0);
    while at < HELD.len() {
        number += HELD[at].1[holder] as usize;
        at += 1;
    }
    number
}

const fn held_by<const N: usize>(holder: usize) -> [Kind; N] {
    let (mut kinds, mut number, mut at) = ([Kind::Gcra; N], 0, 0);
    while at < HELD.len() {
        if HELD[at].1[holder] {
            kinds[number] = HELD[at].0;
            number += 1;
        }
        at += 1;
    }
    kinds
}

/// All algorithms, with typical options.
pub const ALL: [Kind; count(0)] = held_by(0);

/// The algorithms that the compact store can hold.
pub const COMPACT: [Kind; count(1)] = held_by(1);

/// The algorithms that the sketch store can hold.
pub const WINDOWS: [Kind; count(2)] = held_by(2);

/// The algorithms that leases can be taken from.
pub const LEASABLE: [Kind; count(3)] = held_by(3);

/// Returns the quota of a `Spec`, if it is valid.
pub fn quota(spec: Spec) -> Option<Quota> {
    Quota::try_new(spec.limit, Duration::from_nanos(spec.period_ns)).ok()?.try_burst(spec.burst).ok()
}

/// Evaluates the body with `$algorithm` bound to the algorithm of a kind. Returns `Some` of the body's value, or `None` if the
/// algorithm refuses the quota.
#[macro_export]
macro_rules! with_algorithm {
    ($kind:expr, $spec:expr, $algorithm:ident => $body:expr) => {
        $crate::kinds!(with any, $kind, $spec, $algorithm => $body)
    };
}

/// [`with_algorithm`] for the kinds of [`COMPACT`].
#[macro_export]
macro_rules! with_compact {
    ($kind:expr, $spec:expr, $algorithm:ident => $body:expr) => {
        $crate::kinds!(with compact, $kind, $spec, $algorithm => $body)
    };
}

/// [`with_algorithm`] for the kinds of [`WINDOWS`].
#[macro_export]
macro_rules! with_windows {
    ($kind:expr, $spec:expr, $algorithm:ident => $body:expr) => {
        $crate::kinds!(with sketch, $kind, $spec, $algorithm => $body)
    };
}

/// [`with_algorithm`] for the kinds of [`LEASABLE`].
#[macro_export]
macro_rules! with_leasable {
    ($kind:expr, $spec:expr, $algorithm:ident => $body:expr) => {
        $crate::kinds!(with leases, $kind, $spec, $algorithm => $body)
    };
}

impl Kind {
    /// Returns whether this is one of the four algorithms with the same limit.
    pub fn is_bucket_family(self) -> bool {
        matches!(self, Self::Gcra | Self::Greedy | Self::Meter | Self::Queue)
    }
}
