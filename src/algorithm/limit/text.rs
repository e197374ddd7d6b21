//! Limits as text: `100/min burst 20`, `sub-window(60, strict) 500/h`. The type's documentation has the table.
//!
//! ```text
//! limit     = [ name [ "(" option { "," option } ")" ] ] quota
//!           | "minimum-spacing" period
//! ```

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::{Limit, LimitKind};
use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::quota::{PeriodText, Quota, QuotaError, Reason, TextForm, parse_number, parse_period};

/// The most options in one pair of parentheses, and one more.
const MOST_OPTIONS: usize = 4;

const NAMES: &str = "a number of units, or the name of an algorithm (gcra, token-bucket, leaky-bucket, fixed-window, \
                     sliding-window, sub-window, sliding-log or minimum-spacing), at the beginning";
const NAME_END: &str = "a space after the name of the algorithm";
const CLOSED: &str = "a \")\" after the options of the algorithm";
const NO_BURST: &str = "no burst, because this algorithm has none: it counts up to the limit";
const PARTS: &str = "a whole number of parts in the parentheses, as in sub-window(60)";

impl fmt::Display for Limit {
    /// Writes the shortest text that parses back to the same limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.name();
        match self.kind {
            LimitKind::Gcra => return self.quota.fmt(f),
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
            LimitKind::SlidingWindow { strict: true } => write!(f, "{name}(strict)")?,
            LimitKind::SubWindow { parts, strict: false } => write!(f, "{name}({parts})")?,
            LimitKind::SubWindow { parts, strict: true } => write!(f, "{name}({parts}, strict)")?,
        }
        write!(f, " {}", self.quota)
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
        "fixed-window" => "fixed-window or fixed-window(first-use)",
        "sliding-window" => "sliding-window or sliding-window(strict)",
        "sub-window" => "sub-window(60) or sub-window(60, strict)",
        _ => NAMES,
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::{
        FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, MinimumSpacing, SlidingLog, SlidingWindow,
        SubWindow, TokenBucket,
    };

    #[test]
    fn algorithms_print_and_parse() {
        let hour = Quota::per_hour(400);
        let at = Timestamp::from_secs(86_400 + 8 * 3_600);
        for (limit, text) in [
            (Gcra::new(Quota::per_second(7).burst(20)).into(), "7/s burst 20"),
            (Limit::gcra(Quota::per_minute(10)), "10/min"),
            (Limit::token_bucket(Quota::per_minute(10).burst(2)), "token-bucket 10/min burst 2"),
            (TokenBucket::interval(hour).into(), "token-bucket(interval) 400/h"),
            (TokenBucket::aligned(hour, Timestamp::ZERO).into(), "token-bucket(aligned) 400/h"),
            (TokenBucket::aligned(Quota::per_day(9), at).into(), "token-bucket(aligned, at 8h) 9/d"),
            (
                TokenBucket::aligned_adaptive(hour.burst(500), Timestamp::from_secs(60)).into(),
                "token-bucket(aligned, at 1min, adaptive) 400/h burst 500",
            ),
            (
                TokenBucket::aligned_adaptive(hour, Timestamp::ZERO).into(),
                "token-bucket(aligned, adaptive) 400/h",
            ),
            (LeakyBucketMeter::new(Quota::per_second(1)).into(), "leaky-bucket 1/s"),
            (LeakyBucketQueue::new(Quota::per_second(1).burst(3)).into(), "leaky-bucket(queue) 1/s burst 3"),
            (FixedWindow::new(hour).into(), "fixed-window 400/h"),
            (FixedWindow::from_first_use(hour).into(), "fixed-window(first-use) 400/h"),
            (SlidingWindow::new(hour).into(), "sliding-window 400/h"),
            (SlidingWindow::new(hour).strict().into(), "sliding-window(strict) 400/h"),
            (SubWindow::new(hour, 1).into(), "sub-window(1) 400/h"),
            (SubWindow::new(hour, 60).strict().into(), "sub-window(60, strict) 400/h"),
            (SlidingLog::new(hour).into(), "sliding-log 400/h"),
            (MinimumSpacing::new(Duration::from_millis(250)).into(), "minimum-spacing 250ms"),
            (MinimumSpacing::new(Duration::ZERO).into(), "minimum-spacing 0s"),
            (MinimumSpacing::new(Duration::MAX).into(), "minimum-spacing 18446744073709551615ns"),
        ] {
            assert_eq!(limit.to_string(), text);
            assert_eq!(text.parse::<Limit>().unwrap(), limit, "{text}");
        }
    }

