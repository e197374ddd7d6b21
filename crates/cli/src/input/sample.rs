//! The first records of an input, by field. The time and the client are chosen by these values, not only by the names.

/// The number of records that are inspected.
pub const RECORDS: usize = 200;

/// What a format's definition says of a field.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// The time of the request, or a part of it.
    Time,
    /// A candidate for the client: 0 is the format's first one, such as a forwarded list before the peer's address.
    Client(u8),
    /// The target of the request, which may look like an address too.
    Target,
    /// Anything else, and every field of a format that defines none.
    #[default]
    Other,
}

/// A field in the first records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SampleField {
    /// The name that `--key`, `--time` and `--cost` take.
    pub name: String,
    /// Its role in the format.
    pub role: Role,
    /// One value for each record; `None` if it is missing, empty or `-`. A list is one value.
    pub values: Vec<Option<Vec<u8>>>,
}

/// The first records of an input, by field: at most [`RECORDS`], from its first part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// The number of records.
    pub records: usize,
    /// In the order of the line; of JSON in the order of their first appearance.
    pub fields: Vec<SampleField>,
}

impl Sample {
    /// Creates a sample without records, whose fields have these names and roles.
    pub fn of<'n>(fields: impl IntoIterator<Item = (&'n str, Role)>) -> Self {
        let field = |(name, role): (&str, _)| SampleField { name: name.to_owned(), role, values: Vec::new() };
        Self { records: 0, fields: fields.into_iter().map(field).collect() }
    }

    /// Adds a record: the names and the values of its fields. A new name becomes a new field.
    pub fn add<'n, 'v>(&mut self, values: impl IntoIterator<Item = (&'n str, &'v [u8])>) {
        for (name, value) in values {
            let at = self.fields.iter().position(|field| field.name == name).unwrap_or_else(|| {
                self.fields.push(SampleField { name: name.to_owned(), ..SampleField::default() });
                self.fields.len() - 1
            });
            let values = &mut self.fields[at].values;
            values.resize(self.records, None);
            values.push((!matches!(value, b"" | b"-")).then(|| value.to_vec()));
        }
        self.records += 1;
        // The record may lack a field, or have a name twice.
        self.fields.iter_mut().for_each(|field| field.values.resize(self.records, None));
    }

    /// Returns the field of this name, in any case.
    pub fn field(&self, name: &str) -> Option<&SampleField> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))
    }
}
