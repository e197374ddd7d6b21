//! What each operation decides about a state.

use crate::algorithm::compact::{CompactState, Moment, Moved, Verdict};
use crate::base::decision::{Decision, Outcome};
use crate::store::op::Operation;

/// Returns the verdict of an operation about a state that is `ahead`, and the units that it then charges.
#[inline(always)]
pub(super) fn judge<N: CompactState>(
    word: &N,
    operation: Operation,
    cost: u64,
    ahead: u64,
    at: Moment,
) -> (Verdict, u64) {
    match operation {
        Operation::Check => (word.judge(ahead, at.now_ns, cost), cost),
        Operation::Force => {
            let Moved { ahead, units } = word.force(ahead, at.now_ns, cost);
            (Verdict::Admit(ahead), units)
        }
        Operation::CheckOversized => (word.judge_oversized(ahead, at, cost), cost),
        Operation::Reserve { wait_ns } => (word.reserve(ahead, at, cost, wait_ns), cost),
        Operation::CheckKeeping { headroom } => judge_keeping(word, cost, (ahead, at), headroom, false),
        Operation::TakeKeeping { headroom } => judge_keeping(word, cost, (ahead, at), headroom, true),
        Operation::Take => match word.judge(ahead, at.now_ns, cost) {
            admitted @ Verdict::Admit(_) => (admitted, cost),
            _ => {
                let room = word.uncharged(Outcome::Denied, ahead, at, cost).remaining().max(1);
                (word.judge(ahead, at.now_ns, room), room)
            }
        },
    }
}

/// [`judge`] for an operation that leaves a headroom. `takes`: charges less than the cost if that is too much.
#[inline(always)]
fn judge_keeping<N: CompactState>(
    word: &N,
    cost: u64,
    (ahead, at): (u64, Moment),
    headroom: u64,
    takes: bool,
) -> (Verdict, u64) {
    let both = cost.saturating_add(headroom);
    let refused = match word.judge(ahead, at.now_ns, both) {
        Verdict::Admit(_) => return (word.judge(ahead, at.now_ns, cost), cost),
        refused => refused,
    };
    let remaining = word.uncharged(Outcome::Denied, ahead, at, both).remaining();
    match remaining.saturating_sub(headroom) {
        room @ 1.. if takes => (word.judge(ahead, at.now_ns, room), room),
        _ => (refused, both),
    }
}

/// Whether an operation charged its key beyond the burst, or without a look at it.
pub(super) const fn is_forced(operation: Operation, decided: &Decision) -> bool {
    let may_be_forced = match operation {
        Operation::Force => true,
        Operation::CheckOversized => decided.cost() > decided.limit(),
        _ => false,
    };
    may_be_forced && decided.charged() > 0
}
