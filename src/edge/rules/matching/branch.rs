//! What a file declares: descriptors, with the places of their rules.

use std::ops::Range;

/// Where something stands in its file. Ordered as a reader meets it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Position {
    /// From 1; 0 for the whole file.
    pub(crate) line: u32,
    /// In characters, from 1; 0 for the whole line.
    pub(crate) column: u32,
}

impl Position {
    /// No file that is read has more lines, or longer ones, than there are such numbers.
    pub(crate) fn new(line: usize, column: usize) -> Self {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: number(line), column: number(column) }
    }
}

/// One descriptor of the file.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) key: Box<str>,
    pub(crate) value: Option<Box<str>>,
    pub(crate) at: Position,
    /// Its rules among the file's.
    pub(crate) own: Range<usize>,
    pub(crate) tiers: Vec<Tier>,
    pub(crate) children: Vec<Branch>,
}

/// Other limits for some clients.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) name: Box<str>,
    pub(crate) members: Vec<Box<str>>,
    pub(crate) rules: Range<usize>,
}

impl Branch {
    pub(crate) fn is_wildcard(&self) -> bool {
        self.key.contains('*') || self.value.as_ref().is_some_and(|value| value.contains('*'))
    }

    /// Whether nothing is limited by it, whatever its children limit.
    pub(crate) fn has_no_limit(&self) -> bool {
        self.own.is_empty() && self.tiers.is_empty()
    }

    /// What no other branch of its level has.
    pub(crate) fn pair(&self) -> (&str, Option<&str>) {
        (&self.key, self.value.as_deref())
    }
}
