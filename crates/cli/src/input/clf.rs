//! Common and combined log format, read as bytes, because a request line may hold any bytes.
//!
//! ```text
//! host ident user [time] "request" status bytes                          common
//! host ident user [time] "request" status bytes "referer" "agent" ...    combined; further fields are ignored
//! vhost[:port] host ident user [time] ...                                Apache's vhost_combined and vcommon
//! list host ident user [time] ...                                        with a forwarded list in front
//! list ident user [time] ...                                             with the list instead of the peer
//! host ident user [time] ... "referer" "agent" "list"                    main of nginx's own packages
//! ```
//!
//! A list has one address or several, after commas with or without a space, and may be in quotes or brackets. In brackets
//! after the peer's address, it stands in front of the ident. The time may be that of ISO 8601.
//!
//! A line begins with a virtual host if at least three words stand between its first word and the time, and one of two
//! conditions holds: the first of these words is an address; or the line's first word is a name with a port, and the
//! next word is not `-`. A client cannot influence this, because its login name comes later in the line.
//!
//! Apache escapes quotes in a request as `\"` since 2.0.46; older servers wrote them unescaped. So the request ends at
//! the first unescaped quote that a status and a size follow. If there is none, it ends at the first such quote of any
//! kind.

use memchr::{memchr, memchr_iter, memchr3_iter};

use super::client::{Client, Clients, has_port, last_element, unwrapped, without_quotes};
use super::row::{Columns, Row};
use super::sample::{Role, Sample};
use tollgate_http::forwarded::node;

/// The error for a line whose first word is no client.
pub const PREFIX: &str = "words before the address; cut them, or give --log-format";

/// The parts of a line. Missing values are `-`, as in the log.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ClfLine<'a> {
    /// The requested virtual host, possibly with its port; empty in the other formats.
    pub vhost: &'a [u8],
    /// The forwarded list before the peer's address; empty in the other formats.
    pub forwarded: &'a [u8],
    /// The client's address or name, or a list instead of it.
    pub host: &'a [u8],
    /// The identity by RFC 1413.
    pub ident: &'a [u8],
    /// The authenticated user; may hold spaces.
    pub user: &'a [u8],
    /// The time, without brackets.
    pub time: &'a [u8],
    /// The request line as logged, escapes included.
    pub request: &'a [u8],
    /// The response's status.
    pub status: &'a [u8],
    /// The response's size.
    pub bytes: &'a [u8],
    /// The page that linked here; empty in the common format.
    pub referer: &'a [u8],
    /// The client's program; empty in the common format.
    pub agent: &'a [u8],
    /// What follows the client's program.
    pub rest: &'a [u8],
}

impl<'a> ClfLine<'a> {
    /// Returns the forwarded list beside the peer's address, or the first one after the client's program; `-` if there is
    /// none. A proxy of the server's own wrote the last element of a list, so it tells a list from other texts. One
    /// address with a port is that of an upstream server, unless it is in quotes and follows the client's program.
    fn list(&self) -> &'a [u8] {
        if !self.forwarded.is_empty() {
            return self.forwarded;
        }
        let with_port = || {
            let (text, is_quoted) = self.texts().next()?;
            (is_quoted && node(last_element(text)).is_some()).then_some(text)
        };
        self.lists().next().map(|(_, list)| list).or_else(with_port).unwrap_or(b"-")
    }

    /// Returns the lists after the client's program, each with its column there.
    fn lists(&self) -> impl Iterator<Item = (usize, &'a [u8])> {
        let lists = self.texts().enumerate().filter(|&(_, (text, is_quoted))| {
            let last = last_element(text);
            node(last).is_some() && (is_quoted && last.len() < text.len() || !has_port(last))
        });
        lists.map(|(column, (text, _))| (column, text))
    }

    /// Returns the texts after the client's program, each with whether it was in quotes. A list may be in brackets, or after
    /// a name such as `xff=`.
    fn texts(&self) -> impl Iterator<Item = (&'a [u8], bool)> {
        let mut rest = self.rest.trim_ascii();
        std::iter::from_fn(move || {
            let is_quoted = *rest.first()? == b'"';
            let (text, after) = if is_quoted { quoted(rest) } else { listed(rest).unwrap_or((rest, b"")) };
            rest = after.trim_ascii_start();
            if is_quoted {
                return Some((text, true));
            }
            let value =
                memchr(b'=', text).filter(|&end| is_of_client(&text[..end])).map(|end| &text[end + 1..]);
            let text = value.map_or(text, without_quotes);
            Some((unwrapped(text).unwrap_or(text), false))
        })
    }
}

