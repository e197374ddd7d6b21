//! The algorithms by their names on the command line.
//!
//! Each run is compiled for its algorithm: one `match` chooses, and everything below it is monomorphic.

use clap::ValueEnum;

use crate::{
    Algorithm, CompactAlgorithm, FixedWindow, Gcra, LeakyBucketMeter, Quota, QuotaError, SlidingLog,
    SlidingWindow, SubWindow, TokenBucket, WindowAlgorithm,
};

/// An algorithm that the program can replay through.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// Generic cell rate algorithm: one time per key; smooth, with a burst
    Gcra,
    /// Tokens refill continuously up to the burst; decides as GCRA does
    TokenBucket,
    /// A bucket of the burst's size that leaks at the limit's rate; decides as GCRA does
    LeakyBucket,
    /// A counter that restarts at every period since 1970; up to twice the limit around a boundary
    FixedWindow,
    /// The times of the last admissions; exact in every window, 8 bytes a unit
    SlidingLog,
    /// This window's count and a share of the last one's; close to the log, 16 bytes
    SlidingWindow,
    /// The window cut into parts that leave it one by one
    SubWindow,
}

/// What `--algorithm` takes: a [`Kind`], or all of them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// One.
    One(Kind),
    /// Every one, for comparison.
    All,
}

impl ValueEnum for Choice {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::All,
            Self::One(Kind::Gcra),
            Self::One(Kind::TokenBucket),
            Self::One(Kind::LeakyBucket),
            Self::One(Kind::FixedWindow),
            Self::One(Kind::SlidingLog),
            Self::One(Kind::SlidingWindow),
            Self::One(Kind::SubWindow),
        ]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            Self::One(kind) => kind.to_possible_value(),
            Self::All => {
                Some(clap::builder::PossibleValue::new("all").help("Every one of them, side by side"))
            }
        }
    }
}

/// How window algorithms are set up.
#[derive(Copy, Clone, Debug)]
pub struct Options {
    /// Parts of a sub-window counter.
    pub sub_windows: u32,
    /// Whether the windowed counters err against the client instead of for it.
    pub strict: bool,
}

/// Something to do with one algorithm's values, one a quota.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<A: Algorithm>(self, algorithms: Vec<A>) -> Self::Output;
}

/// The same with algorithms that the compact store can hold.
pub trait CompactVisitor {
    /// What comes of it.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// If the store cannot hold a quota.
    fn visit<A: CompactAlgorithm>(self, algorithms: Vec<A>) -> Result<Self::Output, QuotaError>;
}

/// The same with algorithms that the sketch store can hold.
pub trait WindowVisitor {
    /// What comes of it.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// If the store cannot hold a quota.
    fn visit<A: WindowAlgorithm>(self, algorithms: Vec<A>) -> Result<Self::Output, QuotaError>;
}

