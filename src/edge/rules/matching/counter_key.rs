//! The key under which a rule counts a request.

use std::fmt::Write as _;

use super::Descriptor;

/// The key under which a rule counts a request: the values of some entries.
#[derive(Clone, Debug)]
pub(crate) enum CounterKey<'a> {
    /// One value, or none.
    Whole(&'a str),
    /// Several values, each with its length before it.
    Joined(String),
}

impl<'a> CounterKey<'a> {
    /// Builds the key from the values of the entries in the first mask, with their keys if `keys_vary`, and from the
    /// keys alone of the entries in the second mask.
    pub(crate) fn new(
        entries: &'a [(&'a str, &'a str)],
        [counted_by, counted_by_key]: [u32; 2],
        keys_vary: bool,
    ) -> Self {
        let is_set = |mask: u32, bit: u32| mask >> bit & 1 == 1;
        let counted =
            || (0..u32::BITS).zip(entries).filter(move |(bit, _)| is_set(counted_by | counted_by_key, *bit));
        match (counted_by | counted_by_key).count_ones() {
            0 => Self::Whole(""),
            1 if !keys_vary => Self::Whole(counted().next().map_or("", |(_, (_, value))| value)),
            _ => {
                // Nearly all lengths need at most three digits.
                let of = |text: &str| text.len() + 4;
                let length =
                    counted().map(|(_, (key, value))| of(value) + if keys_vary { of(key) } else { 0 }).sum();
                let mut joined = String::with_capacity(length);
                for (bit, (key, value)) in counted() {
                    if keys_vary {
                        push(&mut joined, key);
                    }
                    if is_set(counted_by, bit) {
                        push(&mut joined, value);
                    }
                }
                Self::Joined(joined)
            }
        }
    }

    /// Builds the key of a limit that the request sets: the domain, and the keys and values of all entries.
    pub(crate) fn of_request(domain: &str, descriptor: &Descriptor<'_>) -> Self {
        let mut joined = String::new();
        push(&mut joined, domain);
        for (key, value) in descriptor.entries() {
            push(&mut joined, key);
            push(&mut joined, value);
        }
        Self::Joined(joined)
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Whole(value) => value,
            Self::Joined(joined) => joined,
        }
    }
}

/// Appends a text after its length. The length distinguishes ("a", "bc") from ("ab", "c").
fn push(joined: &mut String, text: &str) {
    // Writing to a `String` does not fail.
    let _ = write!(joined, "{}:{text}", text.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(entries: &[(&str, &str)], counted_by: u32) -> String {
        CounterKey::new(entries, [counted_by, 0], false).as_str().to_owned()
    }

    #[test]
    fn joined_values_are_unambiguous() {
        assert_eq!(key(&[("a", "x"), ("b", "y")], 0), "");
        assert_eq!(key(&[("a", "x"), ("b", "y")], 0b10), "y");
        assert_eq!(key(&[("a", "x"), ("b", "y")], 0b11), "1:x1:y");
        assert_eq!(key(&[("a", "x"), ("b", "1:y")], 0b11), "1:x3:1:y");
        let long = "ü".repeat(200);
        assert_eq!(key(&[("a", &long), ("b", ""), ("c", "z")], 0b111), format!("400:{long}0:1:z"));
        assert_eq!(CounterKey::new(&[("a", "x")], [1, 0], true).as_str(), "1:a1:x");
        assert_eq!(CounterKey::new(&[("a", "x"), ("b", "y")], [0b10, 0b01], true).as_str(), "1:a1:b1:y");
        assert_eq!(key(&[("a", "x")], 0b1000), "", "a level that the request does not have");
    }
}
