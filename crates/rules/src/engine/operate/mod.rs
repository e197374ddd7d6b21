//! What the people and programs that run a service ask of rules: acts on keys, explanations, counts and health.

mod act;
mod explain;
mod readings;

pub use self::act::{KeyFigures, KeyReport};
pub use self::explain::{Explained, Explanation, Reason};
#[cfg(feature = "metrics")]
pub use self::readings::publish_rules;