impl Kind {
    /// The name used on the command line and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gcra => "gcra",
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::FixedWindow => "fixed-window",
            Self::SlidingLog => "sliding-log",
            Self::SlidingWindow => "sliding-window",
            Self::SubWindow => "sub-window",
        }
    }

    /// Whether a quota's burst means anything to it: windows count up to the limit, whatever the burst.
    #[must_use]
    pub fn heeds_burst(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucket)
    }

    /// Builds the algorithm for each quota and hands the values on.
    ///
    /// # Errors
    /// If the algorithm cannot hold a quota.
    pub fn visit<V: Visitor>(
        self,
        quotas: &[Quota],
        options: Options,
        visitor: V,
    ) -> Result<V::Output, QuotaError> {
        let Options { sub_windows, strict } = options;
        Ok(match self {
            Self::Gcra => visitor.visit(each(quotas, |quota| Ok(Gcra::new(quota)))?),
            Self::TokenBucket => visitor.visit(each(quotas, |quota| Ok(TokenBucket::new(quota)))?),
            Self::LeakyBucket => visitor.visit(each(quotas, |quota| Ok(LeakyBucketMeter::new(quota)))?),
            Self::FixedWindow => visitor.visit(each(quotas, FixedWindow::try_new)?),
            Self::SlidingLog => visitor.visit(each(quotas, SlidingLog::try_new)?),
            Self::SlidingWindow => visitor.visit(each(quotas, |quota| sliding_window(quota, strict))?),
            Self::SubWindow => visitor.visit(each(quotas, |quota| {
                let window = SubWindow::try_new(quota, sub_windows)?;
                Ok(if strict { window.strict() } else { window })
            })?),
        })
    }

    /// [`Kind::visit`] for the compact store; `None` if it cannot hold this kind, whatever the quota.
    ///
    /// # Errors
    /// If the algorithm or the store cannot hold a quota.
    pub fn visit_compact<V: CompactVisitor>(
        self,
        quotas: &[Quota],
        options: Options,
        visitor: V,
    ) -> Result<Option<V::Output>, QuotaError> {
        match self {
            Self::Gcra => visitor.visit(each(quotas, |quota| Ok(Gcra::new(quota)))?),
            Self::TokenBucket => visitor.visit(each(quotas, |quota| Ok(TokenBucket::new(quota)))?),
            Self::LeakyBucket => visitor.visit(each(quotas, |quota| Ok(LeakyBucketMeter::new(quota)))?),
            Self::FixedWindow => visitor.visit(each(quotas, FixedWindow::try_new)?),
            Self::SlidingWindow => {
                visitor.visit(each(quotas, |quota| sliding_window(quota, options.strict))?)
            }
            Self::SlidingLog | Self::SubWindow => return Ok(None),
        }
        .map(Some)
    }

    /// [`Kind::visit`] for the sketch store; `None` if it cannot hold this kind, whatever the quota.
    ///
    /// # Errors
    /// If the algorithm or the store cannot hold a quota.
    pub fn visit_windows<V: WindowVisitor>(
        self,
        quotas: &[Quota],
        options: Options,
        visitor: V,
    ) -> Result<Option<V::Output>, QuotaError> {
        match self {
            Self::FixedWindow => visitor.visit(each(quotas, FixedWindow::try_new)?),
            Self::SlidingWindow => {
                visitor.visit(each(quotas, |quota| sliding_window(quota, options.strict))?)
            }
            _ => return Ok(None),
        }
        .map(Some)
    }
}

fn sliding_window(quota: Quota, strict: bool) -> Result<SlidingWindow, QuotaError> {
    let window = SlidingWindow::try_new(quota)?;
    Ok(if strict { window.strict() } else { window })
}

fn each<A>(quotas: &[Quota], build: impl Fn(Quota) -> Result<A, QuotaError>) -> Result<Vec<A>, QuotaError> {
    quotas.iter().map(|&quota| build(quota)).collect()
}

/// The kinds that a list of choices names, each once, in the order of [`Kind`]; no choice is `default`.
#[must_use]
pub fn chosen(choices: &[Choice], default: &[Kind]) -> Vec<Kind> {
    if choices.is_empty() {
        return default.to_vec();
    }
    let wanted = |kind: &Kind| choices.contains(&Choice::All) || choices.contains(&Choice::One(*kind));
    Kind::value_variants().iter().copied().filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for kind in Kind::value_variants() {
            assert_eq!(kind.to_possible_value().unwrap().get_name(), kind.as_str());
        }
        assert_eq!(Choice::value_variants().len(), Kind::value_variants().len() + 1);
    }

    #[test]
    fn a_choice_may_be_repeated() {
        let twice = [Choice::One(Kind::SubWindow), Choice::One(Kind::Gcra), Choice::One(Kind::SubWindow)];
        assert_eq!(chosen(&twice, &[]), [Kind::Gcra, Kind::SubWindow]);
        assert_eq!(chosen(&[Choice::All], &[]).len(), 7);
        assert_eq!(chosen(&[], &[Kind::Gcra]), [Kind::Gcra]);
    }
}
