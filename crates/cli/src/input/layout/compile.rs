//! The format strings of servers: nginx's `log_format`, Apache's `LogFormat`, HAProxy's `log-format`, and Envoy's format
//! strings.

use super::haproxy;
use super::token::{Named, Token, header, wrong};
use super::variables::{Shape, Variable};
use super::{Field, Layout};
use crate::input::sample::Role;
use crate::input::time::TimeFormat;

/// The names that are shown in errors.
const EXAMPLES: &str = "expected the string of nginx's log_format ($remote_addr [$time_local] \"$request\"), of Apache's LogFormat \
     (%h %t \"%r\"), of HAProxy's log-format (%ci [%t] %{+Q}r), an Envoy format string (%START_TIME% %REQ(X-FORWARDED-FOR)%)";

/// The language of a format string.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Language {
    Nginx,
    Apache,
    Haproxy,
    Envoy,
}

impl Layout {
    /// Reads a server's format string, alone or with the directive around it.
    ///
    /// # Errors
    /// Returns the place in the string, and what is expected there.
    pub fn compile(name: &str, text: &str) -> Result<Self, String> {
        let text = &directive(text);
        let language = language(text)?;
        let mut lead = Vec::new();
        let mut fields: Vec<Field> = Vec::new();
        for token in tokens(text, language)? {
            if let (Token::Variable(part), Some(last)) = (&token, fields.last_mut())
                && last.add_time(part)
            {
                continue;
            }
            match (token, fields.last_mut()) {
                (Token::Text(text), None) => lead.extend_from_slice(text.as_bytes()),
                (Token::Text(text), Some(last)) => last.after.extend_from_slice(text.as_bytes()),
                // Nothing separates the two, so they are one field.
                (Token::Variable(Named { name, known, .. }), Some(last)) if last.after.is_empty() => {
                    let both = match (&*last.name, &*name) {
                        ("%U", "%q") | ("%HP", "%HQ") => "request_uri",
                        ("%hr", "%hs") => &known,
                        _ => "",
                    };
                    last.variable = Variable::of(both);
                    last.name += &name;
                    last.header.clear();
                    last.time = None;
                }
                (Token::Variable(Named { name, known, header, time, .. }), _) => fields.push(Field {
                    name,
                    header,
                    variable: Variable::of(&known),
                    after: Vec::new(),
                    quoted: false,
                    time,
                }),
            }
        }
        if fields.is_empty() {
            return Err(format!("{text:?} has no field; {EXAMPLES}"));
        }
        let mut before = lead.last().copied();
        for field in &mut fields {
            field.quoted = before == Some(b'"') && field.after.first() == Some(&b'"');
            // A word in quotes or brackets may have spaces.
            let enclosed = field.quoted || before == Some(b'[') && field.after.first() == Some(&b']');
            if enclosed && field.variable.shape == Shape::Word {
                field.variable.shape = Shape::Text;
            }
            if field.time.is_some() && !matches!(field.variable.shape, Shape::Number) {
                let spaces = |pattern: &str| pattern.matches(' ').count();
                field.variable.shape = match &field.time {
                    Some(TimeFormat::Pattern(pattern)) => Shape::Spaces(spaces(pattern)),
                    _ => Shape::Text,
                };
            }
            before = field.after.last().copied();
        }
        // Of `$remote_addr:$remote_port`, the last colon separates the two, because IPv6 addresses have colons.
        for at in 1..fields.len() {
            let follows_client =
                fields[at - 1].after == b":" && matches!(fields[at - 1].variable.role, Role::Client(_));
            let variable = &mut fields[at].variable;
            if follows_client && variable.shape == Shape::Word && variable.names.is_empty() {
                variable.shape = Shape::Part;
            }
        }
        let (least, read, columns) = (fields.len(), fields.len(), Self::named_columns(&fields));
        Ok(Self { name: name.to_owned(), lead, fields, columns, least, read, open: false })
    }

    /// Accepts lines that end after this field, and lines with more fields.
    pub(super) fn with_open_end(mut self, least: &str) -> Self {
        let at = self.fields.iter().position(|field| field.name == least);
        self.least = at.map_or(self.fields.len(), |at| at + 1);
        self.open = true;
        self
    }
}