/// Whether a name before a value is that of a forwarded list or a client: `xff`, `client_ip`.
fn is_of_client(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    ["xff", "forwarded", "client", "real"]
        .iter()
        .any(|part| memchr::memmem::find(&name, part.as_bytes()).is_some())
}

/// Splits a line.
///
/// # Errors
/// Returns the first part that is missing or malformed.
pub fn parse(line: &[u8]) -> Result<ClfLine<'_>, &'static str> {
    let (host, rest) = first_field(line)?;
    // The user's name comes from the client and may hold a bracket, but not one before a date.
    let is_time =
        |&at: &usize| begins_as(&rest[at + 1..], b"00/") || begins_as(&rest[at + 1..], b"0000-00-00");
    let open = memchr_iter(b'[', rest).find(is_time).ok_or("no time such as [10/Oct/2000:13:55:36 -0700]")?;
    let who = rest[..open].trim_ascii();
    let beside = wrapped(who).filter(|_| node(host).is_some());
    let (front, host, who) = match (beside, virtual_host(host, who)) {
        (Some((list, who)), _) => (list, host, who.trim_ascii()),
        (None, Some((client, who))) => (host, client, who),
        (None, None) => (&b""[..], host, who),
    };
    // In this order, because most lines need only the cheaper question.
    let client = last_element(host);
    if may_be_prefix(client, who) && node(client).is_none() && Clients::default().read(client) == Client::Text
    {
        return Err(PREFIX);
    }
    let is_list = beside.is_some()
        || front.contains(&b',')
        || front == b"-"
        || node(front).is_some() && !has_port(front);
    let (vhost, forwarded) = if is_list { (&b""[..], front) } else { (front, &b""[..]) };
    let (ident, user) = first_word(who).unwrap_or((who, b"-"));
    let rest = &rest[open + 1..];
    let close = memchr(b']', rest).ok_or("no ] after the time")?;
    let (time, rest) = (&rest[..close], rest[close + 1..].trim_ascii_start());
    let [b'"', rest @ ..] = rest else { return Err("no \" before the request") };
    let (request, status, bytes, rest) =
        end_of_request(rest).ok_or("no status and size after the quoted request")?;
    let (referer, rest) = quoted(rest);
    let (agent, rest) = quoted(rest);
    Ok(ClfLine { vhost, forwarded, host, ident, user, time, request, status, bytes, referer, agent, rest })
}

/// Whether a first word that is no address may belong to a prefix that is not known: it has no form of a host name, or an
/// address follows before the identity or before the last two words.
fn may_be_prefix(host: &[u8], who: &[u8]) -> bool {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | 0x80..);
    let is_number = host.iter().all(u8::is_ascii_digit) || begins_as(host, b"0000-00-00");
    let is_name = !is_number && (host.iter().all(is_plain) || is_marked_name(host));
    let words = || who.split(|b| b" \"'(),".contains(b)).filter(|word| !word.is_empty());
    let mut before = words().take_while(|&word| word != b"-").chain(words().rev().skip(2));
    who.is_empty() || !is_name || before.any(|word| node(word).is_some())
}

/// Whether a text may be a name with a port, or an address. One that only ends in an address has a prefix without a space, as
/// in `access.log:192.0.2.1`.
fn is_marked_name(host: &[u8]) -> bool {
    let is_of_name = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:%=;".contains(b) || *b >= 0x80;
    let is_of_ipv6 = |b: &u8| b.is_ascii_hexdigit() || *b == b':';
    let is_address = |text: &[u8]| text.iter().any(|b| b".:".contains(b)) && node(text).is_some();
    let mut marks = memchr3_iter(b':', b';', b'=', host);
    host.iter().all(is_of_ipv6)
        || host.iter().all(is_of_name) && !marks.any(|mark| is_address(&host[mark + 1..]))
}

