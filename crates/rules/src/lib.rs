//! Rate limit rules in the language of Envoy's rate limit service. Rules can be reloaded while requests are checked.
//!
//! ```
//! use tollgate_rules::{Descriptor, Rules};
//!
//! let rules = Rules::from_yaml("
//! domain: edge
//! descriptors:
//!   - key: remote_address
//!     rate_limit: { unit: second, requests_per_unit: 10 }
//!   - key: path
//!     value: /login
//!     descriptors:
//!       - key: remote_address
//!         rate_limit: { unit: minute, requests_per_unit: 5 }
//! ")?;
//! let answer = rules.check("edge", &[
//!     Descriptor::new(&[("remote_address", "192.0.2.1")]),
//!     Descriptor::new(&[("path", "/login"), ("remote_address", "192.0.2.1")]),
//! ]);
//! assert!(answer.is_allowed());
//! assert_eq!(answer.limits().map(|limit| limit.remaining()).collect::<Vec<_>>(), [9, 4]);
//! # Ok::<(), tollgate_rules::RulesError>(())
//! ```
//!
//! Rules use fixed windows unless they name an algorithm, as Envoy's service does. Limiters that are created in code
//! use GCRA by default ([`RateLimiter::new`](tollgate::RateLimiter::new)).
//!
//! [The guide](https://docs.rs/crate/tollgate/latest/source/docs/rules.md)
//! describes the language. If several rules apply to a request, the request is charged
//! to all of them or to none, as with [`check_all`](tollgate::check_all). The setting `charging: count-first` changes
//! this.
//!
//! # Modules
//! ```text
//! matching/  a request's descriptors ──► the rules that apply, and the key that each rule uses
//! counting/  the stores of this process, and what a store that processes share must do
//! config/    files in YAML, JSON or TOML ──► rules, and all problems in the files
//! engine/    checks, refunds and reloads
//! source/    other places than files: a type of the program, or of another module
//! watch/     reloads when the files or the source change
//! ```
//! The module `rule` defines the content of a rule. Modules import only from modules above them in this list, and all
//! of them use `rule`.

// The published docs show which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod config;
mod counting;
mod engine;
#[doc(hidden)]
pub mod internals;
pub(crate) mod matching;
mod rule;
mod source;
pub mod telemetry;
#[cfg(feature = "watch")]
mod watch;

pub use ipnet::IpNet;

pub use self::config::{Config, ConfigError, Domain, Format, Problem, UnknownFormat};
pub use self::counting::{
    MayWait, OperatorAction, Refusal, SharedLimiter, SharedReply, SharedRule, SharedStore,
};
#[cfg(feature = "metrics")]
pub use self::engine::publish_rules;
pub use self::engine::{
    Answer, Applied, Change, ChangeKind, Difference, Explained, Explanation, LoadReport, Reason,
    RestoreReport, Rules, RulesAt, RulesBuilder, RulesError, RulesSnapshot, Verdict, WithoutRule,
};
pub use self::engine::{KeyFigures, KeyReport};
pub use self::matching::{Added, Descriptor, Descriptors, FileEntry, Mismatch};
pub use self::rule::{
    Amount, Charging, FailurePolicy, Metadata, Metric, Mode, Rule, RuleClass, RuleHold, SettingValue, Shared,
    Store, TimeUnit,
};
pub use self::source::{Fetched, Hint, RuleText, Source, Version};
#[cfg(feature = "watch")]
pub use self::watch::{Follow, Followed, Pushed, Watcher};

/// The examples of the README, and of the guides that use this package, as tests. They have no hidden lines, because GitHub
/// would show those. They therefore run only when all the features that they use are enabled, and only in a checkout: the
/// package has no guides.
#[cfg(all(doctest, feature = "calendar"))]
mod pages {
    macro_rules! pages {
        ($($name:ident $file:literal)*) => { $(#[doc = include_str!($file)] struct $name;)* };
    }
    pages! {
        Readme "../README.md"
        Calendars "../../../docs/calendars.md"
        Operators "../../../docs/operators.md"
    }
}
