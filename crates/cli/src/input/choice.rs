//! The choice of the field that identifies the client, if the command line names none.
//!
//! The values decide: a field that holds addresses is the client, whatever its name is. A name decides only among fields without
//! addresses, and only if the field has different values in most records. If two fields would do, the program asks, because limits for the
//! wrong client look right.

use super::client::{Client, Clients, is_target};
use super::sample::{Role, Sample, SampleField};
use super::time::may_be_time;
use tollgate_report::error::Error;
use tollgate_report::human;
use tollgate_report::text::printable;

/// Usual names of the client field, the most certain first. Names are compared without case.
const KEY_NAMES: &str = "\
    client client_ip clientip client_addr remote_addr remote_ip remote_host src_ip srcip \
    source_ip sourceipaddress c-ip id.orig_h src source ip ip_address actor user user_id \
    username account api_key tenant customer key host";

/// Names among them whose field may hold the name of a server.
const MAY_BE_SERVERS: [&str; 3] = ["host", "source", "src"];

/// Words in the names of fields that hold the address of another machine than the client, or numbers that look like an address.
const OTHERS: [&str; 25] = [
    "version",
    "build",
    "oid",
    "fingerprint",
    "answer",
    "answers",
    "server",
    "upstream",
    "backend",
    "dest",
    "destination",
    "dst",
    "target",
    "resp",
    "service",
    "origin",
    "peerhost",
    "local",
    "listener",
    "pod",
    "node",
    "resolver",
    "dip",
    "daddr",
    "s",
];

/// The fields that identify the client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChosenClient {
    /// Their names, in order.
    pub fields: Vec<String>,
    /// What was chosen and why, in one line.
    pub why: Option<String>,
}

/// Chooses the field that identifies the client.
///
/// # Errors
/// Returns an error if no field is the client, or if two fields would do. The message names them, or lists the fields.
pub fn client(sample: &Sample, clients: Clients, file: &str) -> Result<ChosenClient, Error> {
    let all = ClientField::all(sample, clients);
    let named = by_name(&all, sample);
    let question = |one: &ClientField<'_>, other: &ClientField<'_>| which(file, "--key ", one, other);
    let chooser = Chooser { all: &all, named: &named, sample, clients, question };
    match chooser.by_addresses(true)? {
        Some(chosen) => Ok(chosen),
        None => chooser.without_addresses(file),
    }
}

/// Chooses the field with the client's address, for the descriptor key `key`; `None` if no field of most records has
/// addresses.
///
/// # Errors
/// Returns an error if two fields would do; the message names them.
pub fn address(
    sample: &Sample,
    clients: Clients,
    file: &str,
    key: &str,
) -> Result<Option<ChosenClient>, Error> {
    let all = ClientField::all(sample, clients);
    let flag = format!("--descriptor {key}=");
    let named = by_name(&all, sample);
    let question = |one: &ClientField<'_>, other: &ClientField<'_>| which(file, &flag, one, other);
    Chooser { all: &all, named: &named, sample, clients, question }.by_addresses(false)
}

/// Returns the question which of two fields is the client, with the flag that answers it.
fn which(file: &str, flag: &str, one: &ClientField<'_>, other: &ClientField<'_>) -> Error {
    if let Some(mixed) = [one, other].into_iter().find(|field| field.field.is_mixed) {
        return several_columns(file, mixed.name());
    }
    Error::run(format!(
        "{file}: which field is the client? {} and {} would do. Name it with {flag}{} or {flag}{}",
        one.shown(),
        other.shown(),
        argument(one.name()),
        argument(other.name()),
    ))
}

/// Returns the error for a field of a format without names that has the addresses of several columns.
pub fn several_columns(file: &str, name: &str) -> Error {
    Error::run(format!(
        "{file}: which column is the client? Addresses are in several columns of these lines, and {name:?} would mix them. Give \
         the server's own format string with --log-format, and name the field with --key"
    ))
}

