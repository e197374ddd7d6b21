//! What is known of a file while it is checked.

use super::problem::Problems;
use crate::Capacity;
use crate::edge::rules::rule::{Algorithm, Charging, MILLION, Rule, Shared, Store};

/// What is known of a file while it is checked.
#[derive(Debug)]
pub(super) struct Checker {
    pub(super) problems: Problems,
    pub(super) warnings: Problems,
    /// Whether our own keys were asked for.
    pub(super) extended: bool,
    pub(super) settings: FileSettings,
    pub(super) domain: Box<str>,
    pub(super) rules: Vec<Rule>,
    /// The bytes that identities and names may still take.
    pub(super) texts: usize,
}

/// What holds for all rules of a file that do not say otherwise.
#[derive(Copy, Clone, Debug)]
pub(super) struct FileSettings {
    pub(super) charging: Charging,
    pub(super) shadow: bool,
    pub(super) algorithm: Option<Algorithm>,
    pub(super) store: Option<Store>,
    pub(super) memory: Option<Capacity>,
    pub(super) enforced: u32,
    /// Of limits that processes share.
    pub(super) shared: Shared,
}

impl FileSettings {
    pub(super) const DEFAULT: Self = Self {
        charging: Charging::AllOrNothing,
        shadow: false,
        algorithm: None,
        store: None,
        memory: None,
        enforced: MILLION,
        shared: Shared::DEFAULT,
    };
}
