//! Finds values that no request has: addresses in another form than the one that gateways send, lists, variables that nothing
//! filled in, and regular expressions. Such a rule loads, limits nothing, and looks right.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::node::quoted;
use super::problem::Problem;
use crate::matching::{is_longer_than_addresses, pattern_in_lower_case};

/// The keys whose values are addresses, as gateways and programs usually name them.
const ADDRESS_KEYS: &str = "remote_address remote_addr client_ip client_address client_addr ip ip_address source_ip \
                            src_ip x-real-ip";

/// Envoy's key of a client's address. It has no other values.
const REMOTE_ADDRESS: &str = "remote_address";

/// Envoy's key of a client's network.
const MASKED: &str = "masked_remote_address";

/// The methods of HTTP that rules name.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];

/// How a level compares the values of a key.
#[derive(Copy, Clone, Debug)]
pub(super) struct Compared {
    /// Whether it reads them as addresses, so that all spellings of one are equal.
    pub(super) as_addresses: bool,
    /// Whether a `*` stands for any text. It is a star where a tier lists its members.
    pub(super) with_patterns: bool,
}

/// What is wrong with a value, and how to correct it.
pub(super) type Finding = [String; 2];

fn finding(message: impl Into<String>, remedy: impl Into<String>) -> Option<Finding> {
    Some([message.into(), remedy.into()])
}

/// Returns why no request has this value of a key; `None` if one can.
pub(super) fn why_never(key: &str, value: &str, how: Compared) -> Option<Finding> {
    let is_pattern = how.with_patterns && value.contains('*');
    unfilled(value)
        .or_else(|| regular_expression(value, is_pattern))
        .or_else(|| list(value))
        .or_else(|| if key == MASKED { masked(value, is_pattern) } else { None })
        .or_else(|| match is_pattern {
            true => address_pattern(key, value, how.as_addresses),
            false => address(key, value, how.as_addresses),
        })
}

/// Values that begin with a dollar sign: a stage of API Gateway, and parts of paths in OData.
const WITH_DOLLAR: [&str; 6] = ["batch", "count", "default", "metadata", "ref", "value"];
/// Texts that programs write in angle brackets where a value is missing.
const IN_ANGLES: [&str; 6] = ["BADREQ", "anonymous", "empty", "none", "null", "unknown"];

/// The remedy for a variable that nothing filled in.
pub(super) const FILL_IN: &str = "write its value, or run the file first through the program that fills variables in, such as \
    envsubst or helm template";

/// Returns the remedy of a problem on a line with a variable that nothing filled in, or of a text that cannot be read after
/// such a line.
pub(super) fn fill_in(problem: &Problem, text: &str) -> Option<&'static str> {
    let before = if problem.is_syntax { 0 } else { problem.line().saturating_sub(1) };
    let mut lines = text.lines().take(problem.line()).skip(before);
    lines.any(|line| !line.trim_start().starts_with('#') && unfilled(line).is_some()).then_some(FILL_IN)
}

/// Returns the problem of a text that a program should have replaced: `$IP`, `${IP}`, `$(IP)`, `#{ip}`, `%(ip)s`,
/// `{{ .Values.ip }}`, `<your-ip>`, `%IP%`.
pub(super) fn unfilled(text: &str) -> Option<Finding> {
    let trimmed = text.trim();
    let between = |open: &str, close: &str| {
        let inside = trimmed.split_once(open)?.1.split_once(close)?.0;
        Some(inside.trim()).filter(|inside| !inside.is_empty())
    };
    let whole = |open: char, close: char| {
        let inside = trimmed.strip_prefix(open)?.strip_suffix(close)?.trim();
        Some(inside).filter(|inside| !inside.is_empty())
    };
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let is_command = |inside: &str| {
        // Envoy's: %REQ(X-USER)%.
        let name = inside.split_once('(').map_or(inside, |(name, _)| name);
        is_name(name) && name.chars().all(|letter| !letter.is_ascii_lowercase())
    };
    let is_variable = trimmed
        .strip_prefix('$')
        .is_some_and(|name| is_name(name) && !WITH_DOLLAR.contains(&name))
        || [("${", "}"), ("$(", ")"), ("#{", "}"), ("%(", ")s"), ("{{", "}}")]
            .into_iter()
            .any(|(open, close)| between(open, close).is_some())
        || whole('<', '>').is_some_and(|inside| !inside.contains(['<', '>']) && !IN_ANGLES.contains(&inside))
        || whole('%', '%').is_some_and(is_command);
    if !is_variable {
        return None;
    }
    finding(
        format!("{} is a variable that nothing filled in, so only this text itself matches", quoted(text)),
        FILL_IN,
    )
}

