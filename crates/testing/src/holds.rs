//! Holds, against a list of charges that are settled by hand. The list has room for `most` holds that are not settled.

use std::time::Duration;

use tollgate::holds::{HoldId, Holding};
use tollgate::stores::{ManyKeys, Store};
use tollgate::{Decision, ManualClock, RateLimiter, Timestamp};

use crate::SEC;

const START: u64 = 1_800_000_000 * SEC;

/// Returns the time `ns` after the start.
pub fn at(ns: u64) -> Timestamp {
    Timestamp::from_nanos(START + ns)
}

/// A request of a limiter with holds.
#[derive(Copy, Clone, Debug)]
#[cfg_attr(feature = "fuzzing", derive(arbitrary::Arbitrary))]
pub enum HoldOp {
    Check(u64),
    Hold { units: u64, life_s: u8 },
    Commit { which: u8, actual: u64 },
    Release { which: u8 },
    Wait(u64),
}

/// A hold of the reference: its key, its end, and its charge until it is settled.
#[derive(Clone, Debug)]
struct Noted {
    key: u64,
    id: HoldId,
    end_ns: u64,
    charge: Option<Decision>,
}

/// Runs the same requests on a limiter with holds, and on one whose caller notes and settles the charges.
pub fn same_as_by_hand<S: ManyKeys + Store<u64>>(
    limiter: &RateLimiter<Holding<S>, ManualClock>,
    by_hand: &RateLimiter<S, ManualClock>,
    ops: &[(u64, HoldOp)],
    most: usize,
) {
    let mut now = 0;
    let mut noted = Vec::<Noted>::new();
    for (&(key, op), number) in ops.iter().zip(0_u64..) {
        let (held, plain) = (limiter.at(at(now)), by_hand.at(at(now)));
        // The reference's decision: if it is a denial, the ended holds of the key are refunded first.
        let decide = |noted: &mut Vec<Noted>, cost| {
            let decision = plain.check_n(&key, cost);
            if decision.is_allowed() || decision.is_never() {
                return decision;
            }
            let mut ended: Vec<_> =
                noted.iter_mut().filter(|noted| noted.key == key && noted.end_ns <= now).collect();
            ended.sort_by_key(|noted| noted.id);
            for noted in ended {
                noted.charge.take().map(|charge| plain.refund(&key, &charge));
            }
            plain.check_n(&key, cost)
        };
        match op {
            HoldOp::Check(cost) => assert_eq!(held.check_n(&key, cost), decide(&mut noted, cost)),
            HoldOp::Hold { units, life_s } => {
                let decision = decide(&mut noted, units);
                // No two holds end at the same time, so it is clear which one ends first.
                let life_ns = u64::from(life_s) * SEC + number;
                let life = Duration::from_nanos(life_ns);
                // A new hold releases two holds that have ended, of whichever keys. Then it needs a place.
                let unsettled = if decision.is_allowed() {
                    let mut unsettled: Vec<_> =
                        noted.iter_mut().filter(|noted| noted.charge.is_some()).collect();
                    unsettled.sort_by_key(|noted| noted.id);
                    let ended = unsettled.iter_mut().take(2).filter(|noted| noted.end_ns <= now);
                    ended.for_each(|Noted { key, charge, .. }| {
                        charge.take().map(|charge| plain.refund(key, &charge));
                    });
                    unsettled.iter().filter(|noted| noted.charge.is_some()).count()
                } else {
                    0
                };
                if unsettled >= most {
                    plain.refund(&key, &decision);
                    let denied = held.hold(&key, units, life).unwrap_err().decision();
                    assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
                    continue;
                }
                match held.hold(&key, units, life) {
                    Ok(id) => {
                        assert!(decision.is_allowed());
                        let end_ns = now + life_ns;
                        assert_eq!(id.end(), at(end_ns));
                        noted.push(Noted { key, id, end_ns, charge: Some(decision) });
                    }
                    Err(denied) => assert_eq!(denied.decision(), decision),
                }
            }
            HoldOp::Commit { which, actual } if !noted.is_empty() => {
                let which = usize::from(which) % noted.len();
                let Noted { key, id, end_ns, ref mut charge } = noted[which];
                let charge = charge.take();
                let after = match charge {
                    Some(charge) if now < end_ns => plain.settle(&key, &charge, actual),
                    late => {
                        late.map(|charge| plain.refund(&key, &charge));
                        plain.charge_unchecked(&key, actual)
                    }
                };
                assert_eq!(held.commit(&key, id, actual), after);
            }
            HoldOp::Release { which } if !noted.is_empty() => {
                let which = usize::from(which) % noted.len();
                let Noted { key, id, ref mut charge, .. } = noted[which];
                let back = charge.take().map_or(0, |charge| plain.refund(&key, &charge));
                assert_eq!(held.release(&key, id), back);
            }
            HoldOp::Wait(ns) => now += ns % (1 << 36),
            HoldOp::Commit { .. } | HoldOp::Release { .. } => {}
        }
    }
}