impl Field {
    /// Adds a part of the same time that follows it, such as its fraction or its offset, which Apache writes by directives of
    /// their own. Returns whether the variable is such a part.
    fn add_time(&mut self, part: &Named) -> bool {
        let (Some(time), Some(TimeFormat::Pattern(more))) = (&self.time, &part.time) else { return false };
        let Ok(between) = str::from_utf8(&self.after) else { return false };
        let both = match time {
            // A second time has the same directives again.
            TimeFormat::Pattern(first)
                if directives(first).all(|one| directives(more).all(|other| one != other)) =>
            {
                TimeFormat::Pattern(format!("{first}{}{more}", between.replace('%', "%%")))
            }
            // Seconds and their fraction are one number.
            TimeFormat::Epoch(("s", ..)) if between == "." && more == "%f" => time.clone(),
            _ => return false,
        };
        self.name = format!("{}{between}{}", self.name, part.name);
        self.time = Some(both);
        self.header.clear();
        self.after.clear();
        true
    }
}

/// Returns the letters of a pattern's directives.
fn directives(pattern: &str) -> impl Iterator<Item = char> {
    pattern.split('%').skip(1).filter_map(|directive| directive.chars().find(char::is_ascii_alphabetic))
}

/// Returns the string of a directive: `log_format main '…' '…';`, `LogFormat "…" combined` or `log-format "…"`.
fn directive(text: &str) -> String {
    let text = text.trim();
    let first = text.split_whitespace().next().unwrap_or_default();
    let names = ["log_format", "logformat", "customlog", "log-format"];
    let is_directive = names.iter().any(|name| first.eq_ignore_ascii_case(name));
    // A string in quotes, instead of one that begins and ends with a field in quotes.
    let one = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let quoted = text.starts_with('\'') && text.ends_with(['\'', ';'])
        || one.is_some_and(|text| !text.replace("\\\"", "").contains('"'));
    if !is_directive && !quoted {
        return text.to_owned();
    }
    let rest = text.get(first.len()..).unwrap_or_default().trim();
    if first == "log-format" && !rest.starts_with(['"', '\'']) {
        // Without quotes, its spaces are escaped.
        return rest.to_owned();
    }
    // The parts in quotes; several strings of nginx's are one.
    let (mut parts, mut chars) = (String::new(), text.chars());
    while let Some(open) = chars.find(|c| matches!(c, '\'' | '"')) {
        while let Some(c) = chars.next().filter(|&c| c != open) {
            parts.push(c);
            if c == '\\'
                && let Some(escaped) = chars.next()
            {
                parts.push(escaped);
            }
        }
        if first.eq_ignore_ascii_case("logformat") {
            break;
        }
    }
    parts
}

/// Returns the language of a format string.
fn language(text: &str) -> Result<Language, String> {
    let after = |mark: char, is: fn(&str) -> bool| {
        text.match_indices(mark).any(|(at, _)| text.get(at + 1..).is_some_and(is))
    };
    let is_name = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '{' | '_'));
    let is_envoy = |text: &str| {
        let letters = text.bytes().take_while(|b| b.is_ascii_uppercase() || *b == b'_').count();
        letters > 3 || letters > 1 && text.as_bytes().get(letters) == Some(&b'(')
    };
    let is_haproxy = |text: &str| {
        haproxy::is_variable(text) || ["[", "{+", "{-"].iter().any(|start| text.starts_with(start))
    };
    if after('$', is_name) {
        Ok(Language::Nginx)
    } else if after('%', is_envoy) {
        Ok(Language::Envoy)
    } else if after('%', is_haproxy) {
        Ok(Language::Haproxy)
    } else if text.contains('%') {
        Ok(Language::Apache)
    } else {
        let names: Vec<&str> = super::known::names().collect();
        Err(format!(
            "{text:?} is neither a format string nor a known format; {EXAMPLES}, or one of {}",
            names.join(", ")
        ))
    }
}