/// The candidates, and how to ask which of two is the client.
struct Chooser<'a, 's, Q> {
    all: &'a [ClientField<'s>],
    /// The fields that would do by their names, if there were no addresses.
    named: &'a [&'a ClientField<'s>],
    sample: &'s Sample,
    clients: Clients,
    question: Q,
}

impl<'a, 's, Q: Fn(&ClientField<'s>, &ClientField<'s>) -> Error> Chooser<'a, 's, Q> {
    /// Chooses among the fields with addresses. `users`: a field without them may be the client too, if the address is the same
    /// in all records.
    fn by_addresses(&self, users: bool) -> Result<Option<ChosenClient>, Error> {
        let (all, sample, question) = (self.all, self.sample, &self.question);
        let by_format = all.iter().any(|field| matches!(field.field.role, Role::Client(_)));
        let mut addresses: Vec<&ClientField<'_>> = all
            .iter()
            .filter(|field| {
                field.may_be_client(!by_format) && field.has_addresses() && field.is_in_most(sample)
            })
            .collect();
        // The requested host varies more than the client behind a proxy does.
        if addresses.iter().any(|field| !field.is_requested_host()) {
            addresses.retain(|field| !field.is_requested_host());
        }
        addresses.sort_by_key(|field| field.rank());
        // A proxy's address is the same in all records.
        let (vary, constant): (Vec<&ClientField<'_>>, Vec<&ClientField<'_>>) =
            addresses.iter().copied().partition(|field| field.distinct > 1);
        let good = if vary.is_empty() { &constant } else { &vary };
        let Some(&first) = good.first() else { return Ok(None) };
        let rivals = good.iter().skip(1).filter(|other| !other.is_same_client(first));
        // A version number looks like an address too, so an address needs a name that says it if another field has a usual one.
        let is_doubtful = users && first.distinct == 1 || !first.says_address();
        let named = self.named.iter().filter(|named| {
            is_doubtful && named.distinct > 1 && !named.is_requested_host() && !named.is_same_client(first)
        });
        // But so is a client's if the log has only one, and then the address that varies may be a server's.
        let only = constant
            .iter()
            .filter(|field| field.distinct == 1 && first.distinct > 1)
            .filter(|field| !first.is_certain() && field.has_usual_name());
        if let Some(other) = rivals.chain(named).chain(only).next() {
            return Err(question(first, other));
        }
        let may_be_proxy = first.distinct == 1 || first.is_requested_host();
        let unseen: Vec<&ClientField<'_>> = all
            .iter()
            .filter(|field| may_be_proxy && field.may_be_hidden(sample) && !field.is_same_client(first))
            .filter(|field| !addresses.iter().any(|known| known.name() == field.name()))
            .collect();
        let certain = unseen.iter().copied().find(|field| field.is_certain() && field.is_in_most(sample));
        let mut first = first;
        match (certain, unseen.first()) {
            (Some(field), _) if field.distinct > 1 => {
                let other = unseen.iter().find(|other| other.is_certain() && !other.is_same_client(field));
                if let Some(other) = other {
                    return Err(question(field, other));
                }
                first = field;
            }
            (_, Some(other)) => return Err(question(first, certain.unwrap_or(other))),
            (_, None) => {}
        }
        let mut why = format!("from {:?}, whose values are addresses", first.name());
        if let Some(same) = addresses.iter().find(|field| field.distinct == 1 && first.distinct > 1) {
            why += &format!("; {:?} is {} in all of the first records", same.name(), same.example());
        } else if let Some(list) = good.iter().skip(1).find(|field| field.lists > first.lists) {
            let (name, proxies) = (argument(list.name()), self.clients.proxies + 1);
            why += &format!(
                "; the list {:?} ends with the same ones, and --key {name} --proxies {proxies} takes the address before",
                list.name()
            );
        } else if let Some(same) = good.get(1) {
            why += &format!("; {:?} has the same ones", same.name());
        }
        Ok(Some(ChosenClient { fields: vec![first.name().to_owned()], why: Some(why) }))
    }

