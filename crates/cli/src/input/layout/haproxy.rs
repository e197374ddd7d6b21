//! The variables of HAProxy's `log-format`: `%ci`, `%{+Q}r`, and sample expressions such as `%[req.hdr(host)]`.
//!
//! <https://docs.haproxy.org/3.0/configuration.html#8.2.6>

use super::token::{Named, Token, header, wrong};
use super::variables::{Shape, Variable};

/// The variables, and the keys of [`Variable::of`] for those whose texts have a known meaning.
const VARIABLES: &[(&str, &str)] = &[
    ("ci", "client_ip"),
    ("cp", "client_port"),
    ("t tr", "accept_date"),
    ("T Tl trg trl", "time_local"),
    ("Ts", "ts"),
    ("r", "request"),
    ("HM", "request_method"),
    ("HU", "request_uri"),
    ("HP HPO", "uri"),
    ("HV", "server_protocol"),
    ("ST", "status"),
    ("B", "bytes"),
    ("hr hs", "captured_headers"),
    ("U cc Tc Td Th Ti Tq TR Tr Ta Tt Tw Tu lc pid ms rt ac bc fc sc bq sq rc bp fp sp", "request_length"),
    ("CC CS H HQ ID b bi f ft fi hrl hsl s si sslc sslv ts tsc", ""),
];

/// Returns the key of a variable's name, if HAProxy has it.
fn key(name: &str) -> Option<&'static str> {
    VARIABLES.iter().find(|(names, _)| names.split(' ').any(|known| known == name)).map(|&(_, key)| key)
}

/// Whether a text after a percent sign is a variable that only HAProxy has, because other servers' names have one letter or
/// more than three.
pub(super) fn is_variable(text: &str) -> bool {
    let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    letters > 1 && key(&text[..letters]).is_some()
}

/// Reads the variable at a percent sign. `quotes` is whether the flag Q is set for all that follow, which `%{+Q}o` does.
pub(super) fn variable(text: &str, at: usize, quotes: &mut bool) -> Result<(Token, usize), String> {
    let rest = &text[at + 1..];
    if rest.starts_with('%') {
        return Ok((Token::Text("%".to_owned()), 2));
    }
    let (flags, inner) = match rest.strip_prefix('{') {
        Some(inner) => {
            let end =
                inner.find('}').ok_or_else(|| wrong(text, at, "no } ends the flags of this variable"))?;
            (&inner[..end], end + 2)
        }
        None => ("", 0),
    };
    let has = |flag: &str| flags.split(',').any(|one| one.trim() == flag);
    let rest = &rest[inner..];
    let (name, known, of_header) = if let Some(sample) = rest.strip_prefix('[') {
        let end = sample.find(']').ok_or_else(|| wrong(text, at, "no ] ends this sample expression"))?;
        let (known, of_header) = of_sample(&sample[..end]);
        (&rest[..end + 2], known, of_header)
    } else {
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let expected = "no variable of HAProxy's log-format, such as %ci; a percent sign is written %%";
        let known = if rest.starts_with('o') && letters == 1 { Some("") } else { key(&rest[..letters]) };
        (&rest[..letters], known.ok_or_else(|| wrong(text, at, expected))?.to_owned(), String::new())
    };
    let mut length = 1 + inner + name.len();
    if name == "o" {
        *quotes = (*quotes || has("+Q")) && !has("-Q");
        return Ok((Token::Text(String::new()), length + spaces(&text[at + length..])));
    }
    if known == "captured_headers" {
        // If nothing is captured, the space is missing too.
        let spaces = spaces(&text[at + length..]);
        let after = &text[at + length + spaces..];
        if ["%h", "%{+Q}", "\""].iter().any(|next| after.starts_with(next)) {
            length += spaces;
        }
    }
    // Only texts have quotes.
    let is_text = !matches!(Variable::of(&known).shape, Shape::Number | Shape::Status | Shape::Clf);
    let is_quoted = has("+Q") || *quotes && is_text && !has("-Q");
    let around = if is_quoted { "\"\"" } else { "" };
    Ok((
        Token::Variable(Named { name: format!("%{name}"), known, header: of_header, time: None, around }),
        length,
    ))
}

/// Returns the length of the spaces that a text begins with, escaped or not. The server writes one for several.
fn spaces(text: &str) -> usize {
    let rest = text.trim_start_matches("\\ ").trim_start();
    text.len() - rest.len()
}

/// Returns the key of a sample expression, and nginx's name of the header field that it reads.
fn of_sample(sample: &str) -> (String, String) {
    // Converters follow after commas.
    let (fetch, argument) =
        sample.split_once('(').unwrap_or((sample.split(',').next().unwrap_or(sample), ""));
    let argument = argument.split([')', ',']).next().unwrap_or_default();
    match fetch.trim() {
        "src" => ("client_ip".to_owned(), String::new()),
        "hdr" | "req.hdr" | "req.fhdr" | "hdr_ip" | "req.hdr_ip" if !argument.is_empty() => {
            let header = header(argument.trim());
            (header.clone(), header)
        }
        "method" => ("request_method".to_owned(), String::new()),
        "path" | "pathq" | "url" => ("request_uri".to_owned(), String::new()),
        "status" | "txn.status" => ("status".to_owned(), String::new()),
        // It may have spaces, as header fields do.
        fetch => (format!("http_{fetch}"), String::new()),
    }
}
