//! Fields that are wanted besides the time and the cost: each value's text is kept once, and each combination of values is a
//! number, as keys are.

use super::Error;
use super::clf;
use super::fields::Format;
use super::keys::Interner;
use super::row::Row;

/// A field that is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// What it may be called; the first that a file has is taken.
    pub names: Vec<String>,
    /// Whether a file may lack it: it was not named by the user, but guessed.
    pub guessed: bool,
    /// Whether it is the client, and so read as an address where it is one.
    pub client: bool,
}

/// Stands for a value that a record does not have.
const NONE: u32 = u32::MAX;

/// Fields that are wanted, and what was read of them.
#[derive(Debug, Default)]
pub struct Fields {
    fields: Vec<WantedField>,
    /// The fields of the last file, for a message.
    present: Vec<String>,
    texts: Interner<str>,
    /// Values as numbers in `texts`.
    combinations: Interner<[u32]>,
    /// One record's values, its memory used again.
    values: Vec<u32>,
}

/// A field that is wanted, and where it was.
#[derive(Debug)]
struct WantedField {
    wanted: Wanted,
    /// By which names it was found.
    found: Vec<String>,
    /// Whether a record has it.
    is_there: bool,
}

impl WantedField {
    /// What it is called, if it was not found by another name.
    fn name(&self) -> Option<&String> {
        self.wanted.names.first()
    }
}

impl Fields {
    /// Nothing read yet.
    pub fn new(wanted: Vec<Wanted>) -> Self {
        let field = |wanted| WantedField { wanted, found: Vec::new(), is_there: false };
        Self { fields: wanted.into_iter().map(field).collect(), ..Self::default() }
    }

    /// Which of them are no clients.
    pub fn plain(&self) -> Vec<bool> {
        self.fields.iter().map(|field| !field.wanted.client).collect()
    }

    /// What a file calls each of them; `None` of a guess that it does not have.
    ///
    /// JSON lines may have fields that their first ones lack, so there a name is taken as it is.
    ///
    /// # Errors
    /// If a file with fixed fields lacks one that was named.
    pub fn resolve(
        &mut self,
        format: Format,
        present: &[String],
        file: &str,
    ) -> Result<Vec<Option<String>>, Error> {
        present.clone_into(&mut self.present);
        let mut resolved = Vec::with_capacity(self.fields.len());
        for field in &mut self.fields {
            let Wanted { names, guessed, .. } = &field.wanted;
            let is_present = |name: &&String| match format {
                // Not by aliases, of which `host` is one that rules mean otherwise.
                Format::Clf if !guessed => clf::ClfField::by_name(name).is_some(),
                Format::Jsonl => present.contains(name),
                _ => present.iter().any(|known| known.eq_ignore_ascii_case(name)),
            };
            let known = names.iter().find(is_present);
            if let Some(name) = known.filter(|name| !field.found.contains(name)) {
                field.found.push(name.clone());
            }
            let name = match (known, format) {
                (None, Format::Jsonl) => field.name(),
                (None, _) if !guessed => {
                    return Err(no_field(file, field.name().map_or("", String::as_str), present));
                }
                (known, _) => known,
            };
            resolved.push(name.cloned());
        }
        Ok(resolved)
    }

    /// Notes a record, and gives its combination of values a number; `None` after 2³² of them.
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

    /// The number of a text. Bytes that are no UTF-8 are written `\xNN`.
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

    /// That every field which the user named was in some record, or in some file's header.
    ///
    /// # Errors
    /// With the first that was not.
    pub fn all_found(&self, files: &str) -> Result<(), Error> {
        let is_missing =
            |field: &&WantedField| !field.wanted.guessed && field.found.is_empty() && !field.is_there;
        self.fields.iter().find(is_missing).map_or(Ok(()), |field| {
            Err(no_field(files, field.name().map_or("", String::as_str), &self.present))
        })
    }

    /// What a field was called where it was found.
    pub fn found(&self, field: usize) -> Option<String> {
        let field = self.fields.get(field)?;
        match &field.found[..] {
            [] if field.is_there => field.name().cloned(),
            [] => None,
            names => Some(names.join("|")),
        }
    }

    /// How many combinations there are.
    pub fn len(&self) -> usize {
        self.combinations.len()
    }

    /// The text of a field in a combination, as a number for [`Fields::text`]; `None` if its records lack it.
    pub fn value(&self, combination: u32, field: usize) -> Option<u32> {
        self.combinations.get(combination)?.get(field).copied().filter(|&id| id != NONE)
    }

    /// How many texts there are.
    pub fn texts(&self) -> usize {
        self.texts.len()
    }

    /// A text by its number.
    pub fn text(&self, number: u32) -> &str {
        self.texts.get(number).unwrap_or_default()
    }
}

/// The error of a file that lacks a field.
pub fn no_field(file: &str, name: &str, present: &[String]) -> Error {
    Error::run(format!("{file}: there is no field {name:?}; the fields are: {}", present.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(names: &[&str]) -> Fields {
        let wanted = |name: &&str| Wanted { names: vec![(*name).to_owned()], guessed: false, client: true };
        Fields::new(names.iter().map(wanted).collect())
    }

    fn row(values: &[&[u8]]) -> Row {
        let mut row = Row::new(None);
        values.iter().for_each(|value| row.add_field(Some(value)));
        row
    }

    #[test]
    fn equal_combinations_share_a_number() {
        let mut fields = fields(&["a", "b"]);
        let rows: [[&[u8]; 2]; 4] = [[b"x", b"y"], [b"x", b"-"], [b"x", b"y"], [b"y", b"\xff"]];
        let numbers: Vec<_> = rows.iter().map(|values| fields.intern(&row(values)).unwrap()).collect();
        assert_eq!(numbers, [0, 1, 0, 2]);
        let text = |number, field| fields.value(number, field).map(|id| fields.text(id));
        assert_eq!([text(0, 0), text(0, 1)], [Some("x"), Some("y")]);
        assert_eq!([text(1, 0), text(1, 1)], [Some("x"), None]);
        assert_eq!([text(2, 0), text(2, 1)], [Some("y"), Some("\\xff")]);
        assert_eq!((fields.len(), fields.texts.len()), (3, 3));
    }

    #[test]
    fn no_fields_are_one_combination() {
        let mut fields = fields(&[]);
        assert_eq!((fields.intern(&row(&[])), fields.intern(&row(&[]))), (Some(0), Some(0)));
        assert_eq!((fields.len(), fields.value(0, 0)), (1, None));
    }
}