/// Returns the problem of a value that looks like a regular expression.
fn regular_expression(value: &str, is_pattern: bool) -> Option<Finding> {
    if !has_sign_of_regex(value) {
        return None;
    }
    let matched = match (is_pattern, value.strip_suffix('*')) {
        (true, Some(begin)) if !begin.contains('*') => {
            format!("this matches texts that begin with {}", quoted(begin))
        }
        (true, _) => "the other characters stand for themselves".to_owned(),
        (false, _) => "only this text itself matches".to_owned(),
    };
    let remedy = match without_regex(value) {
        Some(pattern) => format!("write {}", quoted(&pattern)),
        None => "write each value, or one text with a * for each part that may be any text".to_owned(),
    };
    let looks = format!("{} looks like a regular expression", quoted(value));
    finding(format!("{looks}, and in values only * is special: {matched}"), remedy)
}

/// Whether a text has a part that regular expressions have and usual values lack. `10.0.*` and `*.example.org` have none.
fn has_sign_of_regex(value: &str) -> bool {
    let bytes = value.as_bytes();
    let is_path = value.starts_with('/');
    if value.starts_with('^') || (value.len() > 1 && is_path && value.ends_with('$')) {
        return true;
    }
    if ["(?", "[^", "]+", "]*", "]{", ")+", ".+"].iter().any(|sign| value.contains(sign))
        || (is_path && value.ends_with(".*"))
    {
        return true;
    }
    // A class of characters: [a-z], [0-9].
    let is_class = |class: &str| {
        class.as_bytes().windows(3).any(|range| {
            range[1] == b'-' && range[0].is_ascii_alphanumeric() && range[2].is_ascii_alphanumeric()
        })
    };
    // Alternatives: (a|b).
    if has_between(value, ['[', ']'], is_class)
        || has_between(value, ['(', ')'], |inside| inside.contains('|'))
    {
        return true;
    }
    let at = |place: usize| bytes.get(place).copied();
    (0..bytes.len()).any(|place| {
        let before = place.checked_sub(1).and_then(at);
        match (bytes[place], at(place + 1)) {
            // A text that any characters may follow.
            (b'.', Some(b'*')) => matches!(before, None | Some(b'/' | b')' | b']' | b'}')),
            // An escape. A domain before a user has a letter after it: CORP\dave.
            (b'\\', Some(b'd' | b'w' | b's' | b'b' | b'D' | b'W' | b'S')) => {
                !at(place + 2).is_some_and(|after| after.is_ascii_alphanumeric())
            }
            (b'\\', Some(after)) => b".?/+*()[]{}^$|-".contains(&after),
            _ => false,
        }
    })
}

/// Whether a text between these two brackets has a sign. Reads each byte once: of several opening brackets before a closing one, the
/// first has the whole text.
fn has_between(value: &str, [open, close]: [char; 2], has_sign: impl Fn(&str) -> bool) -> bool {
    let Some((closed, _)) = value.rsplit_once(close) else { return false };
    closed.split(close).any(|piece| piece.split_once(open).is_some_and(|(_, inside)| has_sign(inside)))
}

/// Returns the pattern for a simple regular expression.
fn without_regex(value: &str) -> Option<String> {
    let value = value.strip_prefix('^').unwrap_or(value);
    let value = value.strip_suffix('$').unwrap_or(value);
    let plain = value.replace(".*", "*").replace(".+", "*").replace("[^/]+", "*").replace("[^/]*", "*");
    let plain = plain.replace(r"\.", ".").replace(r"\/", "/").replace(r"\-", "-");
    let is_simple =
        !plain.is_empty() && !plain.contains(['\\', '[', ']', '(', ')', '{', '}', '|', '^', '$', '+', '?']);
    is_simple.then_some(plain)
}

/// Returns the problem of several values in one text.
fn list(value: &str) -> Option<Finding> {
    let parts_at = |is_between: fn(char) -> bool| {
        let parts: Vec<&str> =
            value.split(is_between).map(str::trim).filter(|part| !part.is_empty()).collect();
        (parts.len() > 1).then_some(parts)
    };
    let are_same_kind = |parts: &[&str]| {
        let is_address = |part: &&str| part.parse::<IpAddr>().is_ok() || part.parse::<IpNet>().is_ok();
        parts.iter().all(is_address)
            || parts.iter().all(|part| METHODS.contains(part))
            || parts.iter().all(|part| part.starts_with('/') && part.len() > 1)
    };
    let separators: [fn(char) -> bool; 2] = [|letter| matches!(letter, ',' | ';' | '|'), char::is_whitespace];
    let parts = separators.into_iter().filter_map(parts_at).find(|parts| are_same_kind(parts))?;
    let of_addresses = parts.iter().all(|part| !part.starts_with('/') && part.contains(['.', ':']));
    let remedy = match of_addresses {
        true => format!(
            "write one descriptor for each, or ranges: [\"{}\"] instead of value, in a file with the key `tollgate`",
            parts.join("\", \"")
        ),
        false => "write one descriptor for each".to_owned(),
    };
    finding(format!("{} is a list in one text, and a request has one value", quoted(value)), remedy)
}

