//! Models of eight threads that check three limits. Shuttle runs them in sampled interleavings; see `sync::sample`.

use super::*;
use crate::base::sync::{eight, sample};

const SCHEDULES: usize = 1_000;

type Three = (Direct1<Gcra>, Direct1<Gcra>, Direct1<Gcra>);

/// Runs `check` in eight threads, on three limits of five, three and four units. The number of a thread selects the
/// limits that the thread checks, and their order.
fn three_limits(check: fn(&Three, usize) -> bool) {
    let limits = Arc::new((gcra(5), gcra(3), gcra(4)));
    let admitted = eight(&limits, move |limits, number| check(limits, number % 4));
    let of = |asked: [bool; 4]| {
        admitted.iter().enumerate().filter(|(number, admitted)| **admitted && asked[number % 4]).count()
            as u64
    };
    let charged =
        [of([true, true, true, false]), of([true, true, false, true]), of([true, false, true, true])];
    let left = [&limits.0, &limits.1, &limits.2].map(|limit| limit.peek().remaining());
    for ((charged, left), units) in charged.into_iter().zip(left).zip([5, 3, 4]) {
        assert!(charged <= units, "no limit admits more than its own units: {charged} of {units}");
        assert_eq!(left, units - charged, "only admitted requests are charged");
    }
}

#[test]
fn eight_threads_share_three_limits() {
    sample(SCHEDULES, || {
        three_limits(|(x, y, z), order| match order {
            0 => check_all((on(x), on(y), on(z))).is_allowed(),
            1 => check_all((on(y), on(x))).is_allowed(),
            2 => check_all((on(z), on(x))).is_allowed(),
            _ => check_all((on(z), on(y))).is_allowed(),
        });
    });
}

#[test]
#[should_panic(expected = "only admitted requests are charged")]
fn control_eight_check_then_act_leave_charges() {
    sample(SCHEDULES, || {
        three_limits(|(x, y, z), order| match order {
            0 => check_then_act(x, y) && z.check().is_allowed(),
            1 => check_then_act(y, x),
            2 => check_then_act(z, x),
            _ => check_then_act(z, y),
        });
    });
}
