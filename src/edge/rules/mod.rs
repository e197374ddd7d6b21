//! Rules in the language of Envoy's rate limit service, which reload while requests are decided.
//!
//! ```
//! use tollgate::rules::{Descriptor, Rules};
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
//! # Ok::<(), tollgate::rules::RulesError>(())
//! ```
//!
//! Rules count in fixed windows unless they name an algorithm, as Envoy's service does. Limiters that are made in code default to GCRA
//! ([`RateLimiter::new`](crate::RateLimiter::new)).
//!
//! [The guide](crate::guide::rules) has the language. A request that several rules apply to is charged to all of them or to none,
//! as by [`check_all`](crate::check_all), unless the file says `charging: count-first`.
//!
//!
//! # Where what is
//! ```text
//! config/    files in YAML, JSON or TOML ──► rules, and all that is wrong with them
//! matching/  a request's descriptors ──► the rules that apply, and the keys that they count it by
//! counting/  the stores of this process, and the limiters of a server that processes share
//! engine/    checks, refunds and reloads
//! watch/     reloads when the files change
//! ```
//! `rule` has what a rule says. Imports go upward in this list, and all of them use `rule`.

mod config;
mod counting;
mod engine;
mod matching;
mod rule;
#[cfg(feature = "watch")]
mod watch;

pub use self::config::{Config, ConfigError, Domain, Problem};
#[cfg(feature = "redis")]
pub use self::counting::Server;
#[cfg(feature = "metrics")]
pub use self::engine::publish_rules;
pub use self::engine::{
    Answer, Applied, Change, ChangeKind, Code, Difference, LoadReport, Rules, RulesBuilder, RulesError,
    Status, Verdict,
};
pub use self::matching::{Added, Descriptor, Descriptors};
pub use self::rule::{Algorithm, Charging, Limit, Metric, Mode, OnFailure, Rule, Shared, Store, Unit};
#[cfg(feature = "watch")]
pub use self::watch::Watcher;
