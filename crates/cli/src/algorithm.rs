//! The algorithms by their names on the command line.

use std::num::NonZero;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::human;

/// An algorithm that the program can replay through.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum AlgorithmName {
    /// Generic cell rate algorithm: one time per key; smooth, with a burst
    Gcra,
    /// Tokens refill continuously up to the burst; makes the same decisions as GCRA
    TokenBucket,
    /// A bucket of the burst's size that leaks at the limit's rate; makes the same decisions as GCRA
    LeakyBucket,
    /// A counter that restarts every period, counted from 1970; admits up to twice the limit around a boundary
    FixedWindow,
    /// The times of the last admissions; exact in every window, 8 bytes per unit
    SlidingLog,
    /// The current window's count and a share of the previous one's; close to sliding-log, 16 bytes for the two counts
    SlidingWindow,
    /// The window in equal parts that expire one by one
    SubWindow,
}

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

impl AlgorithmName {
    /// The name used on the command line and in JSON.
    pub fn name(self) -> String {
        human::name(self)
    }

    /// Returns whether a quota's burst matters to the algorithm. Window algorithms ignore the burst.
    pub fn heeds_burst(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucket)
    }
}

/// The values of `--algorithm`: all algorithms, or one.
fn values() -> impl Iterator<Item = PossibleValue> {
    let all = PossibleValue::new("all").help("All algorithms, side by side");
    std::iter::once(all)
        .chain(AlgorithmName::value_variants().iter().filter_map(ValueEnum::to_possible_value))
}

/// Reads `--algorithm`: one algorithm, or `None` for all of them.
pub fn parser() -> impl TypedValueParser<Value = Option<AlgorithmName>> {
    PossibleValuesParser::new(values()).map(|name| AlgorithmName::from_str(&name, false).ok())
}

/// Returns the chosen algorithms, each once, in the order of [`AlgorithmName`]. With no choice it returns `default`.
pub fn chosen(choices: &[Option<AlgorithmName>], default: &[AlgorithmName]) -> Vec<AlgorithmName> {
    if choices.is_empty() {
        return default.to_vec();
    }
    let wanted = |name: &AlgorithmName| choices.contains(&None) || choices.contains(&Some(*name));
    AlgorithmName::value_variants().iter().copied().filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithm_names_match_flags() {
        let names: Vec<String> = AlgorithmName::value_variants().iter().map(|name| name.name()).collect();
        assert_eq!(names.len() + 1, values().count());
        for (value, name) in values().skip(1).zip(names) {
            assert_eq!(value.get_name(), name);
        }
    }

    #[test]
    fn repeated_algorithms_run_once() {
        let twice =
            [Some(AlgorithmName::SubWindow), Some(AlgorithmName::Gcra), Some(AlgorithmName::SubWindow)];
        assert_eq!(chosen(&twice, &[]), [AlgorithmName::Gcra, AlgorithmName::SubWindow]);
        assert_eq!(chosen(&[None], &[]).len(), 7);
        assert_eq!(chosen(&[], &[AlgorithmName::Gcra]), [AlgorithmName::Gcra]);
    }
}
