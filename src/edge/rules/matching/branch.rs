//! The contents of a file: descriptors, with the positions of their rules.

use std::ops::Range;

/// A position in a file. The order is the order of reading.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Position {
    /// The line, from 1; 0 means the whole file.
    pub(crate) line: u32,
    /// The column in characters, from 1; 0 means the whole line.
    pub(crate) column: u32,
}

impl Position {
    /// The conversion saturates; the size limit of files keeps lines and columns below the maximum.
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
    /// Its rules, as a range in the file's rules.
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

    /// Whether the descriptor itself limits nothing. Its children may have limits.
    pub(crate) fn has_no_limit(&self) -> bool {
        self.own.is_empty() && self.tiers.is_empty()
    }

    /// The identity of the branch within its level.
    pub(crate) fn pair(&self) -> (&str, Option<&str>) {
        (&self.key, self.value.as_deref())
    }
}
