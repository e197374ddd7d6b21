//! The scripts at the server of a region: the commands that call them, and their replies.

use std::sync::LazyLock;

use ::redis::{Cmd, Script, Value};

use super::call::{RegionCall, RegionQuestion, RegionReply};
use super::exchange::{LinkAges, LinkReport};
use super::policy::RegionPolicy;
use crate::edge::redis::protocol::model::MARGINS_US;
use crate::edge::redis::protocol::script::By;
use crate::edge::redis::protocol::{Error, ErrorKind, Windows};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));
const TEXT: &str = concat!(include_str!("../protocol/now.lua"), include_str!("region.lua"));
/// Numbers in the script stay below this.
const MOST: u64 = (1 << 53) - 1;

/// Builds the command that calls the script. Without `now_us`, the server's time counts.
pub fn command(call: &RegionCall, now_us: Option<u64>, by: By) -> Cmd {
    let (verb, script) = match by {
        By::Hash => ("EVALSHA", SCRIPT.get_hash()),
        By::Text => ("EVAL", TEXT),
    };
    let terms = &*call.terms;
    let Windows { limit, period_us, unit_us, slides, strict } = terms.windows;
    let kind = match (slides, strict) {
        (_, true) => "S",
        (true, false) => "s",
        (false, false) => "f",
    };
    let policy = match terms.policy {
        RegionPolicy::Share => "share",
        RegionPolicy::AsLastKnown => "known",
    };
    let mut command = ::redis::cmd(verb);
    command.arg(script).arg(1).arg(&*call.name);
    match now_us {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    };
    command
        .arg(MARGINS_US[usize::from(now_us.is_some())] / 1_000)
        .arg(kind)
        .arg(&[limit, period_us, unit_us]);
    let portion = terms.portion;
    command.arg(policy).arg(&[portion.from, portion.to, portion.of]);
    command.arg(&[call.pause_us.min(MOST), terms.quantum()]).arg(terms.others.len());
    for name in &terms.others {
        command.arg(&**name);
    }
    let few = |numbers: &[u64]| numbers.iter().map(|number| (*number).min(MOST)).collect::<Vec<u64>>();
    match &call.ask {
        RegionQuestion::Peek => command.arg("peek"),
        RegionQuestion::Check { cost } => command.arg("check").arg(few(&[*cost])),
        // The script uses the process only as a name.
        RegionQuestion::Post { process, epoch, total } => {
            command.arg("post").arg(*process).arg(few(&[*epoch, *total]))
        }
        RegionQuestion::Tell { from, index, totals } => {
            command.arg("tell").arg(&**from).arg(few(&[*index, totals[0], totals[1]]))
        }
        RegionQuestion::Hear { from, round, index, totals, of, floor } => {
            let numbers = [*round, *index, totals[0], totals[1], *of, floor[0], floor[1]];
            command.arg("hear").arg(&**from).arg(few(&numbers))
        }
    };
    command
}

static LINKS: LazyLock<Script> = LazyLock::new(|| Script::new(LINKS_TEXT));
const LINKS_TEXT: &str = concat!(include_str!("../protocol/now.lua"), include_str!("links.lua"));

/// Builds the command that reports the calls to other regions. Without `now_us`, the server's time counts.
pub fn links(report: &LinkReport, now_us: Option<u64>, by: By) -> Cmd {
    let (verb, script) = match by {
        By::Hash => ("EVALSHA", LINKS.get_hash()),
        By::Text => ("EVAL", LINKS_TEXT),
    };
    let mut command = ::redis::cmd(verb);
    command.arg(script).arg(1).arg(&*report.name);
    match now_us {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    };
    command.arg(report.life_us.div_ceil(1_000));
    for (name, ages) in &report.links {
        command.arg(&**name).arg(&ages.map(|age| age.map_or(0, |age| age.saturating_add(1).min(MOST))));
    }
    command
}

/// Parses the reply to a report.
///
/// # Errors
/// Returns an error if the reply is not from the script.
pub fn link_ages(report: &LinkReport, value: &Value) -> Result<Vec<LinkAges>, Error> {
    let unexpected_reply = || Error::new(ErrorKind::Reply, "the reply is not from the script for regions");
    let Value::Array(numbers) = value else { return Err(unexpected_reply()) };
    let age = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).ok().map(|age| age.checked_sub(1)),
        _ => None,
    };
    let ages: Option<Vec<Option<u64>>> = numbers.iter().map(age).collect();
    let ages = ages.ok_or_else(unexpected_reply)?;
    let ages: Vec<LinkAges> = ages.chunks_exact(3).map(|ages| [ages[0], ages[1], ages[2]]).collect();
    if ages.len() == report.links.len() { Ok(ages) } else { Err(unexpected_reply()) }
}

/// Parses the reply of a server.
///
/// # Errors
/// Returns an error if the reply is not from the script.
pub fn reply(value: &Value) -> Result<RegionReply, Error> {
    let unexpected_reply = || Error::new(ErrorKind::Reply, "the reply is not from the script for regions");
    let Value::Array(numbers) = value else { return Err(unexpected_reply()) };
    let number = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let numbers: Option<Vec<u64>> = numbers.iter().map(number).collect();
    match numbers.as_deref() {
        Some(&[granted, now_us, index, own, before, used, room, round, known, known_before]) => {
            Ok(RegionReply {
                granted,
                now_us,
                index,
                own: [own, before],
                used,
                room,
                round,
                known: [known, known_before],
            })
        }
        _ => Err(unexpected_reply()),
    }
}
