//! The fields to read in addition to the time and the cost. Each value's text is stored once, and each combination of
//! values has a number, as keys do.

use std::collections::HashMap;
use std::net::IpAddr;

use super::Error;
use super::client::Clients;
use super::keys::Interner;
use super::row::{FieldKind, Row};
use super::sample::Sample;

/// A field to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Its possible names; the first one that a file has is used.
    pub names: Vec<String>,
    /// Whether a file may lack the field, because it was guessed and not named by the user.
    pub guessed: bool,
    /// What its values are.
    pub kind: FieldKind,
}

/// The number of a missing value.
const NONE: u32 = u32::MAX;

/// The fields to read, and the values that were read.
#[derive(Debug, Default)]
pub struct Fields {
    fields: Vec<WantedField>,
    /// The fields of the last file, for a message.
    present: Vec<String>,
    texts: Interner<str>,
    /// Values as numbers in `texts`.
    combinations: Interner<[u32]>,
    /// One record's values; the memory is reused.
    values: Vec<u32>,
    /// The texts of addresses, with those of the networks by which they are counted.
    networks: HashMap<u32, u32, ahash::RandomState>,
}

/// A field to read, and where it was found.
#[derive(Debug)]
struct WantedField {
    wanted: Wanted,
    /// The names under which it was found.
    found: Vec<String>,
    /// Whether any record has it.
    is_there: bool,
}

impl WantedField {
    /// Returns the field's name, if it was not found under another name.
    fn name(&self) -> Option<&String> {
        self.wanted.names.first()
    }
}

impl Fields {
    /// Creates an empty set of records.
    pub fn new(wanted: Vec<Wanted>) -> Self {
        let field = |wanted| WantedField { wanted, found: Vec::new(), is_there: false };
        Self { fields: wanted.into_iter().map(field).collect(), ..Self::default() }
    }

    /// Returns what the values of each field are.
    pub fn kinds(&self) -> Vec<FieldKind> {
        self.fields.iter().map(|field| field.wanted.kind).collect()
    }

    /// Returns the first field that is the client and was guessed: the key of its descriptor.
    pub fn guessed_client(&self) -> Option<&str> {
        let field = self.fields.iter().find(|field| field.wanted.guessed && field.wanted.kind.is_client())?;
        field.name().map(String::as_str)
    }

    /// Returns each field's name in a file; `None` for a guessed field that the file does not have. A guessed field that
    /// is the client is `client`, if there is one.
    ///
    /// In JSON lines, later objects may have fields that the first ones lack, so a name is accepted without a check.
    ///
    /// # Errors
    /// Returns an error if a file with fixed fields lacks a named field.
    pub fn resolve(
        &mut self,
        sample: &Sample,
        client: Option<&str>,
        file: &str,
    ) -> Result<Vec<Option<String>>, Error> {
        self.present = sample.names();
        let mut resolved = Vec::with_capacity(self.fields.len());
        for field in &mut self.fields {
            let Wanted { names, guessed, kind } = &field.wanted;
            // A guess uses no alias: `host`, for example, has another meaning in rules.
            let is_present = |name: &&String| {
                sample.has(name) || !*guessed && !sample.open && sample.column(name).is_some()
            };
            let chosen = client.filter(|_| *guessed && kind.is_client()).map(str::to_owned);
            let known = chosen.or_else(|| names.iter().find(is_present).cloned());
            if let Some(name) = known.as_ref().filter(|name| !field.found.contains(name)) {
                field.found.push(name.clone());
            }
            let name = match known {
                None if sample.open => field.name().cloned(),
                None if !guessed => {
                    return Err(no_field(file, field.name().map_or("", String::as_str), &self.present));
                }
                known => known,
            };
            resolved.push(name);
        }
        Ok(resolved)
    }

    /// Stores the values of a record and returns the number of their combination; `None` after 2³² combinations.
    pub fn intern(&mut self, row: &Row) -> Option<u32> {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        for (at, value) in row.fields().enumerate() {
            values.push(match value {
                Some(value) => {
                    if let Some(field) = self.fields.get_mut(at) {
                        field.is_there = true;
                    }
                    self.text_number(value)?
                }
                None => NONE,
            });
        }
        let number = self.combinations.intern(&values);
        self.values = values;
        number
    }

    /// Returns the number of a text. Bytes that are not UTF-8 are written `\xNN`.
    pub fn text_number(&mut self, bytes: &[u8]) -> Option<u32> {
        match str::from_utf8(bytes) {
            Ok(text) => self.texts.intern(text),
            Err(_) => {
                let mut text = String::new();
                for chunk in bytes.utf8_chunks() {
                    text.push_str(chunk.valid());
                    text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
                }
                self.texts.intern(&text)
            }
        }
    }

    /// Checks that every field named by the user was in some record, or in some file's header.
    ///
    /// # Errors
    /// Returns the first field that was not.
    pub fn all_found(&self, files: &str) -> Result<(), Error> {
        let is_missing =
            |field: &&WantedField| !field.wanted.guessed && field.found.is_empty() && !field.is_there;
        self.fields.iter().find(is_missing).map_or(Ok(()), |field| {
            Err(no_field(files, field.name().map_or("", String::as_str), &self.present))
        })
    }

    /// Returns the name of a field where it was found.
    pub fn found(&self, field: usize) -> Option<String> {
        let field = self.fields.get(field)?;
        match &field.found[..] {
            [] if field.is_there => field.name().cloned(),
            [] => None,
            names => Some(names.join("|")),
        }
    }

    /// Returns the number of combinations.
    pub fn len(&self) -> usize {
        self.combinations.len()
    }

    /// Returns the text of a field in a combination, as a number for [`Fields::text`]; `None` if its records lack the
    /// field.
    pub fn value(&self, combination: u32, field: usize) -> Option<u32> {
        self.combinations.get(combination)?.get(field).copied().filter(|&id| id != NONE)
    }

    /// Cuts the addresses of clients, for [`Fields::counted`].
    pub fn cut(&mut self, clients: Clients) {
        for number in 0..u32::try_from(self.texts.len()).unwrap_or(u32::MAX) {
            let Ok(address) = self.text(number).parse::<IpAddr>() else { continue };
            let network = clients.network(address);
            // Without another number, the address is counted whole.
            if network != address
                && let Some(network) = self.texts.intern(&network.to_string())
            {
                self.networks.insert(number, network);
            }
        }
    }

    /// Returns the text by which a field in a combination is counted: the network of a client's address, and any other
    /// value itself.
    pub fn counted(&self, combination: u32, field: usize) -> Option<u32> {
        let value = self.value(combination, field)?;
        let is_client = self.fields.get(field).is_some_and(|field| field.wanted.kind.is_client());
        Some(self.networks.get(&value).copied().filter(|_| is_client).unwrap_or(value))
    }

    /// Whether a text is counted by another one.
    pub fn has_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    /// Returns the number of texts.
    pub fn texts(&self) -> usize {
        self.texts.len()
    }

    /// Returns a text by its number.
    pub fn text(&self, number: u32) -> &str {
        self.texts.get(number).unwrap_or_default()
    }
}

/// Returns the error for a file that lacks a field.
pub fn no_field(file: &str, name: &str, present: &[String]) -> Error {
    Error::run(format!("{file}: there is no field {name:?}; the fields are: {}", present.join(", ")))
}
