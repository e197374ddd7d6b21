//! Loads: the first one, and those that replace the rules in force.
//!
//! [`builder`] creates rules. [`reload`] replaces them with those of files or of the caller, unless domains in use would be
//! [`removed`]. [`load_report`] says what changed.

mod builder;
mod load_report;
mod reload;
mod removed;

pub use self::builder::RulesBuilder;
pub use self::load_report::{Change, ChangeKind, Difference, LoadReport};
#[cfg(feature = "watch")]
pub(crate) use self::reload::FileCheck;
