//! Limits as text: `100/min burst 20`, `sub-window(60, strict) 500/h`. `kind` has the names and options.
//!
//! ```text
//! limit     = [ name [ "(" option { "," option } ")" ] ] quota [ "block" period [ "to" period ] ]
//!           | "minimum-spacing" period
//! ```

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::{Block, Limit, kind};
use crate::base::clock::saturating_nanos;
use crate::base::quota::{PeriodText, Quota, QuotaError, Reason, TextForm, parse_period};

/// The most options in one pair of parentheses, and one more.
const MOST_OPTIONS: usize = 4;

const NAME_END: &str = "a space after the name of the algorithm";
const CLOSED: &str = "a \")\" after the options of the algorithm";

impl fmt::Display for Limit {
    /// Writes the shortest text that parses back to the same limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.write(self.quota, f)?;
        let Some(block) = self.block else { return Ok(()) };
        let [first, longest] =
            [block.first(), block.longest()].map(|length| PeriodText(saturating_nanos(length)));
        write!(f, " block {first}")?;
        if block.longest() > block.first() { write!(f, " to {longest}") } else { Ok(()) }
    }
}

impl FromStr for Limit {
    type Err = QuotaError;

    /// Parses a text such as `100/min burst 20`, `sliding-log 3/10s` or `sub-window(60, strict) 500/h`. [`LimitKind`](super::LimitKind)
    /// lists all forms.
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
    if !ends && kind::is_name(name) {
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
    kind::parse(name, &options, rest)
}
