//! Reads scalars: texts, numbers, booleans and shares.

use super::node::{FileNode, Scalar, Value, is_octal, is_short_bool, is_whole, parts_of, quoted};
use crate::rule::{MILLION, Metadata};

/// A bad value: what is wrong, and how to correct it.
#[derive(Debug)]
pub(super) struct BadValue {
    pub(super) message: Box<str>,
    pub(super) remedy: Box<str>,
}

impl BadValue {
    pub(super) fn new(message: impl Into<Box<str>>, remedy: impl Into<Box<str>>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }

    /// Returns the problem of a value of another kind: `expected a list, found "x"`.
    fn expected(what: &str, node: &FileNode, remedy: &str) -> Self {
        Self::new(format!("expected {what}, found {}", node.shown()), remedy)
    }
}

impl FileNode {
    /// Reads a text. Whole numbers and booleans need no quotes. Fractions do, because other parsers would read `1.10`
    /// as `1.1`.
    pub(super) fn text(&self) -> Result<&str, BadValue> {
        match &self.kind {
            Value::Scalar(scalar, text) if scalar.is_text(text) => Ok(text),
            Value::Scalar(_, text) => {
                let text = short(text);
                Err(BadValue::new(
                    format!("expected text, found {text}"),
                    format!("put it in quotes: \"{text}\""),
                ))
            }
            Value::Null | Value::List(_) | Value::Map(_) => {
                Err(BadValue::expected("text", self, "write a word, or text in quotes"))
            }
        }
    }

    /// Reads a text where a list of texts would be several descriptors.
    pub(super) fn only_text(&self) -> Result<&str, BadValue> {
        match &self.kind {
            Value::List(_) => Err(BadValue::expected("text", self, "write one descriptor for each value")),
            _ => self.text(),
        }
    }

    /// Reads a text. `remedy` states which texts are valid.
    pub(super) fn text_or(&self, remedy: impl FnOnce() -> String) -> Result<&str, BadValue> {
        self.text().map_err(|bad| BadValue::new(bad.message, remedy()))
    }

    /// Reads the name of a rule. Clients see it inside quotes in a header field, and some gateways escape nothing.
    pub(super) fn name(&self) -> Result<&str, BadValue> {
        let name = self.text()?;
        let breaks = |c: &char| matches!(c, '"' | '\\') || c.is_control();
        match name.chars().find(breaks) {
            None => Ok(name),
            Some(c) => Err(BadValue::new(
                format!("a name must not contain {c:?}, because gateways write it into header fields"),
                "use letters, digits, spaces, `-`, `_`, `.` and `/`",
            )),
        }
    }

    /// Reads a boolean.
    pub(super) fn yes(&self) -> Result<bool, BadValue> {
        let remedy = match &self.kind {
            Value::Scalar(Scalar::Bool, text) => {
                let text = text.as_bytes();
                return Ok(matches!(text, [b't' | b'T' | b'y' | b'Y', ..] | [b'o' | b'O', b'n' | b'N']));
            }
            Value::Scalar(Scalar::Text, text) if is_short_bool(text) => {
                return Ok(matches!(&**text, "y" | "Y"));
            }
            Value::Scalar(Scalar::Quoted, text) if matches!(&**text, "true" | "false") => "remove the quotes",
            _ => "write true or false",
        };
        Err(BadValue::new(format!("{} is neither true nor false", self.shown()), remedy))
    }

    /// Reads a whole number from `least` to `most`.
    pub(super) fn number(&self, least: u64, most: u64) -> Result<u64, BadValue> {
        let mut remedy = format!("write a whole number from {least} to {most}");
        let message = match &self.kind {
            Value::Scalar(Scalar::Integer, text) => match whole(text) {
                Ok(number) if (least..=most).contains(&number) => return Ok(number),
                Ok(number) if number < least => format!("{number} is less than {least}"),
                Ok(_) | Err(BadNumber::TooLarge) => format!("{} is more than {most}", short(text)),
                Err(BadNumber::Negative) => format!("{} is negative", short(text)),
                Err(BadNumber::Octal) => {
                    remedy = "remove the leading zero, or write an octal number as 0o17".to_owned();
                    format!("{} begins with a zero, and some parsers read it as octal", short(text))
                }
                Err(BadNumber::Other) => format!("expected a whole number, found {}", quoted(text)),
            },
            Value::Scalar(Scalar::Quoted, text) if whole(text).is_ok() => {
                remedy = "remove the quotes".to_owned();
                format!("expected a whole number, found the text {}", quoted(text))
            }
            _ => format!("expected a whole number, found {}", self.shown()),
        };
        Err(BadValue::new(message, remedy))
    }

