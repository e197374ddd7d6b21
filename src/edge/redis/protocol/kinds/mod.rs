//! The kinds of limits that scripts count, as integers, and the texts of the scripts.
//!
//! Times are whole microseconds, so a period or a part that is not a whole number of them is an error, which names the
//! nearest values that work. Only a spacing is rounded, up, which denies more and never admits more.

use std::time::Duration;

use super::exact::{EXACT, MOST, above, period_us};
use crate::algorithm::SubWindow;
use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::quota::{Quota, QuotaError};

const BEGIN: &str = concat!(include_str!("../now.lua"), include_str!("begin.lua"));
const DECIDE: &str = include_str!("decide.lua");
/// The line of a kind's text before which the script decides.
const DECISION: &str = "-- The decision is between these two parts.\n";

/// The kinds with their texts. A script contains the texts that its plan needs.
const TEXTS: [(&[&str], &str); 6] = [
    (&["g"], include_str!("pace.lua")),
    (&["f", "s", "S"], include_str!("windows.lua")),
    (&["l"], include_str!("log.lua")),
    (&["p", "P"], include_str!("parts.lua")),
    (&["m"], include_str!("spacing.lua")),
    (&["i", "a", "A"], include_str!("batches.lua")),
];

/// The form of a script. Redis makes each function and each table of a script again at each call, so a script for one limit
/// has no function, and no table except the reply.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Decides one limit.
    One,
    /// Decides several limits.
    All,
    /// Adds the units of a post.
    Post,
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
    /// The kind of this index.
    pub(super) const fn of(text: u8) -> Self {
        Self(1 << text)
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    fn texts(self) -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
        (0..).zip(TEXTS).filter(move |(text, _)| self.0 & (1 << text) != 0).map(|(_, text)| text)
    }

    /// Returns the script of this form for these kinds.
    pub(super) fn script(self, form: Form) -> String {
        if form == Form::One { self.one() } else { self.several(form) }
    }

    fn one(self) -> String {
        let mut script = BEGIN.to_owned();
        for (_, text) in self.texts() {
            let (reads, writes) = text.split_once(DECISION).unwrap_or((text, ""));
            script.extend([
                "local key, at, kind = KEYS[1], 5, argv[5]\n\
                 local room, space, back, healed, add, r1, r2, r3, r4 = 0, 0, 0, false, 0, nil, nil, nil, nil\n",
                reads,
                "local left = room\n",
                DECIDE,
                include_str!("one.lua"),
                writes,
            ]);
        }
        script.push_str("return { granted, now, r1, r2, r3, r4 }\n");
        script
    }

    /// A kind's first part is a function that returns its second part as a function.
    fn several(self, form: Form) -> String {
        let mut script = [BEGIN, "local kinds = {}\n"].concat();
        for (names, text) in self.texts() {
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
        if form == Form::Post {
            script.push_str(include_str!("post.lua"));
        } else {
            script.extend([DECIDE, include_str!("all.lua")]);
        }
        script.push_str(include_str!("reply.lua"));
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
        if limit > Self::MOST {
            return Err(above(NAME, quota, "limit", Self::MOST));
        }
        let count = u64::from(parts.max(1));
        if !period_us.is_multiple_of(count) {
            let divides = |parts: &u32| period_us.is_multiple_of((*parts).into());
            let fewer = (1..parts).rev().find(divides).unwrap_or(1);
            let more = (parts..=SubWindow::MAX_PARTS).find(divides);
            let more = more.map_or(String::new(), |more| format!(" and {more}"));
            return Err(QuotaError::worded(format!(
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
            return Err(QuotaError::worded(format!(
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
        let new = Self {
            capacity: quota.limit(),
            period_us: period_us("fixed window", quota)?,
            batch: Self::ALL,
            phase_us: None,
            adaptive: false,
        };
        if new.capacity > MOST { Err(above("fixed window", quota, "limit", MOST)) } else { Ok(new) }
    }

    /// A token bucket. Aligned periods end at `at`.
    pub(super) fn bucket(quota: &Quota, aligned: Option<(Timestamp, bool)>) -> Result<Self, QuotaError> {
        const NAME: &str = "token bucket";
        let period_us = period_us(NAME, quota)?;
        for (what, units) in [("limit", quota.limit()), ("burst", quota.burst_size())] {
            if units > MOST {
                return Err(above(NAME, quota, what, MOST));
            }
        }
        let (capacity, batch) = (quota.burst_size(), quota.limit());
        let mut new = Self { capacity, period_us, batch, phase_us: None, adaptive: false };
        let Some((at, adaptive)) = aligned else { return Ok(new) };
        let at_ns = at.as_nanos();
        if !at_ns.is_multiple_of(1_000) {
            return Err(QuotaError::worded(format!(
                "shared {NAME} of {quota}, aligned to {at:?}: the time must be a whole number of microseconds; the \
                 nearest are {:?} and {:?}",
                Timestamp::from_nanos(at_ns - at_ns % 1_000),
                Timestamp::from_nanos(at_ns.next_multiple_of(1_000)),
            )));
        }
        let most = (EXACT - 1) / period_us;
        if adaptive && batch > most {
            return Err(above("token bucket with an adaptive start", quota, "limit", most));
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
