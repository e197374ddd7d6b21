//! What is known of the variables of format strings: their common names, their roles, and the shapes of their texts.

use memchr::{memchr, memchr2};

use crate::input::sample::Role;
use tollgate_http::forwarded::node;

/// The shape of a field's text.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Anything.
    Text,
    /// A text without spaces.
    Word,
    /// A text without spaces and colons.
    Part,
    /// A text with at least this number of spaces, such as a time whose pattern has spaces.
    Spaces(usize),
    /// A list, whose elements are separated by `, ` or ` : `.
    List,
    /// Digits with a sign or a point, or `-`.
    Number,
    /// Up to three digits, or `-`.
    Status,
    /// `10/Oct/2000:13:55:36 -0700`.
    Clf,
    /// `2000-10-10T13:55:36-07:00`.
    Iso,
}

impl Shape {
    /// Returns whether a text has this shape, if `rest` follows it after the fixed text; `None` if no longer text can
    /// have it.
    pub fn fits(self, text: &[u8], rest: &[u8]) -> Option<bool> {
        let digits = |count: usize, mark: u8| {
            text.get(count) == Some(&mark) && text[..count].iter().all(u8::is_ascii_digit)
        };
        match self {
            Self::Text => Some(true),
            Self::Word => memchr(b' ', text).is_none().then_some(true),
            Self::Part => memchr2(b' ', b':', text).is_none().then_some(true),
            Self::Spaces(least) => Some(text.iter().filter(|&&b| b == b' ').count() >= least),
            Self::List => {
                let continues = text.ends_with(b",") || text.ends_with(b" :") || rest.starts_with(b": ");
                Some(!continues)
            }
            Self::Number => {
                let is_number = |&b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+');
                text.iter().all(is_number).then_some(!text.is_empty())
            }
            Self::Status => {
                let fits = matches!(text.len(), 1..=3) && text.iter().all(u8::is_ascii_digit);
                (text.len() < 4).then_some(fits || text == b"-" || text == b"-1")
            }
            Self::Clf => Some(digits(2, b'/')),
            Self::Iso => Some(digits(4, b'-')),
        }
    }
}

/// What is known of a variable.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its common names, which are the same for all servers; the first one is that of the common log format.
    pub names: &'static str,
    pub shape: Shape,
    pub role: Role,
}

impl Variable {
    /// Returns the name in the common log format.
    pub fn common(&self) -> &str {
        self.names.split(' ').next().unwrap_or_default()
    }

    /// Returns what is known of a variable. A header field has nginx's name: `http_x_forwarded_for`.
    pub fn of(name: &str) -> Self {
        let is = |known: &str| known.split(' ').any(|known| known == name);
        if let Some(&(_, names, shape, role)) = VARIABLES.iter().find(|(known, ..)| is(known)) {
            return Self { names, shape, role };
        }
        let shape = if name.starts_with("upstream_") || name.contains("forwarded") {
            Shape::List
        } else if name.starts_with("http_") || name.contains("cookie") || name.starts_with("arg") {
            Shape::Text
        } else {
            Shape::Word
        };
        Self { names: "", shape, role: Role::Other }
    }
}

/// The variables of nginx without `$`, of Apache with `%`, of Envoy without its `%`, of W3C logs, and of the formats that
/// are recognised; their common names; their shape; and their role.
const VARIABLES: &[(&str, &str, Shape, Role)] = &[
    (
        "remote_addr client_ip client:port remote_ip client_address c-ip %h %a %{c}a DOWNSTREAM_REMOTE_ADDRESS \
         DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS \
         DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
        "ip client client_ip remote_addr remote_host host",
        Shape::Word,
        Role::Client(1),
    ),
    ("the_real_ip", "real_ip", Shape::Word, Role::Client(0)),
    (
        "http_x_forwarded_for proxy_add_x_forwarded_for x-forwarded-for",
        "forwarded http_x_forwarded_for x_forwarded_for x-forwarded-for",
        Shape::List,
        Role::Client(0),
    ),
    (
        "http_x_real_ip http_cf_connecting_ip http_true_client_ip http_x_client_ip http_x_envoy_external_address",
        "",
        Shape::Word,
        Role::Client(0),
    ),
    ("%l", "ident", Shape::Word, Role::Other),
    ("remote_user cs-username %u", "user remote_user", Shape::Text, Role::Other),
    ("time_local accept_date %t", "time timestamp time_local", Shape::Clf, Role::Time),
    ("time_iso8601 time START_TIME", "time timestamp", Shape::Iso, Role::Time),
    ("msec ts %{sec}t %{msec}t %{usec}t", "time timestamp", Shape::Number, Role::Time),
    ("captured_headers", "captured_headers", Shape::Text, Role::Other),
    ("request %r", "request", Shape::Text, Role::Target),
    ("request_method cs-method %m REQ(:METHOD)", "method", Shape::Word, Role::Other),
    (
        "request_uri url REQ(:PATH) REQ(X-ENVOY-ORIGINAL-PATH?:PATH)",
        "path url request_uri",
        Shape::Word,
        Role::Target,
    ),
    ("uri document_uri cs-uri-stem %U", "bare_path cs-uri-stem uri", Shape::Word, Role::Target),
    ("server_protocol cs-protocol %H PROTOCOL", "protocol", Shape::Word, Role::Other),
    ("status elb_status_code sc-status %s RESPONSE_CODE", "status", Shape::Status, Role::Other),
    (
        "body_bytes_sent bytes_sent sent_bytes sc-bytes bytes %b %B %O BYTES_SENT",
        "bytes size body_bytes_sent",
        Shape::Number,
        Role::Other,
    ),
    ("http_referer cs(Referer)", "referer referrer", Shape::Text, Role::Other),
    (
        "http_user_agent user_agent cs(User-Agent)",
        "agent user_agent http_user_agent",
        Shape::Text,
        Role::Other,
    ),
    (
        "host http_host server_name domain_name cs-host x-host-header cs(Host) %v %V http__authority",
        "vhost virtual_host server_name",
        Shape::Word,
        Role::Other,
    ),
    (
        "connection request_length request_time elapsed client_port received_bytes bytes_read upstream_port %p %P %D %T \
         %I %k %{ms}T %{us}T %{s}T BYTES_RECEIVED DURATION",
        "",
        Shape::Number,
        Role::Other,
    ),
];

/// Whether a text is a list of addresses in which some may be missing.
pub fn may_be_addresses(text: &[u8]) -> bool {
    text.split(|&b| b == b',').all(|part| {
        let part = part.trim_ascii();
        matches!(part, b"" | b"-" | b"unknown") || part.starts_with(b"unix:") || node(part).is_some()
    })
}
