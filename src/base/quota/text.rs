//! Quotas as text: `100/60s`, `5/min burst 20`, `1000/h`.
//!
//! ```text
//! quota  = limit "/" period [ "burst" limit ]
//! limit  = digits, "_" allowed between them
//! period = [ digits ] unit                     without digits: one unit
//! unit   = ns | us | ms | s | min | h | d      and their long names
//!        | w | month | y                       7, 30 and 365 days
//! ```

use core::fmt;
use core::str::FromStr;

use super::period::{LONG_UNITS, UNITS, in_units};
use super::{Quota, QuotaError, Reason, TextForm};

impl fmt::Display for Quota {
    /// Writes the shortest text that parses back to the same quota.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match in_units(self.period_ns) {
            (1, unit) => write!(f, "{}/{unit}", self.limit)?,
            (count, unit) => write!(f, "{}/{count}{unit}", self.limit)?,
        }
        if self.burst != self.limit {
            write!(f, " burst {}", self.burst)?;
        }
        Ok(())
    }
}

impl FromStr for Quota {
    type Err = QuotaError;

    /// Parses a text such as `100/60s`, `5/min burst 20` or `1000/month`. Without `burst`, the burst is the limit. A month has
    /// 30 days, and a year has 365, as in files of rules.
    ///
    /// # Errors
    /// Returns an error if the text has another form, a number is above `u64::MAX`, or the quota is not valid (see
    /// [`Quota`]).
    fn from_str(text: &str) -> Result<Self, QuotaError> {
        Self::parse(text).map_err(|reason| QuotaError::in_text(reason, text, TextForm::Quota))
    }
}

impl Quota {
    pub(crate) fn parse(text: &str) -> Result<Self, Reason> {
        let (limit, rest) = text
            .split_once('/')
            .ok_or(Reason::Syntax { expected: "a \"/\" between the limit and the period" })?;
        let limit = parse_number(limit.trim(), "a whole number of units before the \"/\"")?;
        let (period, burst) = match rest.split_once("burst") {
            Some((period, burst)) => {
                (period, Some(parse_number(burst.trim(), "a whole number of units after \"burst\"")?))
            }
            None => (rest, None),
        };
        let period_ns =
            period_in(period.trim(), "a period such as 60s, min, 100ms, 12h or 7d after the \"/\"")?;
        Self::checked(limit, period_ns, burst.unwrap_or(limit))
    }
}

/// Parses a period without a quota, such as `250ms`, into nanoseconds.
///
/// # Errors
/// If the text is no period.
pub fn parse_period(text: &str) -> Result<u64, Reason> {
    period_in(text, "a period such as 250ms, 10s or 8h")
}

fn period_in(text: &str, expected: &'static str) -> Result<u64, Reason> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let unit_ns = UNITS
        .into_iter()
        .chain(LONG_UNITS)
        .find_map(|(names, unit_ns)| names.contains(&unit).then_some(unit_ns))
        .ok_or(Reason::Syntax { expected })?;
    let count = if count.is_empty() { 1 } else { parse_number(count, "a whole number before the unit")? };
    count.checked_mul(unit_ns).ok_or(Reason::NumberTooLarge)
}

/// Parses a whole decimal number, with single underscores between digits.
pub(crate) fn parse_number(text: &str, expected: &'static str) -> Result<u64, Reason> {
    let mut value: u64 = 0;
    let mut after_digit = false;
    for c in text.chars() {
        match c.to_digit(10) {
            Some(digit) => {
                value = value
                    .checked_mul(10)
                    .and_then(|value| value.checked_add(u64::from(digit)))
                    .ok_or(Reason::NumberTooLarge)?;
                after_digit = true;
            }
            None if c == '_' && after_digit => after_digit = false,
            None => return Err(Reason::Syntax { expected }),
        }
    }
    if after_digit { Ok(value) } else { Err(Reason::Syntax { expected }) }
}
