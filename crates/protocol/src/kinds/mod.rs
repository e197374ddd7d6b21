//! The kinds of limits that scripts count, as integers, and the texts of the scripts.
//!
//! Times are whole microseconds, so a period or a part that is not a whole number of them is an error, which names the
//! nearest values that work. Only a spacing is rounded, up, which denies more and never admits more.

mod blocked;
mod calendar;
mod pace;

use std::time::Duration;

use tollgate::internals::quota_error;
use tollgate::internals::saturating_nanos;
use tollgate::{Quota, QuotaError, SubWindow, Timestamp};

pub(crate) use self::blocked::Blocks;
pub(crate) use self::calendar::CalendarPeriods;
pub use self::pace::Pace;
use super::exact::{EXACT, MOST, at_most, period_us};

const BEGIN: &str = concat!(include_str!("../now.lua"), include_str!("begin.lua"));
const CHECK: &str = include_str!("check.lua");
const DECIDE: &str = include_str!("decide.lua");
/// The line of a kind's text before which the script decides.
const DECISION: &str = "-- The decision is between these two parts.\n";

/// The names of the kinds.
const KINDS: [&str; 13] = ["g", "f", "s", "S", "l", "p", "P", "m", "i", "a", "A", "c", "b"];
/// The kinds that one text counts, how many numbers a reply has, and the text. A script contains the texts that its plan
/// needs.
const TEXTS: [(&[&str], usize, &str); 8] = [
    (&["g"], 1, include_str!("pace.lua")),
    (&["f", "s", "S"], 3, include_str!("windows.lua")),
    (&["l"], 4, include_str!("log.lua")),
    (&["p", "P"], 4, include_str!("parts.lua")),
    (&["m"], 4, include_str!("spacing.lua")),
    (&["i", "a", "A"], 2, include_str!("batches.lua")),
    (&["c"], 2, include_str!("calendar.lua")),
    (&["b"], 2, include_str!("blocked.lua")),
];

/// The index of the text that counts this kind.
fn text_of(kind: &str) -> usize {
    TEXTS.iter().position(|(kinds, ..)| kinds.contains(&kind)).unwrap_or(0)
}

/// The questions that a script for one or two limits answers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Questions {
    /// A check at the server's time.
    Check,
    /// Any question except a post.
    Any,
}

/// The kinds of one or two limits, by their names. Redis makes each function and each table of a script again at each
/// call, so a script for these kinds has no function, and no table except the reply.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct KindPair {
    first: usize,
    second: Option<usize>,
}

impl KindPair {
    /// The number of different values.
    pub(super) const COUNT: usize = KINDS.len() * (KINDS.len() + 1);

    /// Returns the pair, if there are one or two kinds.
    pub(super) fn of(kinds: impl Iterator<Item = &'static str>) -> Option<Self> {
        let mut indices = kinds.map(|kind| KINDS.iter().position(|name| *name == kind).unwrap_or(0));
        match (indices.next(), indices.next(), indices.next()) {
            (Some(first), second, None) => Some(Self { first, second }),
            _ => None,
        }
    }

    pub(super) fn index(self) -> usize {
        self.first * (KINDS.len() + 1) + self.second.unwrap_or(KINDS.len())
    }

    /// Returns the script. The text of the first limit encloses that of the second, so that both are read before the
    /// decision, and written after it.
    ///
    /// `numbers` are how many numbers each limit has in the arguments, and `margin_ms` is that of the server's time.
    pub(super) fn script(self, questions: Questions, numbers: usize, margin_ms: u64) -> String {
        let (mut script, decide, at) = match questions {
            Questions::Check => (
                format!("{CHECK}local margin = {margin_ms}\n"),
                "if a <= left then units = a else cost = a end\n",
                1,
            ),
            Questions::Any => (BEGIN.to_owned(), DECIDE, 4),
        };
        script.push_str("local left, spaces, backs, x1, x2, x3, x4, y1, y2, y3, y4 = EXACT, 0, 0\n");
        let mut ends = Vec::new();
        let (mut reply, mut numbers_of_reply) = ("granted, now".to_owned(), 2);
        for (limit, kind) in [Some(self.first), self.second].into_iter().flatten().enumerate() {
            let name = KINDS[kind];
            let (_, figures, text) = TEXTS[text_of(name)];
            let (reads, writes) = text.split_once(DECISION).unwrap_or((text, ""));
            let at = at + limit * numbers;
            // The figures are visible at the end in outer variables.
            let of_figures = |letter: &str| {
                (1..=figures).map(|figure| format!("{letter}{figure}")).collect::<Vec<_>>().join(", ")
            };
            let outer = of_figures(["x", "y"][limit]);
            script.extend([
                &format!("do\nlocal key, kind = KEYS[{}], '{name}'\n", limit + 1),
                "local room, space, back, healed, add, r1, r2, r3, r4 = 0, 0, 0, false, 0, nil, nil, nil, nil\n",
                &placed(reads, at),
                "left, spaces, backs = min(left, room), max(spaces, space), max(backs, back)\n",
            ]);
            ends.push(format!(
                "if units then add = min(units, space) end\n{}{outer} = {}\nend\n",
                placed(writes, at),
                of_figures("r")
            ));
            reply.extend([", ", &outer]);
            numbers_of_reply += figures;
        }
        script.extend([
            decide,
            "granted = backs\nif units then granted = max(backs, min(units, spaces)) end\n",
        ]);
        script.extend(ends.into_iter().rev());
        script.push_str(&match questions {
            Questions::Check => {
                format!("return struct.pack('>{}', {reply})\n", "I8".repeat(numbers_of_reply))
            }
            Questions::Any => format!("return {{ {reply} }}\n"),
        });
        script
    }
}

