//! The charge of a hold in a snapshot: what a refund needs of the decision that made it.
//!
//! ```text
//! units, limit, time ns, kind of the figures, six figures: u64 each. Figures that a kind does not have are 0
//! ```

use crate::base::decision::{Decision, Facts, Outcome};
use crate::store::snapshot::{SnapshotError, SnapshotReader, put_u64};

const PACE: u64 = 0;
const TICKS: u64 = 1;
const BATCH: u64 = 2;
const BLEND: u64 = 3;
const PLAIN: u64 = 4;

/// Appends a charge.
pub fn put_charge(charge: &Decision, into: &mut Vec<u8>) {
    let (kind, figures) = match *charge.facts() {
        Facts::Pace { ahead, interval, capacity, scale, queued, mark } => {
            (PACE, [ahead, interval, capacity, scale.into(), queued.into(), mark.into()])
        }
        Facts::Ticks { ahead, interval, remainder, num, den, queued } => {
            (TICKS, [ahead, interval, remainder, num, den, queued.into()])
        }
        Facts::Batch { used, raised, batch, to_boundary_ns, period_ns } => {
            (BATCH, [used, raised, batch, to_boundary_ns, period_ns, 0])
        }
        Facts::Blend { previous, current, left_ns, to_end_ns, window_ns, ceil } => {
            (BLEND, [previous, current, left_ns, to_end_ns, window_ns, ceil.into()])
        }
        Facts::Plain { remaining, retry_ns, reset_ns, delay_ns } => {
            (PLAIN, [remaining, retry_ns, reset_ns, delay_ns, 0, 0])
        }
    };
    let numbers = [charge.charged(), charge.limit(), charge.at_ns(), kind];
    numbers.into_iter().chain(figures).for_each(|number| put_u64(number, into));
}

/// Reads a charge, for a clock that is behind that of the snapshot by `back_ns`.
pub fn read_charge(reader: &mut SnapshotReader<'_>, back_ns: u64) -> Result<Decision, SnapshotError> {
    let mut numbers = [0; 10];
    for number in &mut numbers {
        *number = reader.u64()?;
    }
    let [units, limit, at_ns, kind, figures @ ..] = numbers;
    let facts = facts(kind, figures).ok_or_else(|| SnapshotError::content("charge of a hold"))?;
    Ok(Decision::new(Outcome::Allowed, units, limit, at_ns.saturating_sub(back_ns), facts))
}

/// Returns the figures of a kind. `None` for an unknown kind, and for figures that no decision has: a decision divides by
/// some of them.
fn facts(kind: u64, figures: [u64; 6]) -> Option<Facts> {
    Some(match (kind, figures) {
        (PACE, [ahead, interval @ (1..), capacity, scale @ (1..), queued, mark]) => {
            let (scale, mark) = (scale.try_into().ok()?, mark.try_into().ok()?);
            Facts::Pace { ahead, interval, capacity, scale, queued: queued != 0, mark }
        }
        (TICKS, [ahead, interval @ (1..), remainder, num @ (1..), den @ (1..), queued]) => {
            Facts::Ticks { ahead, interval, remainder, num, den, queued: queued != 0 }
        }
        (BATCH, [used, raised, batch @ (1..), to_boundary_ns, period_ns @ (1..), _]) => {
            Facts::Batch { used, raised, batch, to_boundary_ns, period_ns }
        }
        (BLEND, [previous, current, left_ns, to_end_ns, window_ns @ (1..), ceil]) => {
            Facts::Blend { previous, current, left_ns, to_end_ns, window_ns, ceil: ceil != 0 }
        }
        (PLAIN, [remaining, retry_ns, reset_ns, delay_ns, ..]) => {
            Facts::Plain { remaining, retry_ns, reset_ns, delay_ns }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_of_each_kind_round_trips() {
        let all = [
            Facts::Pace { ahead: 1, interval: 2, capacity: 3, scale: 4, queued: true, mark: 6 },
            Facts::Ticks { ahead: 1, interval: 2, remainder: 3, num: 4, den: 5, queued: true },
            Facts::Batch { used: 1, raised: 2, batch: 3, to_boundary_ns: 4, period_ns: 5 },
            Facts::Blend { previous: 1, current: 2, left_ns: 3, to_end_ns: 4, window_ns: 5, ceil: true },
            Facts::Plain { remaining: 1, retry_ns: 2, reset_ns: 3, delay_ns: 4 },
        ];
        for (kind, facts) in (0..).zip(all) {
            let mut bytes = Vec::new();
            put_charge(&Decision::new(Outcome::Allowed, 7, 8, 9, facts), &mut bytes);
            let numbers: Vec<u64> =
                bytes.chunks(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect();
            assert_eq!(numbers[..8], [7, 8, 9, kind, 1, 2, 3, 4], "{facts:?}");
            let read = |back_ns| read_charge(&mut SnapshotReader::at(&bytes, 0), back_ns).unwrap();
            assert_eq!((*read(0).facts(), read(0).charged(), read(0).limit()), (facts, 7, 8));
            assert_eq!([0, 4, 100].map(|back_ns| read(back_ns).at_ns()), [9, 5, 0]);
        }
    }

    #[test]
    fn figures_that_divide_by_zero_are_refused() {
        for (kind, divisors) in [(PACE, &[1, 3][..]), (TICKS, &[1, 3, 4]), (BATCH, &[2, 4]), (BLEND, &[4])] {
            for &at in divisors {
                let mut figures = [1; 6];
                figures[at] = 0;
                assert!(facts(kind, [1; 6]).is_some() && facts(kind, figures).is_none(), "{kind}: {at}");
            }
        }
        assert_eq!(
            facts(PLAIN, [0; 6]),
            Some(Facts::Plain { remaining: 0, retry_ns: 0, reset_ns: 0, delay_ns: 0 })
        );
        assert_eq!([facts(PLAIN + 1, [1; 6]), facts(PACE, [1, 1, 1, u64::MAX, 1, 1])], [None, None]);
    }
}
