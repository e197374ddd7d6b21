//! Limits as text: `100/min burst 20`, `sub-window(60, strict) 500/h`. The type's documentation has the table.
//!
//! ```text
//! limit     = [ name [ "(" option { "," option } ")" ] ] quota [ "block" period [ "to" period ] ]
//!           | "minimum-spacing" period
//! ```

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::{Block, Limit, LimitKind};
use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::quota::{PeriodText, Quota, QuotaError, Reason, TextForm, parse_number, parse_period};

/// The most options in one pair of parentheses, and one more.
const MOST_OPTIONS: usize = 4;

const NAMES: &str = "a number of units, or the name of an algorithm (gcra, token-bucket, leaky-bucket, fixed-window, \
                     sliding-window, sub-window, sliding-log or minimum-spacing), at the beginning";
const NAME_END: &str = "a space after the name of the algorithm";
const CLOSED: &str = "a \")\" after the options of the algorithm";
const NO_BURST: &str = "no burst, because this algorithm has none: it counts up to the limit";
const NO_TEXT: &str =
    "another algorithm: a calendar has no text; build a CalendarWindow in code, or write period in rules";
const PARTS: &str = "a whole number of parts in the parentheses, as in sub-window(60)";

impl fmt::Display for Limit {
    /// Writes the shortest text that parses back to the same limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.name();
        match self.kind {
            LimitKind::Gcra => {}
            LimitKind::MinimumSpacing { spacing } => {
                return write!(f, "{name} {}", PeriodText(saturating_nanos(spacing)));
            }
            LimitKind::TokenBucket
            | LimitKind::LeakyBucketMeter
            | LimitKind::FixedWindow
            | LimitKind::SlidingWindow { strict: false }
            | LimitKind::SlidingLog => write!(f, "{name}")?,
            LimitKind::IntervalBucket => write!(f, "{name}(interval)")?,
            LimitKind::AlignedBucket { at, adaptive } => {
                write!(f, "{name}(aligned")?;
                if at != Timestamp::ZERO {
                    write!(f, ", at {}", PeriodText(at.as_nanos()))?;
                }
                f.write_str(if adaptive { ", adaptive)" } else { ")" })?;
            }
            LimitKind::LeakyBucketQueue => write!(f, "{name}(queue)")?,
            LimitKind::FirstUseWindow => write!(f, "{name}(first-use)")?,
            LimitKind::CalendarWindow { calendar } => {
                return write!(f, "{name}({calendar}) {}", self.quota.limit());
            }
            LimitKind::SlidingWindow { strict: true } => write!(f, "{name}(strict)")?,
            LimitKind::SubWindow { parts, strict: false } => write!(f, "{name}({parts})")?,
            LimitKind::SubWindow { parts, strict: true } => write!(f, "{name}({parts}, strict)")?,
        }
        if self.kind != LimitKind::Gcra {
            f.write_str(" ")?;
        }
        self.quota.fmt(f)?;
        let Some(block) = self.block else { return Ok(()) };
        let [first, longest] =
            [block.first(), block.longest()].map(|length| PeriodText(saturating_nanos(length)));
        write!(f, " block {first}")?;
        if block.longest() > block.first() { write!(f, " to {longest}") } else { Ok(()) }
    }
}

impl FromStr for Limit {
    type Err = QuotaError;

    /// Parses a text such as `100/min burst 20`, `sliding-log 3/10s` or `sub-window(60, strict) 500/h`. The type's
    /// documentation lists all forms.
    ///
    /// # Errors
    /// Returns an error if the text has another form, a number is above `u64::MAX`, or the algorithm cannot hold the
    /// quota. The error contains the text and what was expected.
    fn from_str(text: &str) -> Result<Self, QuotaError> {
        parse(text).map_err(|reason| QuotaError::in_text(reason, text, TextForm::Limit))
    }
}

fn parse(text: &str) -> Result<Limit, Reason> {
    match text.split_once(" block ") {
        Some((limit, block)) => parse_without_block(limit)?.blocking(parse_block(block)?),
        None => parse_without_block(text),
    }
}

fn parse_block(text: &str) -> Result<Block, Reason> {
    let length = |text: &str| parse_period(text.trim()).map(Duration::from_nanos);
    match text.split_once(" to ") {
        Some((first, longest)) => Ok(Block::of(length(first)?).at_most(length(longest)?)),
        None => Ok(Block::of(length(text)?)),
    }
}

