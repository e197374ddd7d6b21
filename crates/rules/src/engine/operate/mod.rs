//! What the people and programs that run a service ask of rules: actions on keys, explanations, counts and health.

mod action;
mod explain;
mod readings;

pub use self::action::{KeyFigures, KeyReport};
pub use self::explain::{Explained, Explanation, Reason};
#[cfg(feature = "metrics")]
pub use self::readings::publish_rules;