    /// Chooses among fields without addresses: the one of the format, or else the one of a usual name.
    fn without_addresses(&self, file: &str) -> Result<ChosenClient, Error> {
        let (all, sample) = (self.all, self.sample);
        let chosen = |field: &ClientField<'_>, why: String| {
            let why = format!("from {:?}, {why}", field.name());
            Ok(ChosenClient { fields: vec![field.name().to_owned()], why: Some(why) })
        };
        let of_format = all
            .iter()
            .filter(|field| matches!(field.field.role, Role::Client(_)) && field.is_in_most(sample));
        if let Some(field) = of_format.min_by_key(|field| field.rank()) {
            return chosen(field, "the client in this format".to_owned());
        }
        let mut partly = all.iter().filter(|field| {
            field.may_be_client(true) && field.is_in_most(sample) && 2 * field.addresses > field.present
        });
        if let [field, others @ ..] = self.named {
            let mut others = others.iter().copied().filter(|other| other.distinct > 1).chain(partly);
            if let Some(other) = others.find(|other| !other.is_same_client(field)) {
                return Err((self.question)(field, other));
            }
            let known = all.iter().find(|field| field.has_addresses());
            let why = match (field.addresses, known) {
                (0, None) => "no field has addresses".to_owned(),
                (0, Some(other)) => format!(
                    "{:?} has addresses, but in few records, or by its name not those of a client",
                    other.name()
                ),
                (some, _) => format!("{some} of its {} values are addresses", field.present),
            };
            return chosen(field, format!("by its name; {why}"));
        }
        let list = sample.shown_names();
        let not: String = named(all)
            .filter_map(|field| {
                Some(format!("; {:?} {}", field.name(), why_not(field, others(field, all, sample), sample)?))
            })
            .chain(partly.next().map(|field| {
                format!(
                    "; {} of {} values of {:?} are addresses",
                    field.addresses,
                    field.present,
                    field.name()
                )
            }))
            .collect();
        Err(Error::run(format!(
            "{file}: which field is the client? Name it with --key; the fields are: {list}{not}"
        )))
    }
}

/// A field, and what its values are.
struct ClientField<'s> {
    field: &'s SampleField,
    /// The client in each record; `None` if the record lacks the field, or no client can be read.
    clients: Vec<Option<Vec<u8>>>,
    /// The number of records that have the field.
    present: usize,
    /// The number of values that are addresses, or lists of them.
    addresses: usize,
    /// The number of values that are one address with a port.
    ports: usize,
    /// The number of values that are lists of addresses.
    lists: usize,
    /// The number of different clients.
    distinct: usize,
}

impl<'s> ClientField<'s> {
    fn of(field: &'s SampleField, clients: Clients) -> Self {
        let (mut addresses, mut ports, mut lists) = (0, 0, 0);
        let mut read = |value: &Vec<u8>| match clients.read_whole(value) {
            Client::Address(address, seen) => {
                addresses += 1;
                ports += usize::from(seen.ports > 0);
                lists += usize::from(seen.lists > 0);
                Some(address.to_string().into_bytes())
            }
            // A list that is too short for the proxies.
            Client::Unknown => {
                addresses += 1;
                None
            }
            Client::Text => Some(value.clone()),
        };
        let clients: Vec<Option<Vec<u8>>> =
            field.values.iter().map(|value| value.as_ref().and_then(&mut read)).collect();
        let mut different: Vec<&Vec<u8>> = clients.iter().flatten().collect();
        different.sort_unstable();
        different.dedup();
        let distinct = different.len();
        let present = field.values.iter().flatten().count();
        Self { field, clients, present, addresses, ports, lists, distinct }
    }

    fn all(sample: &'s Sample, clients: Clients) -> Vec<Self> {
        sample.fields.iter().map(|field| Self::of(field, clients)).collect()
    }

