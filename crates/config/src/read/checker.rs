//! The state of the check of a file.

use tollgate::{Capacity, LimitKind};

use super::problem::Problems;
use crate::rule::{Charging, MILLION, Rule, Shared, Store};

/// The state of the check of a file.
#[derive(Debug)]
pub(super) struct Checker {
    pub(super) problems: Problems,
    pub(super) warnings: Problems,
    /// Whether the file enables the extensions of Tollgate.
    pub(super) extended: bool,
    pub(super) settings: FileSettings,
    pub(super) domain: Box<str>,
    pub(super) rules: Vec<Rule>,
    /// The number of bytes that identities and names may still take.
    pub(super) texts: usize,
}

/// The defaults of all rules in a file.
#[derive(Copy, Clone, Debug)]
pub(super) struct FileSettings {
    /// `None` if the file does not set it.
    pub(super) charging: Option<Charging>,
    pub(super) shadow: bool,
    pub(super) algorithm: Option<LimitKind>,
    pub(super) store: Option<Store>,
    pub(super) memory: Option<Capacity>,
    pub(super) enforced: u32,
    /// The defaults of limits that processes share.
    pub(super) shared: Shared,
}

impl FileSettings {
    pub(super) const DEFAULT: Self = Self {
        charging: None,
        shadow: false,
        algorithm: None,
        store: None,
        memory: None,
        enforced: MILLION,
        shared: Shared::DEFAULT,
    };
}
