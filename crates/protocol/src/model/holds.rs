//! The holds of a key. `holds.lua` counts them on a server.

use std::collections::BTreeSet;

use tollgate::holds::HoldId;
use tollgate::internals::holding::KeyStanding;

use crate::call::{Call, Question, Reply};
use crate::exact::EXACT;
use crate::hold::{MOST_HOLDS, units_of};

/// Charges nothing, but moves states back from the future as every call except a peek does.
const HEAL: Question = Question::Refund { units: 0, at_us: 0 };

/// A hold that ends at this time.
const fn held_until(end_us: u64, identity: u128) -> HoldId {
    HoldId::new(end_us.saturating_mul(1_000), identity)
}

/// The end of a hold.
const fn end_us(hold: &HoldId) -> u64 {
    hold.end_ns() / 1_000
}

/// Answers a call about a key with these holds, which can hold `most_units`. `limits` answers a question about the limits of the same key at
/// the same time.
pub(crate) fn answer_holds(
    holds: &mut BTreeSet<HoldId>,
    call: &Call,
    most_units: u64,
    now_us: u64,
    limits: &mut impl FnMut(Question) -> Reply,
) -> Reply {
    // Without the holds that have ended.
    *holds = holds.split_off(&held_until(now_us.saturating_add(1), 0));
    let until = |life_us: u64, identity| held_until(now_us.saturating_add(life_us).min(EXACT - 1), identity);
    let mut done = false;
    match call.ask {
        Question::Commit { hold, .. } | Question::Release { hold } => done = remove(holds, hold),
        Question::Renew { hold, life_us } => {
            done = remove(holds, hold);
            if done {
                holds.insert(until(life_us, hold.random()));
            }
        }
        _ => {}
    }
    let held = units(holds);
    let left = room(call, most_units, limits).saturating_sub(held);
    let reply = match call.ask {
        Question::Check { cost } if cost <= left => limits(Question::Force { cost }),
        Question::Hold { units, life_us, identity } if units <= left && (holds.len() as u64) < MOST_HOLDS => {
            done = true;
            holds.insert(until(life_us, identity));
            limits(HEAL)
        }
        Question::Commit { hold, units } if done || end_us(&hold) <= now_us => {
            limits(Question::Force { cost: units })
        }
        Question::Peek { cost } => limits(Question::Peek { cost: cost.saturating_add(held) }),
        Question::Check { cost: units } | Question::Hold { units, .. } => {
            limits(HEAL);
            limits(Question::Peek { cost: units.saturating_add(held) })
        }
        _ => limits(HEAL),
    };
    let ends_ns = holds.first().zip(holds.last()).map(|(first, last)| (first.end_ns(), last.end_ns()));
    Reply { done, held: KeyStanding { units: units(holds).into(), ends_ns }, ..reply }
}

/// Returns whether the key has no hold, except holds that have ended.
pub(crate) fn holds_are_over(holds: &BTreeSet<HoldId>, now_us: u64) -> bool {
    holds.last().is_none_or(|last| end_us(last) <= now_us)
}

fn units(holds: &BTreeSet<HoldId>) -> u64 {
    holds.iter().map(|hold| units_of(hold.random())).sum()
}

/// Removes the hold with this identity, whatever its end is. Returns whether it was there.
fn remove(holds: &mut BTreeSet<HoldId>, hold: HoldId) -> bool {
    let found = holds.iter().find(|held| held.random() == hold.random()).copied();
    found.is_some_and(|found| holds.remove(&found))
}

/// The units left in all limits, and in the number of units that the key can hold.
fn room(call: &Call, most_units: u64, limits: &mut impl FnMut(Question) -> Reply) -> u64 {
    let plan = &call.plan;
    let of_limits = |reply: &Reply| if plan.parts().is_empty() { u64::MAX } else { plan.remaining(reply) };
    most_units.min(of_limits(&limits(Question::Peek { cost: 0 })))
}
