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
//! descriptor/  what describes a request, and the key under which each rule counts it
//! counting/    the stores of this process, and what a store that processes share must do
//! engine/      checks, refunds and reloads
//! source/      other places than files: a type of the program, or of another module
//! watch/       reloads when the files or the source change
//! ```
//! Modules import only from modules above them in this list. The package [`tollgate_config`] is below all of them: it reads and
//! checks files, and finds the rules that apply to a request.

// The published docs show which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod counting;
mod descriptor;
mod engine;
#[doc(hidden)]
pub mod internals;
mod source;
pub mod telemetry;
#[cfg(feature = "watch")]
mod watch;

// The types of `tollgate-config` that functions of this package take or return, and those of their fields.
pub use tollgate_config::{
    Amount, Charging, Config, ConfigError, Domain, FailurePolicy, FileEntry, Format, IpNet, Metadata, Metric,
    Mismatch, Mode, Problem, Rule, RuleClass, RuleHold, SettingValue, Shared, Store, TimeUnit,
};

pub use self::counting::{
    MayWait, OperatorAction, Refusal, SharedLimiter, SharedReply, SharedRule, SharedStore,
};
pub use self::descriptor::{Added, Descriptor, Descriptors};
#[cfg(feature = "metrics")]
pub use self::engine::publish_rules;
pub use self::engine::{
    Answer, Applied, Change, ChangeKind, Difference, Explained, Explanation, LoadReport, Reason,
    RestoreReport, Rules, RulesAt, RulesBuilder, RulesError, RulesSnapshot, Verdict, WithoutRule,
};
pub use self::engine::{KeyFigures, KeyReport};
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
