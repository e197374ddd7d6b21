//! The algorithms that leases can be taken from.

use super::kinds::Kind;

/// Evaluates the body with `$algorithm` bound to an algorithm that leases can be taken from. Returns `Some` of the
/// body's value, or `None` if the algorithm refuses the quota.
#[macro_export]
macro_rules! with_leasable {
    ($kind:expr, $spec:expr, $algorithm:ident => $body:expr) => {{
        use $crate::kinds::Kind as Choice;
        $crate::subjects::quota($spec).and_then(|quota| match $kind {
            Choice::Gcra => Some(tollgate::Gcra::new(quota)).map(|$algorithm| $body),
            Choice::Greedy => Some(tollgate::TokenBucket::new(quota)).map(|$algorithm| $body),
            Choice::Meter => Some(tollgate::LeakyBucketMeter::new(quota)).map(|$algorithm| $body),
            Choice::Interval => tollgate::TokenBucket::try_interval(quota).ok().map(|$algorithm| $body),
            Choice::Fixed => tollgate::FixedWindow::try_new(quota).ok().map(|$algorithm| $body),
            Choice::FirstUse => tollgate::FixedWindow::try_from_first_use(quota).ok().map(|$algorithm| $body),
            Choice::Sliding => tollgate::SlidingWindow::try_new(quota).ok().map(|$algorithm| $body),
            Choice::SubStrict(parts) => tollgate::SubWindow::try_new(quota, parts)
                .ok()
                .map(tollgate::SubWindow::strict)
                .map(|$algorithm| $body),
            Choice::Log => tollgate::SlidingLog::try_new(quota).ok().map(|$algorithm| $body),
            other => panic!("leases cannot be taken from {other:?} here: it is not in `LEASABLE`"),
        })
    }};
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
