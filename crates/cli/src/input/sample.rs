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
    /// Its other names, separated by spaces. The first one is that of the common log format, which has the same meaning
    /// everywhere.
    pub aliases: String,
    /// Its role in the format.
    pub role: Role,
    /// Whether the values are from several columns of the lines, because the format has no names for these columns.
    pub is_mixed: bool,
    /// One value for each record; `None` if it is missing, empty or `-`. A list is one value.
    pub values: Vec<Option<Vec<u8>>>,
}

impl SampleField {
    /// Whether this is another name of the field.
    fn is_called(&self, name: &str) -> bool {
        !name.is_empty() && self.aliases.split(' ').any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The first records of an input, by field: at most [`RECORDS`], from its first part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// The number of records.
    pub records: usize,
    /// In the order of the line; of JSON in the order of their first appearance.
    pub fields: Vec<SampleField>,
    /// Whether later records may have more fields, as in JSON.
    pub open: bool,
}

impl Sample {
    /// Creates a sample without records, whose fields have these names and roles.
    pub fn of<'n>(fields: impl IntoIterator<Item = (&'n str, Role)>) -> Self {
        Self::named(fields.into_iter().map(|(name, role)| (name, "", role)))
    }

    /// Does the same for fields with other names.
    pub fn named<'n>(fields: impl IntoIterator<Item = (&'n str, &'n str, Role)>) -> Self {
        let field = |(name, aliases, role): (&str, &str, Role)| SampleField {
            name: name.to_owned(),
            aliases: aliases.to_owned(),
            role,
            ..SampleField::default()
        };
        Self { fields: fields.into_iter().map(field).collect(), ..Self::default() }
    }

    /// Creates a sample without records from the names in a header.
    pub fn of_header(names: &[String]) -> Self {
        Self::of(names.iter().map(|name| (&**name, Role::Other)))
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

    /// Returns the names of the fields.
    pub fn names(&self) -> Vec<String> {
        self.fields.iter().map(|field| field.name.clone()).collect()
    }

    /// Returns the names of the fields as one text.
    pub fn shown_names(&self) -> String {
        if self.fields.is_empty() { "none".to_owned() } else { self.names().join(", ") }
    }

    /// Returns the place of the field of this name. If no name has the same case, any case will do, and then another name
    /// of the field. A variable's name may be without its `$` and braces, and an operator of Envoy's may have a length.
    pub fn column(&self, name: &str) -> Option<usize> {
        let bare = name.strip_prefix('$').unwrap_or(name);
        let bare = bare.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(bare);
        let operator = name.strip_suffix('%').and_then(|text| text.rsplit_once(':'));
        let operator = operator.filter(|(_, digits)| digits.bytes().all(|b| b.is_ascii_digit()));
        let operator = operator.map_or_else(|| name.to_owned(), |(operator, _)| format!("{operator}%"));
        let place = |is: &dyn Fn(&SampleField) -> bool| self.fields.iter().position(is);
        let is_own = |field: &SampleField| {
            [name, bare, &operator].iter().any(|name| field.name.eq_ignore_ascii_case(name))
        };
        place(&|field| field.name == name)
            .or_else(|| place(&is_own))
            .or_else(|| place(&|field| field.is_called(bare)))
    }

    /// Returns whether a field has this name or the same one in the common log format. Other names of a field may mean
    /// something else in rules, as `host` does.
    pub fn has(&self, name: &str) -> bool {
        if self.open {
            return self.fields.iter().any(|field| field.name == name);
        }
        let common = |field: &SampleField| {
            field.aliases.split(' ').next().is_some_and(|common| common.eq_ignore_ascii_case(name))
        };
        self.field(name).is_some() || !name.is_empty() && self.fields.iter().any(common)
    }
}
