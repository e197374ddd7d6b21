//! The mapping from the fields of a log to the descriptors of rules.

use tollgate_rules::Rule;

use crate::input::row::FieldKind;
use crate::input::wanted::{Fields, Wanted};
use tollgate_report::descriptor::{DescriptorArg, EntryValue};
use tollgate_report::error::Error;

/// Keys that have the same value for every request: the value in the rules.
const CONSTANT: [&str; 2] = ["generic_key", "header_match"];

/// Usual names of the field with a key's value, if the field does not have the key's name; the most certain name first.
///
/// Gateways send the path with its query, so a field without the query comes last.
const USUAL: [(&str, &str); 7] = [
    ("remote_address masked_remote_address client_ip ip", ADDRESSES),
    ("path :path", "path url request_uri uri request_path resource cs-uri-stem bare_path"),
    ("route", "bare_path path cs-uri-stem uri url request_path resource"),
    ("method :method", "method request_method http_method cs-method verb"),
    ("user user_id", "user user_id username remote_user account actor"),
    ("host :authority authority", "vhost virtual_host server_name http_host host_header"),
    ("user_agent user-agent", "agent user_agent http_user_agent"),
];

/// Envoy's key of a client's network.
const MASKED: &str = "masked_remote_address";

const ADDRESSES: &str = "ip client client_ip clientip client_addr remote_addr remote_ip remote_host src_ip srcip \
    source_ip sourceipaddress c-ip id.orig_h src ip_address forwarded http_x_forwarded_for real_ip";

/// Returns whether a name is one of these, in any case.
fn is_among(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known.eq_ignore_ascii_case(name))
}

/// Returns what the values of a key are.
fn kind_of(key: &str) -> FieldKind {
    let [(keys, _), ..] = USUAL;
    match key {
        MASKED => FieldKind::Network,
        key if is_among(keys, key) => FieldKind::Client,
        _ => FieldKind::Text,
    }
}

/// Returns the possible field names of a key.
fn usual_names(key: &str) -> Vec<String> {
    let usual = USUAL.iter().find(|(keys, _)| is_among(keys, key));
    let usual = usual.into_iter().flat_map(|(_, names)| names.split(' ').filter(|&name| name != key));
    let mut names: Vec<String> = usual.map(str::to_owned).collect();
    // The key itself is the most certain name.
    names.insert(0, key.to_owned());
    names
}

/// Returns the index of an item; adds the item if it is new.
fn place_of<T: PartialEq>(one: T, all: &mut Vec<T>) -> usize {
    all.iter().position(|known| *known == one).unwrap_or_else(|| {
        all.push(one);
        all.len() - 1
    })
}

/// The source of an entry's value, by number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ValueSource {
    /// A field of the log.
    Field(usize),
    /// A text in [`Fields`].
    Text(u32),
}

/// The descriptors of every request.
#[derive(Debug, Default)]
pub struct Mapping {
    /// The keys of each descriptor, with their sources.
    pub descriptors: Vec<Vec<(String, ValueSource)>>,
    /// The field of the tier.
    pub tier: Option<usize>,
    /// The field of the domain.
    pub domain: Option<usize>,
    /// Whether the descriptors were derived from the rules.
    pub derived: bool,
    /// The paths of rules for which no descriptor could be derived.
    pub left_out: Vec<String>,
    wanted: Vec<Wanted>,
    texts: Vec<String>,
}

impl Mapping {
    /// Creates the mapping from the command line.
    ///
    /// # Errors
    /// Returns an error if two descriptors are the same.
    pub fn new(args: &[DescriptorArg], tier: Option<&str>, domain: Option<&str>) -> Result<Self, Error> {
        let mut mapping = Self::default();
        for (at, arg) in args.iter().enumerate() {
            if args[..at].contains(arg) {
                return Err(Error::usage(format!(
                    "--descriptor {arg} is given twice, so every request would count twice; remove one of them"
                )));
            }
            let entries = arg.0.iter().map(|(key, value)| {
                let source = match value {
                    EntryValue::Field(name) => mapping.named(key, name),
                    EntryValue::Text(text) => mapping.text(text),
                };
                (key.clone(), source)
            });
            let entries = entries.collect();
            mapping.descriptors.push(entries);
        }
        let field =
            |name: &str| Wanted { names: vec![name.to_owned()], guessed: false, kind: FieldKind::Text };
        mapping.tier = tier.map(|name| mapping.field(field(name)));
        mapping.domain = domain.map(|name| mapping.field(field(name)));
        Ok(mapping)
    }

