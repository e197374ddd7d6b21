//! The commands that call the script of holds, `holds.lua`, and its replies.

use ::redis::{Cmd, Value};

use super::call::{HoldCall, HoldQuestion, HoldReply, MOST_HOLDS, StoredHold};
use crate::edge::redis::protocol::script::{By, holds_command, numbers, reply_of, unexpected_reply};
use crate::edge::redis::protocol::{EXACT, Error};

/// Builds the command that calls the script.
pub(crate) fn command(call: &HoldCall, by: By) -> Cmd {
    let none = StoredHold::ENDED;
    let (ask, first, StoredHold { end_us, identity }) = match call.ask {
        HoldQuestion::Check { cost } => ("check", cost, none),
        HoldQuestion::Peek { cost } => ("peek", cost, none),
        HoldQuestion::Hold { units, life_us, identity } => {
            ("hold", units, StoredHold { end_us: life_us, identity })
        }
        HoldQuestion::Commit { hold, units } => ("commit", units, hold),
        HoldQuestion::Release { hold } => ("release", 0, hold),
        HoldQuestion::Renew { hold, life_us } => ("renew", life_us, hold),
    };
    let mut command = holds_command(&call.call, call.kind.letter(), ask, first, by);
    command.arg(&[call.most_units, MOST_HOLDS]);
    command.arg(&identity.to_be_bytes()[..]).arg(end_us.min(EXACT - 1));
    command
}

/// Parses the reply of a server.
pub(crate) fn reply(call: &HoldCall, value: &Value) -> Result<HoldReply, Error> {
    let numbers = numbers(value).unwrap_or_default();
    let reply = match *numbers {
        [granted, now_us, done, held, first_us, last_us, ref limits @ ..] => {
            let limits = reply_of(&call.call.plan, granted, now_us, limits);
            limits.map(|limits| HoldReply { done: done == 1, held, first_us, last_us, limits })
        }
        _ => None,
    };
    reply.ok_or_else(unexpected_reply)
}
