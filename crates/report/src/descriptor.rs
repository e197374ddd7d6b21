//! `--descriptor`: the descriptor of a request.
//!
//! ```text
//! descriptor = entry { "," entry }
//! entry      = word "=" word        key and field
//!            | word ":=" word       key and text
//! word       = bare | "'" { any but "'" | "''" } "'"
//! ```

use std::fmt;
use std::str::FromStr;

use clap::Args;
use tollgate_rules::Descriptor;

/// The source of an entry's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryValue {
    /// The log.
    Field(String),
    /// The command line, or the rules.
    Text(String),
}

/// `--descriptor`: keys, each with the source of its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescriptorArg(pub Vec<(String, EntryValue)>);

/// The keys and values of a descriptor.
pub type Entries<'a> = Vec<(&'a str, &'a str)>;

impl DescriptorArg {
    /// Parses the descriptor of one request: its values are here, and in no log.
    ///
    /// # Errors
    /// If the text does not have this form.
    pub fn of_request(text: &str) -> Result<Self, String> {
        Self::parse(text, true)
    }

    /// Returns the keys and values, wherever the values are from.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, EntryValue::Field(value) | EntryValue::Text(value))| (&**key, &**value))
    }
}

/// Returns the descriptors with these entries, of a client with this tier.
pub fn described<'a>(entries: &'a [Entries<'a>], tier: Option<&'a str>) -> Vec<Descriptor<'a>> {
    let one = |entries: &'a Entries<'a>| {
        let descriptor = Descriptor::new(entries);
        tier.map_or(descriptor, |tier| descriptor.tier(tier))
    };
    entries.iter().map(one).collect()
}

/// A request of rules.
#[derive(Args, Debug)]
pub struct RequestArgs {
    /// Domain of the request
    pub domain: String,

    /// The entries of the request's descriptor, in order, such as path=/login remote_address=192.0.2.1
    ///
    /// An entry is KEY=VALUE. Put a text that contains a comma, an equals sign or a quote in single quotes, inside the
    /// quotes of the shell: "path='/a,b'".
    #[arg(value_name = "KEY=VALUE", value_parser = DescriptorArg::of_request, required_unless_present = "descriptor")]
    pub entries: Vec<DescriptorArg>,

    /// A further descriptor of the request, as KEY=VALUE[,KEY=VALUE…]; repeat the flag for several
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = DescriptorArg::of_request)]
    pub descriptor: Vec<DescriptorArg>,

    /// The client's tier
    #[arg(long, value_name = "NAME")]
    pub tier: Option<String>,
}

impl RequestArgs {
    /// Returns the descriptors: the one of the positional arguments first.
    pub fn descriptors(&self) -> Vec<Entries<'_>> {
        let first: Entries<'_> = self.entries.iter().flat_map(DescriptorArg::entries).collect();
        let more = self.descriptor.iter().map(|one| one.entries().collect());
        Some(first).filter(|first| !first.is_empty()).into_iter().chain(more).collect()
    }
}

impl FromStr for DescriptorArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, false)
    }
}

impl DescriptorArg {
    fn parse(text: &str, is_request: bool) -> Result<Self, String> {
        let mut entries = Vec::new();
        let mut rest = text;
        loop {
            let (key, after) = word(rest, |text| {
                text.find(['=', ',']).map(|at| at - usize::from(text[..at].ends_with(':')))
            })?;
            let form = match is_request {
                true => "KEY=VALUE, such as remote_address=192.0.2.1",
                false => "KEY=FIELD or KEY:=TEXT, such as remote_address=ip",
            };
            let expected = || format!("{:?}: expected {form}", rest.trim());
            if key.is_empty() {
                return Err(expected());
            }
            let (is_text, after) = match (after.strip_prefix(":="), after.strip_prefix('=')) {
                (Some(after), _) => (true, after),
                (None, Some(after)) => (false, after),
                (None, None) => return Err(expected()),
            };
            let quoted = after.trim_start().starts_with('\'');
            let (value, after) = word(after, |text| text.find(','))?;
            if value.is_empty() && !((is_text || is_request) && quoted) {
                let what = if is_text || is_request {
                    "text; write '' for an empty text"
                } else {
                    "field; write the name of a log field after ="
                };
                return Err(format!("{key:?} has no {what}"));
            }
            entries.push((key, if is_text { EntryValue::Text(value) } else { EntryValue::Field(value) }));
            match after.strip_prefix(',') {
                Some(after) => rest = after,
                None if after.is_empty() => return Ok(Self(entries)),
                None => {
                    return Err(format!("{after:?} follows a quoted text; separate entries with commas"));
                }
            }
        }
    }
}

/// Returns a quoted word, or the text up to the end that `end` finds, without surrounding spaces; and the rest.
fn word(text: &str, end: impl Fn(&str) -> Option<usize>) -> Result<(String, &str), String> {
    let trimmed = text.trim_start();
    let Some(mut rest) = trimmed.strip_prefix('\'') else {
        let (word, rest) = text.split_at(end(text).unwrap_or(text.len()));
        return Ok((word.trim().to_owned(), rest));
    };
    let mut word = String::new();
    loop {
        let Some((part, after)) = rest.split_once('\'') else {
            return Err(format!(
                "{trimmed:?}: the quote is not closed; add a single quote at the end of the text"
            ));
        };
        word.push_str(part);
        match after.strip_prefix('\'') {
            Some(after) => {
                word.push('\'');
                rest = after;
            }
            None => return Ok((word, after.trim_start())),
        }
    }
}

/// Returns a word in the syntax of a descriptor, in quotes if needed.
fn written(word: &str) -> String {
    let bare =
        !word.is_empty() && word.trim() == word && !word.contains(['=', ',', '\'']) && !word.ends_with(':');
    if bare { word.to_owned() } else { format!("'{}'", word.replace('\'', "''")) }
}

impl fmt::Display for DescriptorArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.iter().map(|(key, value)| match value {
            EntryValue::Field(field) => format!("{}={}", written(key), written(field)),
            EntryValue::Text(text) => format!("{}:={}", written(key), written(text)),
        });
        f.write_str(&entries.collect::<Vec<_>>().join(","))
    }
}
