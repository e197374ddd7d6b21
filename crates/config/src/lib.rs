//! Reads and checks files of rate limit rules in the language of Envoy's rate limit service, and finds the rules that limit a
//! request.
//!
//! This package counts nothing: a program can check rules with it, before they are deployed, or show them. To decide
//! requests by the rules, use the package `tollgate-rules`, which exports the types of this one.
//!
//! ```
//! use tollgate_config::{Config, Domain};
//!
//! let config = Config::from_yaml("limits.yaml", "
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
//! assert!(config.warnings().is_empty());
//! let domains = Domain::merge([config], false)?;
//! let found = domains[0].matching(&[("path", "/login"), ("remote_address", "192.0.2.1")], None);
//! assert_eq!(found[0].limit.to_string(), "5/min");
//! # Ok::<(), tollgate_config::ConfigError>(())
//! ```
//!
//! [The guide](https://docs.rs/crate/tollgate/latest/source/docs/rules.md) describes the language. An error has all problems of a
//! file, each with its line and a remedy. A warning is a setting that is allowed, but is probably a mistake.
//!
//! # Modules
//! ```text
//! rule        what a rule says
//! store_kind  the store in which a process counts a rule, also if the file names none
//! matching/   the keys and values of a request ──► the rules that apply
//! read/       files in YAML, JSON or TOML ──► rules, and all problems in the files
//! ```
//! Modules import only from modules above them in this list.

// The published docs show which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[doc(hidden)]
pub mod internals;
mod matching;
mod read;
mod rule;
mod store_kind;

pub use ipnet::IpNet;

pub use self::matching::{FileEntry, Mismatch};
pub use self::read::{Config, ConfigError, Domain, Format, Problem, UnknownFormat, has_rules, rule_files};
pub use self::rule::{
    Amount, Charging, FailurePolicy, Metadata, Metric, Mode, Rule, RuleClass, RuleHold, SettingValue, Shared,
    Store, TimeUnit,
};

/// The example of the README, as a test.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Page;
}