/// Splits a format string.
fn tokens(text: &str, language: Language) -> Result<Vec<Token>, String> {
    let (mut tokens, mut literal, mut at) = (Vec::new(), String::new(), 0);
    let mark = if language == Language::Nginx { '$' } else { '%' };
    let mut quotes = false;
    while let Some(c) = text[at..].chars().next() {
        let next = at + c.len_utf8();
        let escaped = text[next..].chars().next().filter(|_| c == '\\');
        if let Some(escaped) = escaped {
            match escaped {
                '"' | '\'' | '\\' => literal.push(escaped),
                ' ' | '[' | ']' if language == Language::Haproxy => literal.push(escaped),
                't' => literal.push('\t'),
                // The end of a line, which readers remove.
                'n' if text[next + 1..].trim().is_empty() => {}
                'n' => {
                    return Err(wrong(
                        text,
                        at,
                        "a record of several lines is not read; remove this line end",
                    ));
                }
                _ => literal.extend(['\\', escaped]),
            }
            at = next + escaped.len_utf8();
        } else if c == mark {
            let (token, length) = match language {
                Language::Nginx => nginx(text, at)?,
                Language::Apache => apache(text, at)?,
                Language::Haproxy => haproxy::variable(text, at, &mut quotes)?,
                Language::Envoy => envoy(text, at)?,
            };
            at += length;
            match token {
                Token::Text(text) => literal += &text,
                Token::Variable(named) => {
                    let (open, close) = named.around.split_at(named.around.len() / 2);
                    literal += open;
                    tokens.extend([Token::Text(std::mem::take(&mut literal)), Token::Variable(named)]);
                    literal += close;
                }
            }
        } else {
            literal.push(c);
            at = next;
        }
    }
    tokens.push(Token::Text(literal));
    tokens.retain(|token| !matches!(token, Token::Text(text) if text.is_empty()));
    Ok(tokens)
}

fn nginx(text: &str, at: usize) -> Result<(Token, usize), String> {
    let rest = &text[at + 1..];
    let (name, length) = match rest.strip_prefix('{') {
        Some(inner) => {
            let end =
                inner.find('}').ok_or_else(|| wrong(text, at, "no } ends the name of this variable"))?;
            (&inner[..end], end + 3)
        }
        None => {
            let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
            let end = rest.bytes().take_while(is_part).count();
            (&rest[..end], end + 1)
        }
    };
    if name.is_empty() {
        return Err(wrong(text, at, "a variable's name is missing after $, as in $remote_addr"));
    }
    let name = name.to_owned();
    Ok((Token::Variable(Named { known: name.clone(), name, ..Named::default() }), length))
}

fn apache(text: &str, at: usize) -> Result<(Token, usize), String> {
    let rest = &text[at + 1..];
    // Conditions by status, and the choice between the first and the last request, change no name.
    let skipped =
        rest.bytes().take_while(|b| b.is_ascii_digit() || matches!(b, b'!' | b',' | b'<' | b'>')).count();
    let rest = &rest[skipped..];
    let (argument, inner) = match rest.strip_prefix('{') {
        Some(inner) => {
            let end =
                inner.find('}').ok_or_else(|| wrong(text, at, "no } ends the argument of this directive"))?;
            (Some(&inner[..end]), end + 2)
        }
        None => (None, 0),
    };
    let letters = match rest[inner..].strip_prefix('^') {
        Some(_) => rest.get(inner..inner + 3),
        None => rest[inner..].chars().next().map(|c| &rest[inner..inner + c.len_utf8()]),
    };
    let letters =
        letters.ok_or_else(|| wrong(text, at, "the directive ends early; write a percent sign as %%"))?;
    let length = 1 + skipped + inner + letters.len();
    let letter = letters.chars().last().unwrap_or('%');
    if letters == "%" && argument.is_none() {
        return Ok((Token::Text("%".to_owned()), length));
    }
    if !letter.is_ascii_alphabetic() {
        return Err(wrong(text, at, "no directive of Apache's LogFormat; a percent sign is written %%"));
    }
    let name = argument.map_or_else(|| format!("%{letters}"), |argument| format!("%{{{argument}}}{letters}"));
    let (mut known, mut of_header, mut time) = (name.clone(), String::new(), None);
    match (argument, letter) {
        (Some(field), 'i') => {
            of_header = header(field);
            known.clone_from(&of_header);
        }
        (Some(format), 't') => {
            let format = format.strip_prefix("begin:").or(format.strip_prefix("end:")).unwrap_or(format);
            known = match format {
                "sec" | "msec" | "usec" => format!("%{{{format}}}t"),
                _ if format.ends_with("_frac") => "%k".to_owned(),
                _ => "time".to_owned(),
            };
            let unit = match format {
                "sec" => Some("s"),
                "msec" => Some("ms"),
                "usec" => Some("us"),
                _ if format.ends_with("_frac") => Some("%f"),
                pattern => Some(pattern),
            };
            time = unit.and_then(|unit| unit.parse().ok());
        }
        _ => {}
    }
    let around = if name == "%t" { "[]" } else { "" };
    Ok((Token::Variable(Named { name, known, header: of_header, time, around }), length))
}

