//! Patterns: `*` stands for zero or more characters, anywhere and any number of times.

use memchr::memmem::Finder;

/// A text with one or more `*`.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    first: Box<str>,
    /// The literals between two `*`. None of them is empty.
    middle: Box<[Finder<'static>]>,
    last: Box<str>,
}

impl Pattern {
    /// Parses a pattern. `None` if the text has no `*`.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('*')?;
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle
            .split('*')
            .filter(|part| !part.is_empty())
            .map(|part| Finder::new(part).into_owned())
            .collect();
        Some(Self { first: first.into(), middle, last: last.into() })
    }

    /// Returns the prefix and the suffix that a text must have, and for each, whether it suffices for a match.
    pub(super) fn affixes(&self) -> [(&str, bool); 2] {
        let is_alone = |other: &str| self.middle.is_empty() && other.is_empty();
        [(&self.first, is_alone(&self.last)), (&self.last, is_alone(&self.first))]
    }

    /// Returns the literals between two `*`, in order.
    pub(super) fn middle(&self) -> impl Iterator<Item = &[u8]> {
        self.middle.iter().map(Finder::needle)
    }

    /// Returns the non-empty literals, in order.
    pub(super) fn literals(&self) -> impl Iterator<Item = &[u8]> {
        let [(first, _), (last, _)] = self.affixes();
        let all = std::iter::once(first.as_bytes()).chain(self.middle()).chain([last.as_bytes()]);
        all.filter(|literal| !literal.is_empty())
    }

    /// Whether a text matches. Takes time linear in both lengths: each part is matched at its first occurrence and
    /// never tried again, because a later occurrence leaves less text for the other parts.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(&*self.first) else { return false };
        let Some(rest) = rest.strip_suffix(&*self.last) else { return false };
        let mut rest = rest.as_bytes();
        self.middle.iter().all(|part| match part.find(rest) {
            Some(at) => {
                rest = rest.get(at + part.needle().len()..).unwrap_or_default();
                true
            }
            None => false,
        })
    }
}
