//! The algorithms by their names on the command line.

use std::num::NonZero;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tollgate::LimitKind;

/// The algorithms that the program can replay through, in the order of its output, and their help.
pub const ALL: [(LimitKind, &str); 7] = [
    (LimitKind::Gcra, "Generic cell rate algorithm: one time per key; smooth, with a burst"),
    (LimitKind::TokenBucket, "Tokens refill continuously up to the burst; makes the same decisions as GCRA"),
    (
        LimitKind::LeakyBucketMeter,
        "A bucket of the burst's size that leaks at the limit's rate; makes the same decisions as GCRA",
    ),
    (
        LimitKind::FixedWindow,
        "A counter that restarts every period, counted from 1970; admits up to twice the limit around a boundary",
    ),
    (LimitKind::SlidingLog, "The times of the last admissions; exact in every window, 8 bytes per unit"),
    (
        LimitKind::SlidingWindow { strict: false },
        "The current window's count and a share of the previous one's; close to sliding-log, 16 bytes for the two counts",
    ),
    (LimitKind::SubWindow { parts: 60, strict: false }, "The window in equal parts that expire one by one"),
];

/// The settings of window algorithms.
#[derive(Args, Copy, Clone, Debug)]
pub struct WindowOptions {
    /// Number of parts of each window, for sub-window
    #[arg(long, value_name = "PARTS", default_value_t = 60, value_parser = parts, allow_negative_numbers = true, help_heading = "Limiter")]
    pub sub_windows: u32,

    /// Let sliding-window and sub-window round up, so that they deny more instead of admitting more
    ///
    /// sub-window then also counts the part of the window that has partly expired, and never admits more than the limit
    /// in any window; sliding-window requires room for the whole request (Cloudflare's algorithm rounds the other way).
    #[arg(id = "strict_windows", long = "strict-windows", help_heading = "Limiter")]
    pub strict: bool,
}

fn parts(text: &str) -> Result<u32, &'static str> {
    text.parse().map(NonZero::get).map_err(|_| "expected a whole number of parts, 1 or more")
}

impl WindowOptions {
    /// Returns an algorithm with these settings.
    fn of(self, kind: LimitKind) -> LimitKind {
        let Self { sub_windows: parts, strict } = self;
        match kind {
            LimitKind::SlidingWindow { .. } => LimitKind::SlidingWindow { strict },
            LimitKind::SubWindow { .. } => LimitKind::SubWindow { parts, strict },
            other => other,
        }
    }
}

/// Reads `--algorithm`: one algorithm, or `None` for all of them.
pub fn parser() -> impl TypedValueParser<Value = Option<LimitKind>> {
    let all = PossibleValue::new("all").help("All algorithms, side by side");
    let names = ALL.iter().map(|(kind, help)| PossibleValue::new(kind.name()).help(help));
    PossibleValuesParser::new(std::iter::once(all).chain(names))
        .map(|name| ALL.iter().map(|(kind, _)| *kind).find(|kind| kind.name() == name))
}

/// Returns the chosen algorithms with their settings, each once, in the order of [`ALL`]. With no choice it returns
/// `default`.
pub fn chosen(
    choices: &[Option<LimitKind>],
    default: &[LimitKind],
    windows: WindowOptions,
) -> Vec<LimitKind> {
    let wanted = |kind: &LimitKind| match choices {
        [] => default.contains(kind),
        _ => choices.contains(&None) || choices.contains(&Some(*kind)),
    };
    ALL.iter().map(|(kind, _)| *kind).filter(wanted).map(|kind| windows.of(kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_algorithms_run_once() {
        let [log, sub, gcra] = [LimitKind::SlidingLog, ALL[6].0, LimitKind::Gcra];
        let windows = WindowOptions { sub_windows: 7, strict: true };
        let chosen = |choices: &[_], default: &[_]| chosen(choices, default, windows);
        let with_settings = LimitKind::SubWindow { parts: 7, strict: true };
        assert_eq!(chosen(&[Some(sub), Some(gcra), Some(sub)], &[]), [gcra, with_settings]);
        assert_eq!(chosen(&[None], &[]).len(), 7);
        assert_eq!(chosen(&[], &[log]), [log]);
    }
}
