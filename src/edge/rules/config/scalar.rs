//! Scalars: texts, numbers, yes and no, shares.

use super::keys::{Checker, FieldPath, MapFields};
use super::node::{FileNode, Scalar, Value, quoted};
use super::yaml::is_short_bool;
use crate::edge::rules::rule::MILLION;

impl Checker {
    /// A text. Whole numbers, true and false may go without quotes; fractions may not, since `1.10` would be `1.1` to others.
    pub(super) fn text<'n>(&mut self, node: &'n FileNode, path: &FieldPath<'_>) -> Option<&'n str> {
        match &node.kind {
            Value::Scalar(scalar @ (Scalar::Float | Scalar::Time | Scalar::Integer), text)
                if !scalar.is_text(text) =>
            {
                let message = format!("{} is no text", short(text));
                self.problems.add(node.at, path, message, format!("put it in quotes: \"{}\"", short(text)));
                None
            }
            Value::Scalar(_, text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => {
                self.problems.add(node.at, path, format!("{} is no text", node.shown()), "write a text");
                None
            }
        }
    }

    /// True or false.
    pub(super) fn yes(&mut self, node: &FileNode, path: &FieldPath<'_>) -> Option<bool> {
        if let Value::Scalar(Scalar::Bool, text) = &node.kind {
            return Some(matches!(
                text.as_bytes(),
                [b't' | b'T' | b'y' | b'Y', ..] | [b'o' | b'O', b'n' | b'N']
            ));
        }
        if let Value::Scalar(Scalar::Text, text) = &node.kind
            && is_short_bool(text)
        {
            return Some(matches!(&**text, "y" | "Y"));
        }
        let remedy = match &node.kind {
            Value::Scalar(Scalar::Quoted, text) if matches!(&**text, "true" | "false") => "remove the quotes",
            _ => "write true or false",
        };
        self.problems.add(node.at, path, format!("{} is neither true nor false", node.shown()), remedy);
        None
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number(
        &mut self,
        node: &FileNode,
        path: &FieldPath<'_>,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let range = format!("write a whole number from {least} to {most}");
        let (message, remedy) = match &node.kind {
            Value::Scalar(Scalar::Integer, text) => match whole(text) {
                Ok(number) if (least..=most).contains(&number) => return Some(number),
                Ok(number) if number < least => (format!("{number} is less than {least}"), range),
                Ok(_) | Err(BadNumber::TooLarge) => (format!("{} is more than {most}", short(text)), range),
                Err(BadNumber::Negative) => (format!("{} is negative", short(text)), range),
                Err(BadNumber::Octal) => {
                    let remedy = "write it without the zero, or as 0o17 if it is octal".to_owned();
                    (format!("{} begins with a zero, which some read as octal", short(text)), remedy)
                }
                Err(BadNumber::Other) => (format!("{} is no whole number", quoted(text)), range),
            },
            Value::Scalar(Scalar::Quoted, text) if whole(text).is_ok() => {
                (format!("{} is a text", quoted(text)), "remove the quotes".to_owned())
            }
            _ => (format!("{} is no whole number", node.shown()), range),
        };
        self.problems.add(node.at, path, message, remedy);
        None
    }

    /// The whole number of a key.
    pub(super) fn number_of(
        &mut self,
        fields: &MapFields<'_, '_>,
        key: &str,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        self.read(fields, key, |this, node, path| this.number(node, path, least, most))
    }

    /// Whether a key is true; not if it is absent.
    pub(super) fn flag(&mut self, fields: &MapFields<'_, '_>, key: &str) -> bool {
        self.read(fields, key, Self::yes).unwrap_or(false)
    }

    /// A list.
    pub(super) fn list<'n>(&mut self, node: &'n FileNode, path: &FieldPath<'_>) -> Option<&'n [FileNode]> {
        if let Value::List(items) = &node.kind {
            return Some(items);
        }
        let remedy = "write a list, each item after a dash";
        self.problems.add(node.at, path, format!("{} is no list", node.shown()), remedy);
        None
    }

    /// A share, in millionths.
    pub(super) fn share(&mut self, node: &FileNode, path: &FieldPath<'_>) -> Option<u32> {
        let text = self.text(node, path)?;
        let share = millionths(text);
        if share.is_none() {
            let message = format!("{} is no share from 0% to 100%", quoted(text));
            self.problems.add(
                node.at,
                path,
                message,
                "write a percentage with at most four decimals, as 25% or 0.5%",
            );
        }
        share
    }
}

impl Scalar {
    /// Whether it may stand for a text without quotes: to Go's reader, whole numbers that it has no word for are fractions, and so
    /// are those that begin with a zero and are not octal.
    pub(super) fn is_text(self, text: &str) -> bool {
        match self {
            Self::Quoted | Self::Text | Self::Bool => true,
            Self::Float | Self::Time => false,
            Self::Integer => {
                let (sign, unsigned) = match text.strip_prefix(['-', '+']) {
                    Some(unsigned) => (&text[..1], unsigned),
                    None => ("", text),
                };
                let (digits, radix) = digits_of(unsigned);
                let octal = radix == 10 && digits.len() > 1 && digits.starts_with('0');
                let digits: String = sign.chars().chain(digits.chars().filter(|&c| c != '_')).collect();
                i64::from_str_radix(&digits, if octal { 8 } else { radix }).is_ok()
            }
        }
    }
}

/// The digits of a whole number without its sign, and their base.
pub(super) fn digits_of(unsigned: &str) -> (&str, u32) {
    match unsigned.get(..2) {
        Some("0x" | "0X") => (&unsigned[2..], 16),
        Some("0o" | "0O") => (&unsigned[2..], 8),
        Some("0b" | "0B") => (&unsigned[2..], 2),
        _ => (unsigned, 10),
    }
}

fn short(text: &str) -> &str {
    text.get(..40).unwrap_or(text)
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum BadNumber {
    Negative,
    TooLarge,
    Octal,
    Other,
}

/// A whole number as YAML and TOML write it.
fn whole(text: &str) -> Result<u64, BadNumber> {
    if text.strip_prefix('-').is_some_and(|zeros| !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0'))
    {
        return Ok(0);
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if unsigned.starts_with('-') {
        return Err(BadNumber::Negative);
    }
    let (digits, radix) = digits_of(unsigned);
    if radix == 10 && digits.len() > 1 && digits.starts_with('0') {
        return Err(BadNumber::Octal);
    }
    let mut value: Option<u64> = None;
    for c in digits.chars() {
        match c.to_digit(radix) {
            Some(digit) => {
                let next = value.unwrap_or(0).checked_mul(u64::from(radix));
                let next = next.and_then(|next| next.checked_add(u64::from(digit)));
                value = Some(next.ok_or(BadNumber::TooLarge)?);
            }
            None if c == '_' && (value.is_some() || radix != 10) => {}
            None => return Err(BadNumber::Other),
        }
    }
    value.ok_or(BadNumber::Other)
}

/// A percentage, exactly.
fn millionths(text: &str) -> Option<u32> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if !(1..=3).contains(&whole.len()) || fraction.len() > 4 || number.ends_with('.') {
        return None;
    }
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let share: u32 = format!("{whole}{fraction:0<4}").parse().ok()?;
    (share <= MILLION).then_some(share)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for (text, number) in [
            ("0", 0),
            ("+5", 5),
            ("-0", 0),
            ("1_000", 1000),
            ("0x1F", 31),
            ("0x_1", 1),
            ("0o17", 15),
            ("0b101", 5),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(whole(text), Ok(number), "{text}");
        }
        for (text, bad) in [
            ("-1", BadNumber::Negative),
            ("010", BadNumber::Octal),
            ("18446744073709551616", BadNumber::TooLarge),
            ("", BadNumber::Other),
            ("-", BadNumber::Negative),
            ("_1", BadNumber::Other),
            ("0x", BadNumber::Other),
            ("0x_", BadNumber::Other),
            ("1.0", BadNumber::Other),
        ] {
            assert_eq!(whole(text), Err(bad), "{text}");
        }
    }

    #[test]
    fn shares_are_exact() {
        for (text, share) in [
            ("25%", 250_000),
            ("100%", 1_000_000),
            ("0%", 0),
            ("0.0001%", 1),
            ("12.5 %", 125_000),
            ("100.0000%", 1_000_000),
        ] {
            assert_eq!(millionths(text), Some(share), "{text}");
        }
        for text in
            ["", "%", "25", "0.25", "101%", "100.0001%", "0.00001%", "-1%", ".5%", "5.%", "1e1%", "1.2.3%"]
        {
            assert_eq!(millionths(text), None, "{text}");
        }
    }
}
