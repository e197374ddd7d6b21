//! The algorithms that leases can be taken from.

use super::kinds::Kind;

/// [`with_one_of`](crate::with_one_of) for the kinds of [`LEASABLE`].
#[macro_export]
macro_rules! with_leasable {
    ($kind:expr, $spec:expr, $algorithm:ident => $body:expr) => {
        $crate::with_one_of!(
            [Gcra, Greedy, Meter, Interval, Fixed, FirstUse, Sliding, SubStrict(parts), Log],
            $kind, $spec, $algorithm => $body
        )
    };
}

/// One of each kind of algorithm that leases can be taken from.
pub const LEASABLE: [Kind; 9] = [
    Kind::Gcra,
    Kind::Greedy,
    Kind::Meter,
    Kind::Interval,
    Kind::Fixed,
    Kind::FirstUse,
    Kind::Sliding,
    Kind::SubStrict(6),
    Kind::Log,
];