fn envoy(text: &str, at: usize) -> Result<(Token, usize), String> {
    let rest = &text[at + 1..];
    if rest.starts_with('%') {
        return Ok((Token::Text("%".to_owned()), 2));
    }
    let letters =
        rest.bytes().take_while(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_').count();
    if letters == 0 {
        return Err(wrong(
            text,
            at,
            "no command operator of Envoy, such as %START_TIME%; a percent sign is written %%",
        ));
    }
    // An argument may contain percent signs: %START_TIME(%Y-%m-%d)%.
    let argument = match rest[letters..].strip_prefix('(') {
        Some(inner) => {
            let end =
                inner.find(')').ok_or_else(|| wrong(text, at, "no ) ends the argument of this operator"))?;
            Some(&inner[..end])
        }
        None => None,
    };
    let from = letters + argument.map_or(0, |argument| argument.len() + 2);
    let end = rest[from..].find('%').ok_or_else(|| wrong(text, at, "no % ends this operator"))?;
    if !(end == 0 || rest[from..].starts_with(':')) {
        return Err(wrong(text, at, "expected % after the operator, as in %PROTOCOL%"));
    }
    let operator = &rest[..letters];
    let (mut known, mut of_header, mut time) = (rest[..from].to_owned(), String::new(), None);
    match (operator, argument) {
        ("REQ", Some(field))
            if !Variable::of(&known).names.contains(' ') && !field.starts_with(":METHOD") =>
        {
            of_header = header(field.split('?').next().unwrap_or(field));
            known.clone_from(&of_header);
        }
        ("START_TIME", argument) => {
            known = operator.to_owned();
            time = argument.and_then(envoy_time);
            if matches!(time, Some(TimeFormat::Epoch(_))) {
                known = "msec".to_owned();
            }
        }
        _ => {}
    }
    let name = format!("%{}%", &rest[..from]);
    Ok((Token::Variable(Named { name, known, header: of_header, time, around: "" }), from + end + 2))
}

/// Returns the form of a time in Envoy's pattern, whose `%3f` and `%E3f` are fractions of a second.
fn envoy_time(pattern: &str) -> Option<TimeFormat> {
    let is_count = |b: u8| b.is_ascii_digit();
    let (mut plain, mut bytes) = (String::new(), pattern.chars().peekable());
    let mut digits = 9;
    while let Some(c) = bytes.next() {
        plain.push(c);
        if c == '%' {
            if let Some(count) = bytes.next_if(|&c| u8::try_from(c).is_ok_and(is_count)) {
                digits = count.to_digit(10).unwrap_or(9);
            }
            plain.extend(bytes.next());
        }
    }
    match (&*plain, digits) {
        ("%s" | "%s.%f", _) => "s".parse().ok(),
        ("%s%f", 3) => "ms".parse().ok(),
        ("%s%f", 6) => "us".parse().ok(),
        ("%s%f", 9) => "ns".parse().ok(),
        ("", _) => None,
        _ => plain.parse().ok(),
    }
}
