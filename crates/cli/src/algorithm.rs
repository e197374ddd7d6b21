//! The algorithms by their names on the command line.

use std::num::NonZero;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tollgate::LimitKind;

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

/// Returns the algorithms that the program can replay through, in the order of its output.
pub fn named() -> impl Iterator<Item = LimitKind> {
    LimitKind::BY_NAME.iter().map(|(kind, _)| *kind)
}

/// Reads `--algorithm`: one algorithm, or `None` for all of them.
pub fn parser() -> impl TypedValueParser<Value = Option<LimitKind>> {
    let all = PossibleValue::new("all").help("All algorithms, side by side");
    let names = LimitKind::BY_NAME.iter().map(|(kind, help)| PossibleValue::new(kind.name()).help(help));
    PossibleValuesParser::new(std::iter::once(all).chain(names))
        .map(|name| named().find(|kind| kind.name() == name))
}

/// Returns the chosen algorithms with their settings, each once, in the order of [`LimitKind::BY_NAME`]. With no choice it returns
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
    named().filter(wanted).map(|kind| windows.of(kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_algorithms_run_once() {
        let [log, sub, gcra] = [LimitKind::SlidingLog, LimitKind::BY_NAME[6].0, LimitKind::Gcra];
        let windows = WindowOptions { sub_windows: 7, strict: true };
        let chosen = |choices: &[_], default: &[_]| chosen(choices, default, windows);
        let with_settings = LimitKind::SubWindow { parts: 7, strict: true };
        assert_eq!(chosen(&[Some(sub), Some(gcra), Some(sub)], &[]), [gcra, with_settings]);
        assert_eq!(chosen(&[None], &[]).len(), 7);
        assert_eq!(chosen(&[], &[log]), [log]);
    }
}