    fn name(&self) -> &'s str {
        &self.field.name
    }

    /// Whether the field's role and name allow that it is the client. `others`: also without such a role.
    fn may_be_client(&self, others: bool) -> bool {
        match self.field.role {
            Role::Client(_) => true,
            Role::Time | Role::Target => false,
            Role::Other => {
                let is_host = self.is_requested_host() && !self.name().eq_ignore_ascii_case("host");
                others && !is_host && !is_target(self.name()) && !is_of_another_machine(self.name())
            }
        }
    }

    /// Whether the name says that it is the host to which the request was sent. Some logs call the client `host` too.
    fn is_requested_host(&self) -> bool {
        self.field.role == Role::Other && is_of_requested_host(self.name())
    }

    /// Whether nearly all values are addresses.
    fn has_addresses(&self) -> bool {
        self.addresses > 0 && 10 * self.addresses >= 9 * self.present
    }

    fn is_in_most(&self, sample: &Sample) -> bool {
        2 * self.present >= sample.records
    }

    /// Whether two fields never have different clients in one record.
    fn is_same_client(&self, other: &Self) -> bool {
        let pairs = || {
            self.clients
                .iter()
                .zip(&other.clients)
                .filter_map(|(one, other)| one.as_ref().zip(other.as_ref()))
        };
        pairs().next().is_some() && pairs().all(|(one, other)| one == other)
    }

    /// Orders fields that would do: by the format, and then by the certainty of their names.
    fn rank(&self) -> (u8, usize) {
        let of_format = match self.field.role {
            Role::Client(rank) => rank,
            _ => u8::MAX,
        };
        let last = self.name().rsplit('.').next().unwrap_or_default();
        let is_named = |known: &str| is_alike(known, self.name()) || is_alike(known, last);
        (of_format, KEY_NAMES.split(' ').position(is_named).unwrap_or(usize::MAX))
    }

    /// Whether the format or its usual name says that it is the client.
    fn has_usual_name(&self) -> bool {
        self.rank() != (u8::MAX, usize::MAX)
    }

    /// Whether the format, its usual name, or a word in its name tells that it is the client.
    fn is_certain(&self) -> bool {
        let lower = self.name().to_ascii_lowercase();
        // In the common log format, an address with a port may be that of an upstream server.
        if lower == "forwarded" && self.ports == self.present || may_be_server(&lower) {
            return false;
        }
        self.has_usual_name() || ["forwarded", "client", "real"].iter().any(|word| lower.contains(word))
    }

    /// Whether the name says at least that it is an address, or whose.
    fn says_address(&self) -> bool {
        let lower = self.name().to_ascii_lowercase();
        let is_ip = |word: &str| word.starts_with("ip") || word.ends_with("ip");
        self.is_certain()
            || ["addr", "remote", "peer", "src", "source", "fwd", "xff"]
                .iter()
                .any(|part| lower.contains(part))
            || words(self.name()).iter().any(|word| is_ip(word))
    }

    /// Whether the client may be here although the format does not say so, or most records lack the field.
    fn may_be_hidden(&self, sample: &Sample) -> bool {
        self.may_be_client(!self.is_requested_host())
            && self.has_addresses()
            && (self.is_certain() || self.is_in_most(sample))
    }

    /// Whether most values are the names of hosts: `shop.example`, with or without a port.
    fn has_host_names(&self) -> bool {
        let is_host = |value: &Vec<u8>| {
            let text = str::from_utf8(value).unwrap_or_default();
            let name = text
                .rsplit_once(':')
                .filter(|(_, port)| port.parse::<u16>().is_ok())
                .map_or(text, |(name, _)| name);
            let is_label = |label: &str| {
                !label.is_empty()
                    && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            };
            name.bytes().any(|byte| byte.is_ascii_alphabetic()) && name.split('.').all(is_label)
        };
        let values = || self.field.values.iter().flatten();
        2 * values().filter(|value| is_host(value)).count() > values().count()
    }

    fn example(&self) -> String {
        let first = self.field.values.iter().flatten().next();
        first.map_or_else(String::new, |value| printable(value, 60))
    }

    fn shown(&self) -> String {
        let values = match self.distinct {
            1 => "1 value".to_owned(),
            distinct => format!("{} values", human::count(distinct as u64)),
        };
        format!("{:?} ({values}, such as {})", self.name(), self.example())
    }
}

