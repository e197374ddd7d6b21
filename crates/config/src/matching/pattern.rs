//! Patterns: `*` stands for zero or more characters, anywhere and any number of times.

use memchr::memmem::{Finder, find};

/// A text with one or more `*`.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    first: Box<str>,
    /// The literals between two `*`. None of them is empty.
    middle: Box<[Finder<'static>]>,
    /// The literals after these, with `*` between them.
    more: Box<str>,
    last: Box<str>,
}

/// The most literals with a prepared search, which takes a hundred times the memory of a short literal: reading a file may take at most
/// twenty times the file's length.
const PREPARED: usize = 4;

impl Pattern {
    /// Parses a pattern. `None` if the text has no `*`.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('*')?;
        let (mut more, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let mut middle = Vec::new();
        while middle.len() < PREPARED && !more.is_empty() {
            let part;
            (part, more) = more.split_once('*').unwrap_or((more, ""));
            if !part.is_empty() {
                middle.push(Finder::new(part).into_owned());
            }
        }
        Some(Self { first: first.into(), middle: middle.into(), more: more.into(), last: last.into() })
    }

    /// Returns the prefix and the suffix that a text must have, and for each, whether it suffices for a match.
    pub(super) fn affixes(&self) -> [(&str, bool); 2] {
        let is_alone = |other: &str| self.middle.is_empty() && other.is_empty();
        [(&self.first, is_alone(&self.last)), (&self.last, is_alone(&self.first))]
    }

    /// Returns the literals between two `*`, in order.
    pub(super) fn middle(&self) -> impl Iterator<Item = &[u8]> {
        self.middle.iter().map(Finder::needle).chain(self.unprepared())
    }

    fn unprepared(&self) -> impl Iterator<Item = &[u8]> {
        self.more.split('*').filter(|part| !part.is_empty()).map(str::as_bytes)
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
        let mut prepared = self.middle.iter();
        let rest = prepared.try_fold(rest.as_bytes(), |rest, part| {
            let at = part.find(rest)?;
            rest.get(at + part.needle().len()..)
        });
        let Some(rest) = rest else { return false };
        let rest = self.unprepared().try_fold(rest, |rest, part| rest.get(find(rest, part)? + part.len()..));
        rest.is_some()
    }
}
