//! The common result of all formats: the raw fields of one record, or an error.

use std::net::IpAddr;

use super::client::{AddressCounts, Client, Clients};

/// Separates the parts of a key of several fields. Shown as ` + `.
pub const SEPARATOR: u8 = 0x1f;

/// The error for a key with an empty part.
pub const EMPTY_KEY: &str = "the key is empty";

/// The error for a key that is `-`, as logs write a value that is missing.
pub const NO_CLIENT: &str = "the line names no client: the field is -";

/// The error for a key that is a list of addresses in which the client's address is missing or unreadable.
pub const UNKNOWN_CLIENT: &str =
    "the address before the trusted proxies is missing or unreadable; see --proxies";

/// One record's fields as text. The buffers are reused for the next record.
#[derive(Clone, Debug, Default)]
pub struct Row {
    time: Vec<u8>,
    key: Vec<u8>,
    key_parts: usize,
    /// Parts of the key that may be clients, and are `-`.
    missing_parts: usize,
    bad_key: Option<&'static str>,
    seen: AddressCounts,
    cost: Option<Vec<u8>>,
    /// Values of other fields, one after the other.
    fields: Vec<u8>,
    /// The end of each value; `None` for a missing value.
    field_ends: Vec<Option<usize>>,
    clients: Option<Clients>,
    /// Parts of the key that are taken unchanged.
    plain_key: Vec<bool>,
    /// What the other fields are.
    kinds: Vec<FieldKind>,
}

/// What the values of a field are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// Texts that are taken unchanged. They may be addresses, as the target of a request can be.
    Text,
    /// Clients: an address is read as an address.
    Client,
    /// Clients whose addresses are written as networks, such as 192.0.2.1/32. Envoy sends them so under the key
    /// `masked_remote_address`.
    Network,
}

impl FieldKind {
    /// Whether the field is the client.
    pub const fn is_client(self) -> bool {
        !matches!(self, Self::Text)
    }
}

impl Row {
    /// Creates a row that identifies clients by their addresses, or takes every text unchanged.
    pub fn new(clients: Option<Clients>) -> Self {
        Self { clients, ..Self::default() }
    }

    /// Takes these parts of the key unchanged, because they are not clients, and other fields as they are.
    pub fn with_kinds(self, plain_key: Vec<bool>, kinds: Vec<FieldKind>) -> Self {
        Self { plain_key, kinds, ..self }
    }

    /// Clears the record.
    pub fn clear(&mut self) {
        self.time.clear();
        self.key.clear();
        self.key_parts = 0;
        self.missing_parts = 0;
        self.bad_key = None;
        self.seen = AddressCounts::default();
        self.fields.clear();
        self.field_ends.clear();
        if let Some(cost) = &mut self.cost {
            cost.clear();
        }
    }

    /// Adds a part of the time; parts are joined by a space.
    pub fn add_time(&mut self, part: &[u8]) {
        if !self.time.is_empty() {
            self.time.push(b' ');
        }
        self.time.extend_from_slice(part);
    }

    /// Adds a part of the key.
    pub fn add_key(&mut self, part: &[u8]) {
        if self.key_parts > 0 {
            self.key.push(SEPARATOR);
        }
        let clients = self.clients.filter(|_| self.plain_key.get(self.key_parts) != Some(&true));
        self.key_parts += 1;
        self.missing_parts += usize::from(part == b"-" && clients.is_some());
        if part.is_empty() {
            self.bad_key = Some(EMPTY_KEY);
        }
        match clients.map(|clients| (clients, clients.read(part))) {
            Some((clients, Client::Address(address, seen))) => {
                self.seen.add(seen);
                let text = match address {
                    IpAddr::V4(v4) => v4.to_string(),
                    IpAddr::V6(v6) => format!("{v6}/{}", clients.ipv6_bits()),
                };
                self.key.extend_from_slice(text.as_bytes());
            }
            Some((_, Client::Unknown)) => drop(self.bad_key.get_or_insert(UNKNOWN_CLIENT)),
            Some((_, Client::Text)) | None => self.key.extend_from_slice(part),
        }
    }

