//! A ledger of charges and their refunds in the order of their effects, and an oracle that never saw the refunded
//! units.

use super::kinds::Kind;
use super::oracle::{Oracle, Spec};
use super::steps::{Op, within_reach};
use super::subjects::Subject;
use tollgate::Decision;

#[derive(Copy, Clone, Debug)]
pub enum Operation {
    Check,
    Force,
    Take,
    /// Refunds one of the charges so far. The second number is the share of its units, in sixteenths.
    Refund(u64, u64),
    /// Refunds a share of the last charge, in sixteenths.
    RefundLast(u64),
}

/// A charge that was made.
#[derive(Copy, Clone, Debug)]
pub struct Charge {
    pub decision: Decision,
    pub now: u64,
    /// The units that were refunded.
    pub back: u64,
    pub refunded: bool,
}

/// Returns the charge that a refund takes and the units to refund, if that charge was not refunded yet.
pub fn chosen(ledger: &mut [Charge], verb: Operation) -> Option<(&mut Charge, u64)> {
    let (charge, share) = match verb {
        Operation::Refund(index, share) if !ledger.is_empty() => {
            let place = index % ledger.len() as u64;
            (&mut ledger[usize::try_from(place).expect("an index below a length")], share)
        }
        Operation::RefundLast(share) => (ledger.last_mut()?, share),
        _ => return None,
    };
    let units = (u128::from(charge.decision.cost()) * u128::from(share)).div_ceil(16);
    let units = u64::try_from(units).expect("a share is at most the whole");
    (!charge.refunded).then_some((charge, units))
}

pub fn make(limiter: &dyn Subject, verb: Operation, key: u32, cost: u64, now: u64) -> Decision {
    match verb {
        Operation::Force => limiter.at(now).charge_unchecked(key, cost),
        Operation::Take => limiter.at(now).take(key, cost),
        _ => limiter.at(now).check_n(key, cost),
    }
}

/// Returns an oracle that was charged with the ledger, without the refunded units.
fn replay(kind: Kind, spec: Spec, ledger: &[Charge]) -> Box<dyn Oracle> {
    // A key that was seen has more units than a key that first comes late in its first period.
    let kind = if let Kind::Adaptive(origin) = kind { Kind::Aligned(origin) } else { kind };
    let mut oracle = kind.oracle(spec);
    for charge in ledger {
        match charge.decision.cost() - charge.back {
            0 if kind.is_bucket_family() || kind == Kind::Spacing => {}
            // The limiter has seen this time, and reads an earlier time as part of this window.
            0 => oracle.charge(charge.now.into(), 0),
            units => assert_eq!(oracle.force(charge.now.into(), units), units),
        }
    }
    oracle
}

/// Checks that an oracle without the refunded charges admits everything that the limiter admits.
pub fn check_no_units_created(
    kind: Kind,
    spec: Spec,
    start: u64,
    reach: u64,
    ops: &[(Op, Operation)],
    limiter: &dyn Subject,
) {
    let chooser = kind.oracle(spec);
    let keys = ops.iter().map(|(op, _)| op.key + 1).max().unwrap_or(0);
    let mut ledgers: Vec<Vec<Charge>> = (0..keys).map(|_| Vec::new()).collect();
    let (mut now, mut newest) = (start, start);
    for &(op, verb) in ops {
        now = within_reach(op.step.apply(now, spec, &*chooser), start, kind, spec);
        now = now.clamp(start.saturating_sub(reach).max(1), start.saturating_add(reach).min(1 << 62));
        newest = newest.max(now);
        let ledger = &mut ledgers[op.key as usize];
        if !limiter.holds(op.key) && !matches!(kind, Kind::Adaptive(_)) {
            ledger.clear();
        }
        if let Some((charge, units)) = chosen(ledger, verb) {
            charge.refunded = true;
            charge.back = limiter.at(newest).refund_n(op.key, &charge.decision, units);
            assert!(charge.back <= units, "{op:?} {verb:?}");
        } else {
            let world = replay(kind, spec, ledger);
            let cost = op.cost.apply(now, &*world).min(chooser.capacity().saturating_mul(2));
            let decision = make(limiter, verb, op.key, cost, now);
            let forced = matches!(verb, Operation::Force);
            if decision.is_allowed() && decision.cost() > 0 {
                let said = format!("{verb:?} of {cost} at {now}: {decision:?}, {ledger:?}");
                assert!(forced || world.admits(now.into(), decision.cost()), "units were created: {said}");
                ledger.push(Charge { decision, now, back: 0, refunded: false });
            }
        }
        let world = replay(kind, spec, ledger);
        if kind != Kind::Spacing {
            let ours = limiter.at(newest).peek_n(op.key, 0).remaining();
            assert!(
                ours <= world.remaining(newest),
                "{ours} units remain after {verb:?} at {newest}, more than without the refunded charges: {ledger:?}"
            );
        }
    }
}
