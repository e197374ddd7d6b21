//! The commands that call the script of holds, `holds.lua`, and its replies.

use ::redis::Cmd;

use super::{
    By, ScriptText, add_keys, add_kinds, add_time, at_its_time, exact, margin_ms, reply_of, time_us,
};
use crate::edge::redis::protocol::call::{Call, Question, Reply};
use crate::edge::redis::protocol::exact::EXACT;
use crate::edge::redis::protocol::hold::{HeldUnits, MOST_HOLDS, StoredHold};
use crate::edge::redis::protocol::kinds::{Form, KindSet};

/// Builds the command that calls the script, for a key that can hold `most_units`.
pub(super) fn command(call: &Call, most_units: u64, by: By) -> Cmd {
    let plan = &*call.plan;
    if plan.needs_time() {
        return command(&at_its_time(call), most_units, by);
    }
    let none = StoredHold { end_us: 0, identity: 0 };
    let (ask, first, StoredHold { end_us, identity }) = match call.ask {
        Question::Check { cost } => ("check", cost, none),
        Question::Hold { units, life_us, identity } => {
            ("hold", units, StoredHold { end_us: life_us, identity })
        }
        Question::Commit { hold, units } => ("commit", units, hold),
        Question::Release { hold } => ("release", 0, hold),
        Question::Renew { hold, life_us } => ("renew", life_us, hold),
        Question::Peek { cost } => ("peek", cost, none),
        _ => ("peek", 0, none),
    };
    let is_limited = !plan.parts().is_empty();
    let (kinds, letter) = if is_limited { (plan.kinds(), "h") } else { (KindSet::NONE, "n") };
    let mut command = ScriptText::of(kinds, Form::Holds).call(by, plan.parts().len() + 1);
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
    Some(Reply { held: HeldUnits { done: done == 1, units, first_us, last_us }, ..reply })
}
