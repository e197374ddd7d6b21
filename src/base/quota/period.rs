//! The units of periods in texts.

use core::fmt;

use super::NANOS_PER_SEC;

/// Unit names and lengths in nanoseconds, longest units first. `Display` prints the first name of a unit.
pub(super) const UNITS: [(&[&str], u64); 7] = [
    (&["d", "day", "days"], 86_400 * NANOS_PER_SEC),
    (&["h", "hr", "hour", "hours"], 3_600 * NANOS_PER_SEC),
    (&["min", "m", "mins", "minute", "minutes"], 60 * NANOS_PER_SEC),
    (&["s", "sec", "secs", "second", "seconds"], NANOS_PER_SEC),
    (&["ms", "msec", "millisecond", "milliseconds"], 1_000_000),
    (&["us", "µs", "usec", "microsecond", "microseconds"], 1_000),
    (&["ns", "nsec", "nanosecond", "nanoseconds"], 1),
];

/// More names of units, which rules know too, in nanoseconds. A month has 30 days, and a year has 365. `Display` prints days,
/// so that the text of a quota stays the same.
pub(super) const LONG_UNITS: [(&[&str], u64); 3] = [
    (&["w", "week", "weeks"], 7 * 86_400 * NANOS_PER_SEC),
    (&["month", "months"], 30 * 86_400 * NANOS_PER_SEC),
    (&["y", "year", "years"], 365 * 86_400 * NANOS_PER_SEC),
];

/// A time in nanoseconds, written in the largest unit that gives a whole number: `250ms`.
pub(crate) struct PeriodText(pub(crate) u64);

impl fmt::Display for PeriodText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = if self.0 == 0 { (0, "s") } else { in_units(self.0) };
        write!(f, "{count}{unit}")
    }
}

/// Returns the period as a number of the largest unit that divides it.
pub(super) fn in_units(period_ns: u64) -> (u64, &'static str) {
    // The last unit is the nanosecond, which divides every period.
    let unit = UNITS.into_iter().find(|(_, unit_ns)| period_ns.is_multiple_of(*unit_ns));
    unit.map_or((period_ns, "ns"), |(names, unit_ns)| (period_ns / unit_ns, names[0]))
}
