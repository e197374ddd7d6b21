//! The shares of a cost that are near a limit and above it.

use tollgate::telemetry::Shares;

fn shares(limit: u64, used: u64, cost: u64) -> (u64, u64) {
    let Shares { near, over } = Shares::of(limit, used, cost);
    (near, over)
}

#[test]
fn near_line_is_four_fifths_rounded_down() {
    for (limit, line) in [(0, 0), (1, 0), (2, 1), (4, 3), (5, 4), (6, 4), (10, 8), (15, 12), (20, 16)] {
        assert_eq!(shares(limit, limit, limit), (limit - line, 0), "{limit}");
    }
    let (near, _) = shares(u64::MAX, u64::MAX, u64::MAX);
    assert_eq!(u128::from(u64::MAX - near), u128::from(u64::MAX) * 4 / 5);
}

/// The cases are those of the tests of Envoy's service. A cost that crosses a line is split at the line.
#[test]
fn cost_is_split_at_the_lines() {
    // One unit at a time, with a limit of 10.
    assert_eq!([8, 9, 10, 11].map(|used| shares(10, used, 1)), [(0, 0), (1, 0), (1, 0), (0, 1)]);
    // With a limit of 20: from 13 to 16, to 17, to 20, to 22.
    let of = |used| shares(20, used, used - 13);
    assert_eq!([16, 17, 20, 22].map(of), [(0, 0), (1, 0), (4, 0), (4, 2)]);
    // Start inside the near range, and start above the limit.
    assert_eq!((shares(20, 21, 3), shares(20, 25, 3)), ((2, 1), (0, 3)));
    // Start at zero, and cross both lines.
    assert_eq!(shares(20, 47, 47), (4, 27));
}

#[test]
fn each_unit_counts_in_one_share() {
    for limit in 0..12_u64 {
        for used in 0..20 {
            for cost in 0..=used {
                let units = used - cost + 1..=used;
                let near = units.clone().filter(|unit| *unit > limit * 4 / 5 && *unit <= limit).count();
                let over = units.filter(|unit| *unit > limit).count();
                assert_eq!(shares(limit, used, cost), (near as u64, over as u64), "{limit} {used} {cost}");
            }
        }
    }
    assert_eq!(shares(u64::MAX, u64::MAX, u64::MAX).1, 0);
    assert_eq!(shares(0, u64::MAX, u64::MAX).1, u64::MAX);
}
