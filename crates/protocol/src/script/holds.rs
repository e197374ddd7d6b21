//! The commands that call the script of holds, `holds.lua`, and its replies.

use ::redis::Cmd;
use tollgate::holds::HoldId;
use tollgate::internals::holding::KeyStanding;

use super::{
    By, ScriptText, add_keys, add_kinds, add_time, at_its_time, exact, margin_ms, reply_of, time_us,
};
use crate::call::{Call, Question, Reply};
use crate::exact::EXACT;
use crate::hold::MOST_HOLDS;
use crate::kinds::Form;

/// Builds the command that calls the script, for a key that can hold `most_units`.
pub(super) fn command(call: &Call, most_units: u64, by: By) -> Cmd {
    let plan = &*call.plan;
    if plan.needs_time {
        return command(&at_its_time(call), most_units, by);
    }
    let of = |hold: HoldId| (hold.random(), hold.end_ns() / 1_000);
    let (ask, first, (identity, end_us)) = match call.ask {
        Question::Check { cost } => ("check", cost, (0, 0)),
        Question::Hold { units, life_us, identity } => ("hold", units, (identity, life_us)),
        Question::Commit { hold, units } => ("commit", units, of(hold)),
        Question::Release { hold } => ("release", 0, of(hold)),
        Question::Renew { hold, life_us } => ("renew", life_us, of(hold)),
        Question::Peek { cost } => ("peek", cost, (0, 0)),
        // The others are not asked of keys with holds.
        _ => ("peek", 0, (0, 0)),
    };
    let letter = if plan.parts().is_empty() { "n" } else { "h" };
    let mut command = ScriptText::of(plan.kinds, Form::Holds).call(by, plan.parts().len() + 1);
    add_keys(&mut command, call, &[""]);
    command.arg([&*call.tag, b":", letter.as_bytes()].concat());
    add_time(&mut command, time_us(call));
    command.arg(ask).arg(margin_ms(call.now)).arg(exact(first));
    add_kinds(&mut command, plan);
    command.arg(&[most_units, MOST_HOLDS]);
    command.arg(&identity.to_be_bytes()[..]).arg(end_us.min(EXACT - 1));
    command
}

/// Reads the numbers of a reply.
pub(super) fn reply(call: &Call, numbers: &[u64]) -> Option<Reply> {
    let [granted, now_us, done, units, first_us, last_us, ref limits @ ..] = *numbers else { return None };
    let reply = reply_of(&call.plan, granted, now_us, limits)?;
    let [first_ns, last_ns] = [first_us, last_us].map(|end_us| end_us.saturating_mul(1_000));
    let held = KeyStanding { units: units.into(), ends_ns: (first_us > 0).then_some((first_ns, last_ns)) };
    Some(Reply { done: done == 1, held, ..reply })
}
