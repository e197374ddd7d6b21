//! Rules in force: checks, refunds and reloads.
//!
//! # How a load replaces the rules
//! ```text
//! Rules ──► RuleSet n: trees, and for each rule the generation that counts for it
//!              │ an unchanged rule keeps its generation
//!              ▼ a rule with other numbers, algorithm or store: a new generation that takes over usage, in units
//!           RuleSet n − 1
//! ```
//! 1. One pointer publishes all rules. A request is therefore decided by the old rules or by the new ones, never by a
//!    mix.
//! 2. After a check has charged, it asks whether the charge counts, as [`Adjustable`](tollgate::Adjustable) limiters do
//!    (`store/migrate/published.rs`). If the pointer moved and the rules in force have other counters, the check refunds the
//!    charge and decides again. So no charge is lost.
//!
//! # Modules
//! ```text
//! state/    the rules in force, their counters, and the same as bytes
//! request/  a request: find its rules, charge them, settle, report
//! load/     loads that replace the rules in force
//! operate/  actions on keys, explanations, counts and health
//! ```
//! `request` and `load` use `state` only. `operate` uses `state` and `request`.

mod load;
#[cfg(all(test, tollgate_loom))]
mod models;
mod operate;
mod request;
mod state;

#[cfg(feature = "watch")]
pub(crate) use self::load::FileCheck;
pub use self::load::{Change, ChangeKind, Difference, LoadReport, RulesBuilder};
#[cfg(feature = "metrics")]
pub use self::operate::publish_rules;
pub use self::operate::{Explained, Explanation, KeyFigures, KeyReport, Reason};
pub use self::request::{Answer, Applied, Verdict};
pub use self::state::{RestoreReport, Rules, RulesAt, RulesError, RulesSnapshot, WithoutRule};