/// Returns the first field, which is a word, a list or a text in quotes, and the rest after the space.
fn first_field(line: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    if let Some(quoted) = line.strip_prefix(b"\"") {
        let end = quoted.iter().position(|&b| b == b'"').ok_or("no \" after the first field")?;
        return Ok((quoted[..end].trim_ascii(), &quoted[end + 1..]));
    }
    if line.starts_with(b" ") {
        return Err("the line begins with a space instead of a host");
    }
    wrapped(line).or_else(|| listed(line)).ok_or("no space after the host")
}

/// Returns an address or a list in brackets or single quotes without them, and the rest.
fn wrapped(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let close = match text.first()? {
        b'\'' => b"' ",
        b'[' => b"] ",
        b'(' => b") ",
        _ => return None,
    };
    let end = text.windows(2).skip(1).position(|pair| pair == close)? + 2;
    Some((unwrapped(&text[..end])?, &text[end + 1..]))
}

/// Returns a word, or a list, which goes on after a comma, and the rest after the space.
fn listed(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut spaces = memchr_iter(b' ', text);
    let end = spaces.find(|&end| !text[..end].ends_with(b","))?;
    Some((&text[..end], &text[end + 1..]))
}

/// Whether a text begins with this form, in which 0 is any digit.
pub fn begins_as(text: &[u8], form: &[u8]) -> bool {
    let fits = |(&b, &form): (&u8, &u8)| if form == b'0' { b.is_ascii_digit() } else { b == form };
    text.len() >= form.len() && text.iter().zip(form).all(fits)
}

/// Returns a word and the rest, if there is a rest.
fn first_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = text.iter().position(|&b| b == b' ')?;
    Some((&text[..space], text[space + 1..].trim_ascii()))
}

/// Returns the client and the rest, if the line's first word is a virtual host.
fn virtual_host<'a>(first: &[u8], who: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    // The usual identity, which no server knows.
    if who.starts_with(b"- ") {
        return None;
    }
    let (client, rest) = first_field(who).ok()?;
    let rest = rest.trim_ascii();
    first_word(rest)?;
    let last = last_element(client);
    let name_and_port = || {
        let colon = first.iter().rposition(|&b| b == b':')?;
        let port = &first[colon + 1..];
        Some(!port.is_empty() && port.iter().all(u8::is_ascii_digit) && node(first).is_none())
    };
    (node(last).is_some() || client != b"-" && name_and_port() == Some(true)).then_some((client, rest))
}

/// Returns the request, status, size, and the rest.
type Ending<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a [u8]);

fn end_of_request(text: &[u8]) -> Option<Ending<'_>> {
    let try_at = |quote: usize| {
        let (status, bytes, rest) = status_and_size(&text[quote + 1..])?;
        Some((&text[..quote], status, bytes, rest))
    };
    unescaped_quotes(text).find_map(try_at).or_else(|| memchr_iter(b'"', text).find_map(try_at))
}

fn unescaped_quotes(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    memchr_iter(b'"', text).filter(|&quote| !is_escaped(&text[..quote]))
}

/// Whether an odd number of backslashes ends a text, so that the next character is escaped.
pub fn is_escaped(text: &[u8]) -> bool {
    text.iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

/// Matches ` 200 1234` and then the end or a space.
fn status_and_size(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let text = text.strip_prefix(b" ")?;
    let word = |text: &'_ [u8]| text.iter().position(|&b| b == b' ').unwrap_or(text.len());
    let is_number = |word: &[u8]| word == b"-" || !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let (status, text) = text.split_at(word(text));
    let text = text.strip_prefix(b" ")?;
    let (bytes, rest) = text.split_at(word(text));
    let status_fits = status == b"-" || status.len() == 3 && is_number(status);
    (status_fits && is_number(bytes)).then_some((status, bytes, rest))
}

/// Returns the next quoted part, which is empty if there is none, and the rest.
fn quoted(text: &[u8]) -> (&[u8], &[u8]) {
    let Some(text) = text.trim_ascii_start().strip_prefix(b"\"") else { return (b"", text) };
    match unescaped_quotes(text).next() {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, b""),
    }
}

