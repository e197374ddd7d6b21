//! The scripts at the server of a region: the commands that call them, and their replies.

use std::sync::LazyLock;

use ::redis::{Cmd, Value};

use super::call::{RegionCall, RegionQuestion, RegionReply};
use super::exchange::{LinkAges, LinkReport};
use super::policy::RegionPolicy;
use crate::edge::redis::protocol::model::MARGINS_US;
use crate::edge::redis::protocol::script::{By, ScriptText, add_time, numbers};
use crate::edge::redis::protocol::{Error, ErrorKind, Windows};

static SCRIPT: LazyLock<ScriptText> = LazyLock::new(|| {
    ScriptText::new(concat!(include_str!("../protocol/now.lua"), include_str!("region.lua")))
});
/// Numbers in the script stay below this.
const MOST: u64 = (1 << 53) - 1;

/// Builds the command that calls the script. Without `now_us`, the server's time counts.
pub fn command(call: &RegionCall, now_us: Option<u64>, by: By) -> Cmd {
    let terms = &*call.terms;
    let Windows { limit, period_us, unit_us, .. } = terms.windows;
    let policy = match terms.policy {
        RegionPolicy::Share => "share",
        RegionPolicy::AsLastKnown => "known",
    };
    let mut command = SCRIPT.call(by, 1);
    command.arg(&*call.name);
    add_time(&mut command, now_us)
        .arg(MARGINS_US[usize::from(now_us.is_some())] / 1_000)
        .arg(terms.windows.kind())
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

static LINKS: LazyLock<ScriptText> = LazyLock::new(|| {
    ScriptText::new(concat!(include_str!("../protocol/now.lua"), include_str!("links.lua")))
});

/// Builds the command that reports the calls to other regions. Without `now_us`, the server's time counts.
pub fn links(report: &LinkReport, now_us: Option<u64>, by: By) -> Cmd {
    let mut command = LINKS.call(by, 1);
    command.arg(&*report.name);
    add_time(&mut command, now_us).arg(report.life_us.div_ceil(1_000));
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
    let numbers = numbers(value).ok_or_else(unexpected_reply)?;
    let ages = numbers.chunks_exact(3).map(|ages| [ages[0], ages[1], ages[2]].map(|age| age.checked_sub(1)));
    let ages: Vec<LinkAges> = ages.collect();
    if ages.len() == report.links.len() { Ok(ages) } else { Err(unexpected_reply()) }
}

/// Parses the reply of a server.
///
/// # Errors
/// Returns an error if the reply is not from the script.
pub fn reply(value: &Value) -> Result<RegionReply, Error> {
    match numbers(value).as_deref() {
        Some(&[granted, now_us, index, own, before, used, room, round, known, known_before]) => {
            let (own, known) = ([own, before], [known, known_before]);
            Ok(RegionReply { granted, now_us, index, own, used, room, round, known })
        }
        _ => Err(unexpected_reply()),
    }
}

fn unexpected_reply() -> Error {
    Error::new(ErrorKind::Reply, "the reply is not from the script for regions")
}
