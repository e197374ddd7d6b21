//! The scripts at the server of a region: the commands that call them, and their replies.

use std::sync::LazyLock;

use ::redis::{Cmd, Value};

use super::{By, ScriptText, add_time, exact, margin_ms, numbers, time_us};
use crate::call::{Call, Question, Reply};
use crate::error::{Error, ErrorKind};
use crate::plan::Windows;
use crate::terms::{LinkAges, LinkReport, RegionPolicy, RegionScope, RegionTerms, RegionUse};

static SCRIPT: LazyLock<ScriptText> =
    LazyLock::new(|| ScriptText::new(concat!(include_str!("../now.lua"), include_str!("region.lua"))));

/// Returns the name of the key in Redis.
pub(crate) fn name(call: &Call) -> Vec<u8> {
    let part = call.plan.names.first().map(|name| name.as_bytes());
    [&*call.tag, b":r", part.unwrap_or_default()].concat()
}

/// Builds the command that calls the script.
pub(super) fn command(call: &Call, scope: &RegionScope, by: By) -> Cmd {
    let RegionScope { terms, pause_us, from } = scope;
    let from = from.as_deref().unwrap_or("");
    let Windows { limit, period_us, unit_us, .. } = terms.windows;
    let policy = match terms.policy {
        RegionPolicy::Share => "share",
        RegionPolicy::AsLastKnown => "known",
    };
    let mut command = SCRIPT.call(by, 1);
    command.arg(name(call));
    add_time(&mut command, time_us(call))
        .arg(margin_ms(call.now))
        .arg(terms.windows.kind())
        .arg(&[limit, period_us, unit_us]);
    let portion = terms.portion;
    command.arg(policy).arg(&[portion.from, portion.to, portion.of]);
    command.arg(&[exact(*pause_us), terms.quantum()]).arg(terms.others.len());
    for name in &terms.others {
        command.arg(&**name);
    }
    let capped = |numbers: &[u64]| numbers.iter().map(|number| exact(*number)).collect::<Vec<u64>>();
    match call.ask {
        Question::Check { cost } => command.arg("check").arg(capped(&[cost])),
        // The script uses the process only as a name.
        Question::Post { process, epoch, total } => {
            command.arg("post").arg(process).arg(capped(&[epoch, total]))
        }
        Question::Tell { index, totals } => {
            command.arg("tell").arg(from).arg(capped(&[index, totals[0], totals[1]]))
        }
        Question::Hear { round, index, totals, of, floor } => {
            let numbers = [round, index, totals[0], totals[1], of, floor[0], floor[1]];
            command.arg("hear").arg(from).arg(capped(&numbers))
        }
        // The others, except a peek, are not asked of a region.
        _ => command.arg("peek"),
    };
    command
}

/// Reads the numbers of a reply.
pub(super) fn reply(terms: &RegionTerms, numbers: &[u64]) -> Option<Reply> {
    let [granted, now_us, index, own, before, used, room, round, known, known_before] = *numbers else {
        return None;
    };
    let (own, known) = ([own, before], [known, known_before]);
    Some(Reply::of_region(granted, now_us, terms, RegionUse { index, own, used, room, round, known }))
}

static LINKS: LazyLock<ScriptText> =
    LazyLock::new(|| ScriptText::new(concat!(include_str!("../now.lua"), include_str!("links.lua"))));

/// Builds the command that reports the calls to other regions. Without `now_us`, the server's time counts.
pub fn links(report: &LinkReport, now_us: Option<u64>, by: By) -> Cmd {
    let mut command = LINKS.call(by, 1);
    command.arg(&*report.name);
    add_time(&mut command, now_us).arg(report.life_us.div_ceil(1_000));
    for (name, ages) in &report.links {
        command.arg(&**name).arg(&ages.map(|age| age.map_or(0, |age| exact(age.saturating_add(1)))));
    }
    command
}

/// Parses the reply to a report.
///
/// # Errors
/// Returns an error if the reply is not from the script.
pub fn link_ages(report: &LinkReport, value: &Value) -> Result<Vec<LinkAges>, Error> {
    let numbers = numbers(value).ok_or_else(unexpected_reply)?;
    let ages = numbers.chunks_exact(3).map(|ages| [ages[0], ages[1], ages[2]].map(|age| age.checked_sub(1)));
    let ages: Vec<LinkAges> = ages.collect();
    if ages.len() == report.links.len() { Ok(ages) } else { Err(unexpected_reply()) }
}

/// The error of a reply that is not from these scripts.
pub(super) fn unexpected_reply() -> Error {
    Error::new(ErrorKind::Reply, "the reply is not from the script for regions")
}
