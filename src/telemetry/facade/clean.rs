//! Cleans names for use as labels.

use std::borrow::Cow;
use std::net::Ipv4Addr;

/// Returns the name with `_` in place of each `:` and `|`, and of the dots of IPv4 addresses.
pub(super) fn clean(name: &str) -> Cow<'_, str> {
    if !name.contains([':', '|']) && !words(name).any(is_address) {
        return Cow::Borrowed(name);
    }
    let mut clean = String::with_capacity(name.len());
    for word in words(name) {
        if is_address(word) {
            clean.extend(word.chars().map(|c| if c == '.' { '_' } else { c }));
        } else {
            clean.extend(word.chars().map(|c| if matches!(c, ':' | '|') { '_' } else { c }));
        }
    }
    Cow::Owned(clean)
}

/// Splits the name into runs of digits and dots, and the text between them.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let is_numeric = |c: char| c.is_ascii_digit() || c == '.';
    let mut rest = name;
    std::iter::from_fn(move || {
        let first = is_numeric(rest.chars().next()?);
        let end = rest.find(|c| is_numeric(c) != first).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

fn is_address(word: &str) -> bool {
    word.parse::<Ipv4Addr>().is_ok()
}