/// The names of a field, its own first, then common aliases; and the field's text in a line.
type NamedField = (&'static str, for<'a> fn(&ClfLine<'a>) -> &'a [u8]);

/// In the order of the line; the field that few lines have comes last.
const FIELDS: [NamedField; 15] = [
    ("ip client_ip client remote_addr remote_host host", |line| line.host),
    ("ident", |line| line.ident),
    ("user remote_user", |line| line.user),
    ("time timestamp time_local", |line| line.time),
    ("request", |line| line.request),
    ("method", |line| request_part(line, 0)),
    ("path url request_uri", |line| path(request_part(line, 1))),
    // The path without the query.
    ("bare_path cs-uri-stem", |line| {
        path(request_part(line, 1)).split(|&b| b == b'?').next().unwrap_or(b"-")
    }),
    ("protocol", |line| request_part(line, 2)),
    ("status", |line| line.status),
    // A response without a body has 0 bytes.
    ("bytes size body_bytes_sent", |line| if line.bytes == b"-" { b"0" } else { line.bytes }),
    ("referer referrer", |line| line.referer),
    ("agent user_agent http_user_agent", |line| line.agent),
    ("vhost virtual_host server_name", |line| if line.vhost.is_empty() { b"-" } else { line.vhost }),
    ("forwarded http_x_forwarded_for x_forwarded_for", |line| line.list()),
];

/// Returns a part of the request, which is split at spaces; a request without spaces has one part.
fn request_part<'a>(line: &ClfLine<'a>, n: usize) -> &'a [u8] {
    line.request.split(|&b| b == b' ').nth(n).unwrap_or(b"-")
}

/// Returns the target of a request without `scheme://authority`, which a request to a proxy has, and which some servers log.
/// A path that is empty becomes `/`.
pub fn path(target: &[u8]) -> &[u8] {
    let scheme = target.iter().take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b)).count();
    let Some(rest) = target[scheme..].strip_prefix(b"://").filter(|_| scheme > 0) else { return target };
    match rest.iter().position(|b| b"/?#".contains(b)) {
        Some(at) if rest[at] == b'/' => &rest[at..],
        _ => b"/",
    }
}

/// Returns every field's own name, in the order of the line.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().filter_map(|(names, _)| names.split(' ').next())
}

/// Returns a sample without records.
pub fn sample() -> Sample {
    Sample::named(FIELDS.iter().map(|(names, _)| {
        let (name, aliases) = names.split_once(' ').unwrap_or((names, ""));
        let role = match name {
            "ip" => Role::Client(1),
            "forwarded" => Role::Client(0),
            "time" => Role::Time,
            "request" | "path" | "bare_path" => Role::Target,
            _ => Role::Other,
        };
        (name, aliases, role)
    }))
}

/// Returns the first records of these lines, without those that do not parse.
pub fn first_records(lines: &[Vec<u8>]) -> Sample {
    let mut sample = sample();
    let mut columns = Vec::new();
    for line in lines.iter().filter_map(|line| parse(line).ok()) {
        sample.add(fields(&line));
        if line.forwarded.is_empty() {
            columns.extend(line.lists().map(|(column, _)| column));
        }
    }
    let is_mixed = columns.iter().any(|column| *column != columns[0]);
    sample
        .fields
        .iter_mut()
        .filter(|field| field.name == "forwarded")
        .for_each(|field| field.is_mixed = is_mixed);
    sample
}

/// Returns the text of every field of a line, with the field's own name.
pub fn fields<'a>(line: &ClfLine<'a>) -> impl Iterator<Item = (&'static str, &'a [u8])> {
    names().zip(FIELDS.map(|(_, of)| of(line)))
}

/// Returns the text of a field, by its place in [`sample`].
pub fn text<'a>(line: &ClfLine<'a>, column: usize) -> &'a [u8] {
    FIELDS[column].1(line)
}

/// Takes the fields of one line.
///
/// # Errors
/// Returns an error if the line does not parse.
pub fn extract(columns: &Columns<usize>, line: &[u8], row: &mut Row) -> Result<(), String> {
    let line = parse(line).map_err(|what| format!("not a common or combined log line: {what}"))?;
    row.note_virtual_host(!line.vhost.is_empty());
    columns.take(row, |&column| Ok(text(&line, column)), |&column| Some(text(&line, column)))
}