    /// Reads a list.
    pub(super) fn list(&self) -> Result<&[FileNode], BadValue> {
        match &self.kind {
            Value::List(items) => Ok(items),
            _ => {
                Err(BadValue::expected("a list", self, "write a list; in YAML, begin each item with a dash"))
            }
        }
    }

    /// Reads a map. `remedy` states how to correct another kind of value.
    pub(super) fn map(&self, remedy: &str) -> Result<&[(FileNode, FileNode)], BadValue> {
        match &self.kind {
            Value::Map(entries) => Ok(entries),
            _ => Err(BadValue::expected("a map", self, remedy)),
        }
    }

    /// Returns a value of any kind. The file's reader has bounded the depth.
    pub(super) fn metadata(&self) -> Metadata {
        match &self.kind {
            Value::Null => Metadata::Null,
            Value::Scalar(Scalar::Bool, _) => Metadata::Bool(self.yes().unwrap_or(false)),
            Value::Scalar(kind, text) => {
                let number = number(text).filter(|_| matches!(kind, Scalar::Integer | Scalar::Float));
                number.map_or_else(|| Metadata::Text((&**text).into()), Metadata::Number)
            }
            Value::List(items) => Metadata::List(items.iter().map(Self::metadata).collect()),
            Value::Map(entries) => {
                let key = |key: &Self| match &key.kind {
                    Value::Scalar(_, text) => (&**text).into(),
                    Value::Null | Value::List(_) | Value::Map(_) => key.shown().into(),
                };
                Metadata::Map(entries.iter().map(|(name, value)| (key(name), value.metadata())).collect())
            }
        }
    }

    /// Reads a share, in millionths.
    pub(super) fn share(&self) -> Result<u32, BadValue> {
        self.text().ok().and_then(millionths).ok_or_else(|| {
            let message = format!("expected a percentage from 0% to 100%, found {}", self.shown());
            BadValue::new(message, "write at most four decimals, such as 25% or 0.5%")
        })
    }
}

/// Reads a finite number as JSON, YAML or TOML write it, with any base and with underscores.
fn number(text: &str) -> Option<f64> {
    let (sign, digits, radix) = parts_of(text);
    let digits = digits.replace('_', "");
    let number: f64 = match radix {
        10 => digits.parse().ok()?,
        _ => digits.chars().try_fold(0.0, |sum, c| {
            let digit = c.to_digit(radix)?;
            Some(f64::from(radix).mul_add(sum, f64::from(digit)))
        })?,
    };
    number.is_finite().then_some(if sign == "-" { -number } else { number })
}

/// Cuts a number or another word without quotes to a length that suits a message.
pub(super) fn short(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum BadNumber {
    Negative,
    TooLarge,
    Octal,
    Other,
}

/// Parses a whole number in the syntax of YAML and TOML.
fn whole(text: &str) -> Result<u64, BadNumber> {
    let (sign, digits, radix) = parts_of(text);
    if !is_whole(text) {
        Err(BadNumber::Other)
    } else if sign == "-" && (radix != 10 || digits.bytes().any(|byte| byte != b'0')) {
        Err(BadNumber::Negative)
    } else if sign != "-" && is_octal(digits, radix) {
        Err(BadNumber::Octal)
    } else {
        // The syntax is right, so this fails only for a number that is too large.
        u64::from_str_radix(&digits.replace('_', ""), radix).map_err(|_| BadNumber::TooLarge)
    }
}

/// Parses a percentage, without rounding.
fn millionths(text: &str) -> Option<u32> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let fits = (1..=3).contains(&whole.len()) && fraction.len() <= 4 && !number.ends_with('.');
    if !fits || !digits(whole) || !digits(fraction) {
        return None;
    }
    let share: u32 = format!("{whole}{fraction:0<4}").parse().ok()?;
    (share <= MILLION).then_some(share)
}
