//! Requests: what the rules decide, charge, settle and refund.
//!
//! [`route`] decides one request, with rules of any kind and number: as a list of [`plain`] rules, or with a [`check`].

mod answer;
mod check;
mod count_denials;
mod decided;
mod hold_check;
mod holds;
mod plain;
mod refund;
mod report;
mod route;
mod rule_check;
#[cfg(feature = "tokio")]
mod waiting;

pub use self::answer::{Answer, Applied, Verdict};
pub(super) use self::check::{HoldUse, Request, RequestCheck};
pub(super) use self::decided::{Decided, DecidedList};
pub(super) use self::refund::refund_in_use;
pub(super) use self::rule_check::{CountedBy, RuleCheck};