/// Returns a text with the places of the limit's numbers, which follow the argument `at`.
fn placed(text: &str, at: usize) -> String {
    (1..=4).fold(text.to_owned(), |text, number| {
        text.replace(&format!("argv[at + {number}]"), &format!("argv[{}]", at + number))
    })
}

/// The form of a script for any kinds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Answers any question except a post.
    All,
    /// Adds the units of a post.
    Post,
    /// Answers a question about holds.
    Holds,
}

/// A set of kinds, as indices into [`TEXTS`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct KindSet(u8);

/// The exact log: at most `limit` units in any period.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Log {
    pub(crate) limit: u64,
    pub(crate) period_us: u64,
}

/// The sub-window counter: at most `limit` units in the last `parts` parts, the present one included.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    pub(crate) limit: u64,
    /// The length of a part.
    pub(crate) part_us: u64,
    pub(crate) parts: u64,
    /// Whether the part before those also counts.
    pub(crate) strict: bool,
}

/// Minimum spacing between two requests.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spacing {
    pub(crate) spacing_us: u64,
}

/// Token buckets that refill in batches, and windows from first use.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Batches {
    pub(crate) capacity: u64,
    pub(crate) period_us: u64,
    /// The units that return at the end of each period. For windows, more than any number of used units.
    pub(crate) batch: u64,
    /// For aligned periods, the end of the first one.
    pub(crate) phase_us: Option<u64>,
    /// Whether a new key starts with a share of a batch.
    pub(crate) adaptive: bool,
}

impl KindSet {
    /// The number of sets.
    pub(super) const COUNT: usize = 1 << TEXTS.len();
    /// The set of the texts that count these kinds. It is empty for a script that counts only holds.
    pub(super) fn of(kinds: impl Iterator<Item = &'static str>) -> Self {
        Self(kinds.fold(0, |set, kind| set | 1 << text_of(kind)))
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the script of this form for these kinds. A kind's first part is a function that returns its second part as
    /// a function.
    pub(super) fn script(self, form: Form) -> String {
        let mut script = [BEGIN, "local kinds = {}\n"].concat();
        for (index, (names, _, text)) in TEXTS.into_iter().enumerate() {
            if self.0 & (1 << index) == 0 {
                continue;
            }
            let (reads, writes) = text.split_once(DECISION).unwrap_or((text, ""));
            script.extend([
                "local function read(key, at, kind)\nlocal room, space, back, healed = 0, 0, 0, false\n",
                reads,
                "return room, space, back, function(add, reply, size)\nlocal r1, r2, r3, r4\n",
                writes,
                "reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = r1, r2, r3, r4\nend\nend\n",
            ]);
            script.extend(names.iter().map(|name| format!("kinds.{name} = read\n")));
        }
        script.push_str(include_str!("read.lua"));
        let reply = include_str!("reply.lua");
        script.extend(match form {
            Form::All => [DECIDE, include_str!("all.lua"), reply],
            Form::Post => [include_str!("post.lua"), "", reply],
            Form::Holds => [include_str!("holds.lua"), include_str!("all.lua"), include_str!("held.lua")],
        });
        script
    }
}

impl Parts {
    /// The most units of all parts together. Each count has six bytes.
    pub(crate) const MOST: u64 = (1 << 48) - 1;