/// Returns the problem of a value of Envoy's masked address, which is a network: `10.1.0.0/16`.
fn masked(value: &str, is_pattern: bool) -> Option<Finding> {
    if is_pattern {
        return None;
    }
    let right = match (value.parse::<IpNet>(), value.parse::<IpAddr>()) {
        (Ok(range), _) => range.trunc().to_string(),
        (_, Ok(address)) => IpNet::from(address).to_string(),
        _ => {
            let message = format!("{} is no network, and {MASKED} has nothing else", quoted(value));
            return finding(message, "write an address and its leading bits, such as 10.1.0.0/16");
        }
    };
    if right == value {
        return None;
    }
    let message = format!("{} is not the text of a network that Envoy sends", quoted(value));
    finding(message, format!("write {right:?}"))
}

/// Returns the problem of a text that should be one address.
fn address(key: &str, value: &str, as_addresses: bool) -> Option<Finding> {
    if !as_addresses && ADDRESS_KEYS.split(' ').all(|one| one != key) {
        return None;
    }
    let shown = quoted(value);
    let ranges = |ranges: &str| {
        format!(
            "to match the addresses in it, write ranges: [{ranges}] instead of value; this needs the key `tollgate` at the top of the file"
        )
    };
    if let Ok(address) = value.parse::<IpAddr>() {
        let right = address.to_canonical().to_string();
        if as_addresses || right == value {
            return None;
        }
        let what = match address.to_canonical() {
            IpAddr::V4(_) => "is an IPv4 address in IPv6 form, which gateways send as IPv4",
            IpAddr::V6(_) => "is not the shortest text of its address in lower case, which gateways send",
        };
        return finding(format!("{shown} {what}, so no request matches"), format!("write {right:?}"));
    }
    if value.parse::<IpNet>().is_ok() {
        let message = format!("{shown} is compared as a text, and {key} has single addresses");
        return finding(message, ranges(&format!("\"{value}\"")));
    }
    if let Some((first, last)) = value.split_once('-').or_else(|| value.split_once('/'))
        && let Ok(first) = first.trim().parse::<IpAddr>()
        && (last.trim().parse::<IpAddr>().is_ok() || last.trim().parse::<u8>().is_ok())
    {
        let message =
            format!("{shown} is a range, which is compared as a text, and {key} has single addresses");
        let bits = if first.is_ipv4() { 24 } else { 64 };
        let example = IpNet::new(first, bits).map(|range| range.trunc().to_string()).unwrap_or_default();
        return finding(message, ranges(&format!("\"{example}\", …")));
    }
    if let Some(address) = without_port(value) {
        let what = if value.ends_with(']') { "has brackets" } else { "has a port" };
        let right = address.to_canonical().to_string();
        let message = format!("{shown} {what}, and {key} has the address alone, so no request matches");
        return finding(message, format!("write {right:?}"));
    }
    if key != REMOTE_ADDRESS {
        return None;
    }
    let remedy = "write an address such as 192.0.2.1, or a pattern such as 192.0.2.*";
    finding(format!("{shown} is no address, and {key} has nothing else, so no request matches"), remedy)
}

/// Returns the address of a text with a port or brackets.
fn without_port(value: &str) -> Option<IpAddr> {
    let in_brackets = || value.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    value.parse::<SocketAddr>().map(|socket| socket.ip()).ok().or_else(in_brackets)
}

/// Returns the problem of a pattern that no address matches.
fn address_pattern(key: &str, value: &str, as_addresses: bool) -> Option<Finding> {
    if !as_addresses && key != REMOTE_ADDRESS {
        return None;
    }
    let shown = quoted(value);
    if is_longer_than_addresses(value) {
        return finding(
            format!(
                "{shown} is compared with the shortest text of an address, which has no such part: zeros before a digit are left out, \
                 :: stands for zeros, and ::ffff:10.0.0.1 is 10.0.0.1"
            ),
            "write ranges instead of value, such as ranges: [\"2001:db8::/32\"]",
        );
    }
    if as_addresses {
        return None;
    }
    if let Some(lower) = pattern_in_lower_case(value) {
        let message = format!("{shown} has capital letters, and gateways send addresses in lower case");
        return finding(message, format!("write {lower:?}"));
    }
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || b":.*".contains(&byte);
    if value.bytes().all(is_part) {
        return None;
    }
    let remedy = "write a pattern of an address, such as 192.0.2.* or 2001:db8:*";
    finding(format!("{shown} matches no address, and {key} has nothing else"), remedy)
}