    #[test]
    fn other_spellings_parse() {
        for (text, printed) in [
            ("gcra 1_000 / 2 hours burst 7", "1000/2h burst 7"),
            ("  sub-window 5/min ", "sub-window(60) 5/min"),
            ("sub-window ( strict ) 5/min", "sub-window(60, strict) 5/min"),
            ("sliding-log()3/10s", "sliding-log 3/10s"),
            ("minimum-spacing s", "minimum-spacing 1s"),
            ("fixed-window 5/s burst 5", "fixed-window 5/s"),
            ("sub-window(1_000) 5/s", "sub-window(1000) 5/s"),
            ("token-bucket(aligned, at 49h) 9/d", "token-bucket(aligned, at 1h) 9/d"),
        ] {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), printed, "{text}");
        }
    }

    /// Four units of a period above 292 years are a quota only with a smaller burst, which windows do not have.
    #[test]
    fn window_without_valid_quota_is_an_error() {
        let quota: Quota = "4/9223372036854775908ns burst 1".parse().unwrap();
        for kind in [LimitKind::FixedWindow, LimitKind::SlidingLog, LimitKind::SlidingWindow { strict: true }]
        {
            let error = Limit::try_new(kind, quota).unwrap_err().to_string();
            assert!(error.contains("292 years"), "{error}");
        }
        assert!(Limit::try_new(LimitKind::TokenBucket, quota).is_ok());
    }

    #[test]
    fn errors_show_text_and_remedy() {
        for (text, needle) in [
            ("", "\"/\""),
            ("moving-window 5/s", "name of an algorithm (gcra, token-bucket"),
            ("Gcra 5/s", "name of an algorithm"),
            ("sliding-log", "\"/\""),
            ("sliding-log(strict) 5/s", "no parentheses"),
            ("sub-window(60 5/s", "\")\" after the options"),
            ("sub-window(many) 5/s", "sub-window(60)"),
            ("sub-window(60, lenient) 5/s", "sub-window(60, strict)"),
            ("sub-window(0) 5/s", "number of sub-windows is 0"),
            ("sub-window(9999) 5/s", "at most 4096"),
            ("sub-window(5000000000) 5/s", "at most 4096"),
            ("sub-window(+60) 5/s", "sub-window(60)"),
            ("gcra100/min", "a space after the name"),
            ("sub-window60/min", "a space after the name"),
            ("minimum-spacing250ms", "a space after the name"),
            ("window5/min", "name of an algorithm (gcra, token-bucket"),
            ("sub-window(60, strict, 7, 8, 9) 5/s", "sub-window(60, strict)"),
            ("token-bucket(hourly) 5/s", "token-bucket(interval)"),
            ("token-bucket(aligned, 8h) 5/s", "at 8h"),
            ("sliding-log 5/s burst 6", "no burst"),
            ("sliding-log 70000/s", "65536"),
            ("minimum-spacing 10/s", "a period such as"),
            ("minimum-spacing(strict) 10s", "no parentheses"),
        ] {
            let error = text.parse::<Limit>().unwrap_err().to_string();
            assert!(error.contains(needle), "{text:?}: {error}");
            assert!(error.contains(&std::format!("{text:?}")), "{text:?}: {error}");
            assert!(error.contains("[ALGORITHM] LIMIT/PERIOD"), "{text:?}: {error}");
        }
    }

    fn kinds() -> impl Strategy<Value = LimitKind> {
        prop_oneof![
            Just(LimitKind::Gcra),
            Just(LimitKind::TokenBucket),
            Just(LimitKind::IntervalBucket),
            (any::<u64>(), any::<bool>()).prop_map(|(ns, adaptive)| LimitKind::AlignedBucket {
                at: Timestamp::from_nanos(ns),
                adaptive,
            }),
            Just(LimitKind::LeakyBucketMeter),
            Just(LimitKind::LeakyBucketQueue),
            Just(LimitKind::FixedWindow),
            Just(LimitKind::FirstUseWindow),
            any::<bool>().prop_map(|strict| LimitKind::SlidingWindow { strict }),
            (1..5_000u32, any::<bool>()).prop_map(|(parts, strict)| LimitKind::SubWindow { parts, strict }),
            Just(LimitKind::SlidingLog),
            any::<Duration>().prop_map(|spacing| LimitKind::MinimumSpacing { spacing }),
            (0..100_000u64).prop_map(|ms| LimitKind::MinimumSpacing { spacing: Duration::from_millis(ms) }),
        ]
    }

    fn quotas() -> impl Strategy<Value = Quota> {
        let limits = prop_oneof![1..1_000u64, 1..u64::MAX];
        let periods = prop_oneof![
            (1..10_000u64).prop_map(Duration::from_secs),
            (1..u64::MAX).prop_map(Duration::from_nanos)
        ];
        let bursts = proptest::option::of(prop_oneof![1..1_000u64, 1..u64::MAX]);
        (limits, periods, bursts).prop_filter_map("not a quota", |(limit, period, burst)| {
            // Some quotas are valid only with their burst.
            let burst = burst.unwrap_or(limit);
            std::format!("{limit}/{}ns burst {burst}", period.as_nanos()).parse().ok()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::with_cases(2_000) })]

        #[test]
        fn text_of_every_limit_parses_back(kind in kinds(), quota in quotas()) {
            if let Ok(limit) = Limit::try_new(kind, quota) {
                prop_assert_eq!(limit.to_string().parse::<Limit>().unwrap(), limit);
                let same = limit.with_quota(limit.quota());
                let is_spacing = matches!(kind, LimitKind::MinimumSpacing { .. });
                prop_assert!(is_spacing || same == Ok(limit));
            }
        }

        /// The numbers of an algorithm are those of a valid quota, and its limit keeps them.
        #[test]
        fn limit_of_algorithm_is_the_limit_of_its_own_algorithm(quota in quotas(), at in any::<u64>(), parts in 1..4_097u32) {
            let at = Timestamp::from_nanos(at);
            macro_rules! same {
                ($made:expr, $again:expr) => {
                    if let Ok(algorithm) = $made {
                        let limit = Limit::from(algorithm);
                        prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
                        prop_assert_eq!(Limit::try_new(limit.kind(), limit.quota()), Ok(limit));
                        prop_assert_eq!($again(limit.quota()).map(Limit::from), Ok(limit));
                    }
                };
                ($new:expr) => {
                    same!($new(quota), $new)
                };
            }
            same!(|quota| Ok::<_, QuotaError>(Gcra::new(quota)));
            same!(|quota| Ok::<_, QuotaError>(LeakyBucketQueue::new(quota)));
            same!(|quota| Ok::<_, QuotaError>(TokenBucket::new(quota)));
            same!(TokenBucket::try_interval);
            same!(|quota| TokenBucket::try_aligned(quota, at));
            same!(|quota| TokenBucket::try_aligned_adaptive(quota, at));
            same!(FixedWindow::try_new);
            same!(FixedWindow::try_from_first_use);
            same!(SlidingWindow::try_new);
            same!(|quota| SubWindow::try_new(quota, parts));
            same!(SlidingLog::try_new);
        }

        #[test]
        fn no_text_panics(text in "[a-z(),µ\\-/ 0-9]{0,40}", any_text in ".{0,30}", kind in kinds(), cut in 0..40usize) {
            let _ = text.parse::<Limit>();
            let _ = any_text.parse::<Limit>();
            // A text that is nearly right.
            let limit = Limit::try_new(kind, Quota::per_minute(7)).unwrap_or(Limit::gcra(Quota::per_minute(7)));
            let mut near = limit.to_string();
            near.truncate(near.len().saturating_sub(cut));
            let _ = near.parse::<Limit>();
            let _ = (near + &text).parse::<Limit>();
        }
    }
}