/// Returns a name as an argument of a shell.
pub fn argument(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@:/".contains(&byte);
    if name.bytes().all(is_plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', r"'\''")) }
}

/// Whether two names differ only in case and in what divides their words: `user_id`, `user.id` and `userId`.
fn is_alike(one: &str, other: &str) -> bool {
    let letters = |name: &str| {
        name.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_lowercase()).collect::<Vec<_>>()
    };
    letters(one) == letters(other)
}

/// Returns the words of a name in lower case. A capital letter after another one begins a word.
fn words(name: &str) -> Vec<String> {
    let (mut spaced, mut before) = (String::new(), ' ');
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !before.is_ascii_uppercase() {
            spaced.push(' ');
        }
        spaced.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { ' ' });
        before = letter;
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Whether a name is usual for a client, and for a server too.
fn may_be_server(name: &str) -> bool {
    MAY_BE_SERVERS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Whether the last part of a field's name says that it holds the requested host: `host`, `headers.Host`, `ClientRequestHost`,
/// `x_forwarded_host`, `:authority`, `RequestAddr`; but not `ClientHost` and `remote_host`.
fn is_of_requested_host(name: &str) -> bool {
    let all = words(name);
    let last = words(name.rsplit('.').next().unwrap_or(name)).len();
    let is_of = |at: usize, whose: &[&str]| at > 0 && whose.contains(&&*all[at - 1]);
    (all.len() - last..all.len()).any(|at| match &*all[at] {
        "host" | "hostname" => !is_of(at, &["client", "remote", "source", "src", "peer"]),
        "vhost" | "authority" | "domain" | "v" => true,
        "addr" => is_of(at, &["request"]),
        _ => false,
    })
}

/// Whether a field's name says that it holds the address of another machine than the client: `upstream_addr`,
/// `destination.ip`, `id.resp_h`, `s-ip`, `host.ip`.
fn is_of_another_machine(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_other = |word: &str| OTHERS.contains(&word);
    // Not the s of `sIP`, which flow records call the source.
    let of_capitals = words(name).iter().any(|word| word.len() > 1 && is_other(word));
    // Without the capital letters that divide these words.
    let undivided = [
        "serverip",
        "serveraddr",
        "serviceaddr",
        "serviceurl",
        "targetip",
        "destinationip",
        "dstip",
        "upstreamaddr",
        "backendaddr",
    ];
    lower.starts_with("host.")
        || of_capitals
        || lower.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_other)
        || undivided.iter().any(|word| lower.contains(word))
}

/// Returns why a name does not suffice for a field.
fn why_not(field: &ClientField<'_>, others: usize, sample: &Sample) -> Option<&'static str> {
    if !field.is_in_most(sample) {
        Some("is empty in most records")
    } else if may_be_server(field.name()) && field.has_host_names() {
        Some("has the names of hosts")
    } else if field.distinct == 1 && sample.records > 1 && others > 0 {
        Some("is the same in all of the first records")
    } else {
        None
    }
}

/// Returns the number of fields that most records have, in addition to this one and the time. Without any, a constant is the
/// client.
fn others(field: &ClientField<'_>, all: &[ClientField<'_>], sample: &Sample) -> usize {
    let is_other = |other: &&ClientField<'_>| {
        let is_time = other.field.role == Role::Time || may_be_time(other.name());
        other.name() != field.name() && !is_time && other.is_in_most(sample)
    };
    all.iter().filter(is_other).count()
}

/// Returns the fields with usual names whose values can be clients.
fn by_name<'a, 's>(all: &'a [ClientField<'s>], sample: &Sample) -> Vec<&'a ClientField<'s>> {
    named(all).filter(|field| why_not(field, others(field, all, sample), sample).is_none()).collect()
}

/// Returns the fields with usual names, the most certain name first.
fn named<'a, 's>(all: &'a [ClientField<'s>]) -> impl Iterator<Item = &'a ClientField<'s>> {
    KEY_NAMES.split(' ').filter_map(|name| all.iter().find(|field| is_alike(field.name(), name)))
}