    pub(super) fn new(quota: &Quota, parts: u32, strict: bool) -> Result<Self, QuotaError> {
        const NAME: &str = "sub-window counter";
        let period_us = period_us(NAME, quota)?;
        let limit = quota.limit();
        at_most(NAME, quota, "limit", Self::MOST, limit)?;
        let count = u64::from(parts.max(1));
        if !period_us.is_multiple_of(count) {
            let divides = |parts: &u32| period_us.is_multiple_of((*parts).into());
            let fewer = (1..parts).rev().find(divides).unwrap_or(1);
            let more = (parts..=SubWindow::MAX_PARTS).find(divides);
            let more = more.map_or(String::new(), |more| format!(" and {more}"));
            return Err(quota_error(format!(
                "shared {NAME} of {quota} in {parts} parts: a part must be a whole number of microseconds, because the \
                 server counts time in microseconds; the nearest numbers of parts are {fewer}{more}"
            )));
        }
        Ok(Self { limit, part_us: period_us / count, parts: count, strict })
    }

    /// The number of parts before the present one that count.
    pub(crate) const fn history(&self) -> u64 {
        if self.strict { self.parts } else { self.parts - 1 }
    }
}

impl Spacing {
    /// Rounds the spacing up to whole microseconds.
    pub(super) fn new(spacing: Duration) -> Result<Self, QuotaError> {
        let spacing_us = saturating_nanos(spacing).div_ceil(1_000);
        if spacing_us == 0 || spacing_us > MOST {
            return Err(quota_error(format!(
                "shared minimum spacing of {spacing:?}: the spacing must be from 1 microsecond to 71 years"
            )));
        }
        Ok(Self { spacing_us })
    }
}

impl Batches {
    /// The batch that returns all units.
    pub(crate) const ALL: u64 = EXACT - 1;

    /// Windows from first use.
    pub(super) fn windows(quota: &Quota) -> Result<Self, QuotaError> {
        let (capacity, period_us) = (quota.limit(), period_us("fixed window", quota)?);
        at_most("fixed window", quota, "limit", MOST, capacity)?;
        Ok(Self { capacity, period_us, batch: Self::ALL, phase_us: None, adaptive: false })
    }

    /// A token bucket. Aligned periods end at `at`.
    pub(super) fn bucket(quota: &Quota, aligned: Option<(Timestamp, bool)>) -> Result<Self, QuotaError> {
        const NAME: &str = "token bucket";
        let period_us = period_us(NAME, quota)?;
        let (capacity, batch) = (quota.burst_size(), quota.limit());
        at_most(NAME, quota, "limit", MOST, batch)?;
        at_most(NAME, quota, "burst", MOST, capacity)?;
        let mut new = Self { capacity, period_us, batch, phase_us: None, adaptive: false };
        let Some((at, adaptive)) = aligned else { return Ok(new) };
        let at_ns = at.as_nanos();
        if !at_ns.is_multiple_of(1_000) {
            return Err(quota_error(format!(
                "shared {NAME} of {quota}, aligned to {at:?}: the time must be a whole number of microseconds; the \
                 nearest are {:?} and {:?}",
                Timestamp::from_nanos(at_ns - at_ns % 1_000),
                Timestamp::from_nanos(at_ns.next_multiple_of(1_000)),
            )));
        }
        if adaptive {
            at_most("token bucket with an adaptive start", quota, "limit", (EXACT - 1) / period_us, batch)?;
        }
        new.phase_us = Some(at_ns / 1_000 % period_us);
        new.adaptive = adaptive;
        Ok(new)
    }

    /// The used units of a new key.
    pub(crate) fn first_used(&self, ends_us: u64, now_us: u64) -> u64 {
        if !self.adaptive {
            return 0;
        }
        let share = ends_us.saturating_sub(now_us).min(self.period_us) * self.batch / self.period_us;
        self.capacity - self.capacity.min(self.capacity.saturating_sub(self.batch) + share)
    }

    /// The end of the period that contains this time, for a bucket without used units.
    pub(crate) const fn end_us(&self, now_us: u64) -> u64 {
        match self.phase_us {
            None => now_us + self.period_us,
            Some(phase_us) if now_us < phase_us => phase_us,
            Some(phase_us) => phase_us + ((now_us - phase_us) / self.period_us + 1) * self.period_us,
        }
    }

    /// The number of periods after which no unit is used.
    pub(crate) const fn periods(&self, used: u64) -> u64 {
        used.div_ceil(self.batch)
    }
}

impl Log {
    pub(super) fn new(quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { limit: quota.limit(), period_us: period_us("sliding log", quota)? })
    }
}
