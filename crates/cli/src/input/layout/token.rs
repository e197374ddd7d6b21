//! The parts of format strings, which are alike in all languages.

use crate::input::time::TimeFormat;
use tollgate_report::text::printable;

/// A part of a format string.
pub(super) enum Token {
    Text(String),
    Variable(Named),
}

/// A variable of a format string.
#[derive(Default)]
pub(super) struct Named {
    /// Its name in the server's language.
    pub name: String,
    /// The key of [`Variable::of`].
    pub known: String,
    /// nginx's name of the same header field, or nothing.
    pub header: String,
    /// The form of a time, if the string says it.
    pub time: Option<TimeFormat>,
    /// The two characters that the server writes around it, or none.
    pub around: &'static str,
}

/// The error for a part of a format string, with its place.
pub(super) fn wrong(text: &str, at: usize, what: &str) -> String {
    let rest = printable(text.get(at..).unwrap_or_default().as_bytes(), 20);
    format!(
        "at character {} ({rest:?}): {what}",
        text.get(..at).map_or(0, |before| before.chars().count()) + 1
    )
}

/// Returns nginx's name of a header field.
pub(super) fn header(name: &str) -> String {
    format!("http_{}", name.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_"))
}