    /// Adds a descriptor for each list of keys that leads to a rule.
    pub fn derive<'r>(&mut self, rules: impl Iterator<Item = &'r Rule>) {
        self.derived = true;
        for rule in rules {
            let path = rule.path();
            let entries: Option<Vec<_>> =
                path.iter().map(|(key, value)| self.entry(key, value.as_deref())).collect();
            match entries {
                Some(entries) if !self.descriptors.contains(&entries) => self.descriptors.push(entries),
                Some(_) => {}
                None => self.left_out.push(rule.identity.to_string()),
            }
        }
    }

    fn entry(&mut self, key: &str, value: Option<&str>) -> Option<(String, ValueSource)> {
        if key.contains('*') {
            return None;
        }
        let source = if CONSTANT.contains(&key) {
            self.text(value.filter(|value| !value.contains('*'))?)
        } else {
            ValueSource::Field(self.field(Wanted {
                names: usual_names(key),
                guessed: true,
                kind: kind_of(key),
            }))
        };
        Some((key.to_owned(), source))
    }

    fn named(&mut self, key: &str, name: &str) -> ValueSource {
        let kind = match kind_of(key) {
            FieldKind::Text if is_among(ADDRESSES, name) => FieldKind::Client,
            kind => kind,
        };
        ValueSource::Field(self.field(Wanted { names: vec![name.to_owned()], guessed: false, kind }))
    }

    fn field(&mut self, wanted: Wanted) -> usize {
        place_of(wanted, &mut self.wanted)
    }

    fn text(&mut self, text: &str) -> ValueSource {
        let at = place_of(text.to_owned(), &mut self.texts);
        ValueSource::Text(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// Returns the fields to read. The texts already have their numbers.
    pub fn fields(&self) -> Fields {
        let mut fields = Fields::new(self.wanted.clone());
        // Texts are distinct, so their numbers are their places.
        for text in &self.texts {
            // There are too few texts to use up the numbers.
            let _ = fields.text_number(text.as_bytes());
        }
        fields
    }

    /// Returns the fields that are clients.
    pub fn clients(&self) -> impl Iterator<Item = usize> {
        self.wanted.iter().enumerate().filter(|(_, wanted)| wanted.kind.is_client()).map(|(field, _)| field)
    }

    /// Returns each key whose value is a field, with the field.
    pub fn fields_of_keys(&self) -> impl Iterator<Item = (&str, usize)> {
        self.descriptors.iter().flatten().filter_map(|(key, source)| match source {
            ValueSource::Field(field) => Some((&**key, *field)),
            ValueSource::Text(_) => None,
        })
    }

    /// Returns how many different texts are part of descriptors.
    pub fn constants(&self) -> usize {
        self.texts.len()
    }

    /// Returns a descriptor with the fields that were found, or `?`; and the keys without a field.
    pub fn shown(&self, descriptor: usize, fields: &Fields) -> (DescriptorArg, Vec<String>) {
        let mut lacking = Vec::new();
        let entries = self.descriptors.get(descriptor).map_or(&[][..], Vec::as_slice);
        let entries = entries.iter().map(|(key, source)| {
            let value = match *source {
                ValueSource::Text(text) => EntryValue::Text(fields.text(text).to_owned()),
                ValueSource::Field(at) => EntryValue::Field(fields.found(at).unwrap_or_else(|| {
                    lacking.push(key.clone());
                    "?".to_owned()
                })),
            };
            (key.clone(), value)
        });
        let entries = entries.collect();
        (DescriptorArg(entries), lacking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_certain_field_name_first() {
        assert_eq!(usual_names("remote_address")[..3], ["remote_address", "ip", "client"]);
        assert_eq!(usual_names("client_ip")[..3], ["client_ip", "ip", "client"]);
        assert_eq!(usual_names("path")[..2], ["path", "url"]);
        assert_eq!(usual_names(":path")[..3], [":path", "path", "url"]);
        assert_eq!(usual_names("route")[..2], ["route", "bare_path"]);
        assert_eq!(usual_names("tenant"), ["tenant"]);
    }
}