    /// Adds the value of another field, if the record has it. A value that is empty or `-` counts as missing, as in
    /// logs. A list without the client's address counts as missing too. An address is written as a server writes it
    /// into descriptors, and is whole: rules match the address, and count its network. A [network](FieldKind::Network) is written as such.
    pub fn add_field(&mut self, value: Option<&[u8]>) {
        let Some(value) = value.filter(|&value| !matches!(value, b"" | b"-")) else {
            return self.field_ends.push(None);
        };
        let kind = self.kinds.get(self.field_ends.len()).copied().unwrap_or(FieldKind::Text);
        let clients = self.clients.filter(|_| kind.is_client());
        match clients.map(|clients| (clients, clients.read_whole(value))) {
            Some((clients, Client::Address(address, seen))) => {
                self.seen.add(seen);
                let text = match (kind, clients.network(address)) {
                    (FieldKind::Network, IpAddr::V4(network)) => format!("{network}/32"),
                    (FieldKind::Network, IpAddr::V6(network)) => format!("{network}/{}", clients.ipv6_bits()),
                    _ => address.to_string(),
                };
                self.fields.extend_from_slice(text.as_bytes());
            }
            Some((_, Client::Unknown)) => return self.field_ends.push(None),
            Some((_, Client::Text)) | None => self.fields.extend_from_slice(value),
        }
        self.field_ends.push(Some(self.fields.len()));
    }

    /// The values of other fields, in the order in which they were added.
    pub fn fields(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.field_ends.iter().scan(0, |begin, &end| {
            let value = end.map(|end| &self.fields[*begin..end]);
            *begin = end.unwrap_or(*begin);
            Some(value)
        })
    }

    /// Sets the cost.
    pub fn set_cost(&mut self, cost: &[u8]) {
        let text = self.cost.get_or_insert_default();
        text.clear();
        text.extend_from_slice(cost);
    }

    /// The time's text.
    pub fn time(&self) -> &[u8] {
        &self.time
    }

    /// The key.
    ///
    /// # Errors
    /// Returns an error if a part of the key is empty or does not identify the client, or if all parts are `-`.
    pub fn key(&self) -> Result<&[u8], &'static str> {
        let missing = if self.key_parts == 0 { EMPTY_KEY } else { NO_CLIENT };
        match self.bad_key.or((self.missing_parts == self.key_parts).then_some(missing)) {
            Some(why) => Err(why),
            None => Ok(&self.key),
        }
    }

    /// Notes whether the line begins with a virtual host.
    pub fn note_virtual_host(&mut self, is_there: bool) {
        self.seen.virtual_hosts = u64::from(is_there);
    }

    /// Returns the changes to the record's addresses.
    pub fn seen(&self) -> AddressCounts {
        self.seen
    }

    /// The cost's text, if costs are read.
    pub fn cost(&self) -> Option<&[u8]> {
        self.cost.as_deref()
    }
}

/// The fields in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChosenFields {
    /// Of the time, in order.
    pub time: Vec<String>,
    /// Of the key, in order.
    pub key: Vec<String>,
    /// Of the cost.
    pub cost: Option<String>,
}

/// The columns to take from each record, by the format's own column type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns<C> {
    /// Of the time, in order.
    pub time: Vec<C>,
    /// Of the key, in order.
    pub key: Vec<C>,
    /// Of the cost.
    pub cost: Option<C>,
    /// The other columns; `None` is always missing.
    pub others: Vec<Option<C>>,
}

impl<C> Columns<C> {
    /// Finds the columns of these names with `find`. One of `others` that `find` does not know is always missing.
    ///
    /// # Errors
    /// Returns the first unknown name that is not in `others`.
    pub fn new(
        ChosenFields { time, key, cost }: &ChosenFields,
        others: &[Option<String>],
        find: impl Fn(&str) -> Option<C>,
    ) -> Result<Self, String> {
        let named = |name: &String| find(name).ok_or_else(|| name.clone());
        let all = |names: &[String]| names.iter().map(named).collect::<Result<Vec<_>, _>>();
        let (time, key, cost) = (all(time)?, all(key)?, cost.as_ref().map(named).transpose()?);
        Ok(Self { time, key, cost, others: others.iter().map(|name| find(name.as_deref()?)).collect() })
    }

    /// Takes one record's fields: `get` returns a column's text, and `other` that of a column which may be missing.
    ///
    /// # Errors
    /// Returns the first error of `get`.
    pub fn take<T: AsRef<[u8]>>(
        &self,
        row: &mut Row,
        get: impl Fn(&C) -> Result<T, String>,
        other: impl Fn(&C) -> Option<T>,
    ) -> Result<(), String> {
        for column in &self.time {
            row.add_time(get(column)?.as_ref());
        }
        for column in &self.key {
            row.add_key(get(column)?.as_ref());
        }
        if let Some(column) = &self.cost {
            row.set_cost(get(column)?.as_ref());
        }
        for column in &self.others {
            row.add_field(column.as_ref().and_then(&other).as_ref().map(AsRef::as_ref));
        }
        Ok(())
    }
}