fn parse_without_block(text: &str) -> Result<Limit, Reason> {
    let text = text.trim();
    if !text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Ok(Limit::gcra(Quota::parse(text)?));
    }
    let end = text.find(|c: char| !(c.is_ascii_alphabetic() || c == '-')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let ends = rest.is_empty() || rest.starts_with('(') || rest.starts_with(char::is_whitespace);
    if !ends && options_of(name) != NAMES {
        return Err(Reason::Syntax { expected: NAME_END });
    }
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').ok_or(Reason::Syntax { expected: CLOSED })?,
        None => ("", rest),
    };
    let options: Vec<&str> = match options.trim() {
        "" => Vec::new(),
        options => options.splitn(MOST_OPTIONS, ',').map(str::trim).collect(),
    };
    if name == "minimum-spacing" && options.is_empty() {
        return Ok(Limit::spacing(Duration::from_nanos(parse_period(rest.trim())?)));
    }
    let kind = kind(name, &options)?;
    let quota = Quota::parse(rest)?;
    if !kind.has_burst() && quota.burst_size() != quota.limit() {
        return Err(Reason::Syntax { expected: NO_BURST });
    }
    Limit::checked(kind, quota)
}

fn kind(name: &str, options: &[&str]) -> Result<LimitKind, Reason> {
    Ok(match (name, options) {
        ("gcra", []) => LimitKind::Gcra,
        ("token-bucket", []) => LimitKind::TokenBucket,
        ("token-bucket", ["interval"]) => LimitKind::IntervalBucket,
        ("token-bucket", ["aligned"]) => LimitKind::AlignedBucket { at: Timestamp::ZERO, adaptive: false },
        ("token-bucket", ["aligned", "adaptive"]) => {
            LimitKind::AlignedBucket { at: Timestamp::ZERO, adaptive: true }
        }
        ("token-bucket", ["aligned", at]) => LimitKind::AlignedBucket { at: time(at)?, adaptive: false },
        ("token-bucket", ["aligned", at, "adaptive"]) => {
            LimitKind::AlignedBucket { at: time(at)?, adaptive: true }
        }
        ("leaky-bucket", []) => LimitKind::LeakyBucketMeter,
        ("leaky-bucket", ["queue"]) => LimitKind::LeakyBucketQueue,
        ("fixed-window", []) => LimitKind::FixedWindow,
        ("fixed-window", ["first-use"]) => LimitKind::FirstUseWindow,
        ("sliding-window", []) => LimitKind::SlidingWindow { strict: false },
        ("sliding-window", ["strict"]) => LimitKind::SlidingWindow { strict: true },
        ("sub-window", []) => LimitKind::SubWindow { parts: LimitKind::PARTS, strict: false },
        ("sub-window", ["strict"]) => LimitKind::SubWindow { parts: LimitKind::PARTS, strict: true },
        ("sub-window", [parts]) => LimitKind::SubWindow { parts: number(parts)?, strict: false },
        ("sub-window", [parts, "strict"]) => LimitKind::SubWindow { parts: number(parts)?, strict: true },
        ("sliding-log", []) => LimitKind::SlidingLog,
        _ => return Err(Reason::Syntax { expected: options_of(name) }),
    })
}

fn number(parts: &str) -> Result<u32, Reason> {
    // A number that is too large for 32 bits gives the same error as one that is too large for the counter.
    parse_number(parts, PARTS).map(|parts| u32::try_from(parts).unwrap_or(u32::MAX))
}

fn time(option: &str) -> Result<Timestamp, Reason> {
    let expected = options_of("token-bucket");
    let period = option.strip_prefix("at ").ok_or(Reason::Syntax { expected })?;
    Ok(Timestamp::from_nanos(parse_period(period.trim())?))
}

/// The options that an algorithm has, for errors.
fn options_of(name: &str) -> &'static str {
    match name {
        "gcra" | "sliding-log" | "minimum-spacing" => "no parentheses after this algorithm",
        "token-bucket" => {
            "token-bucket, token-bucket(interval), token-bucket(aligned) or token-bucket(aligned, at 8h, adaptive)"
        }
        "leaky-bucket" => "leaky-bucket or leaky-bucket(queue)",
        "calendar-window" => NO_TEXT,
        "fixed-window" => "fixed-window or fixed-window(first-use)",
        "sliding-window" => "sliding-window or sliding-window(strict)",
        "sub-window" => "sub-window(60) or sub-window(60, strict)",
        _ => NAMES,
    }
}
