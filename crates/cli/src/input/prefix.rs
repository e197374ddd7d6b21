//! What collectors write before a line: syslog, container runtimes, and the tools that show their logs.

use super::clf::begins_as;

/// A form of prefix.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Prefix {
    /// `2024-10-10T13:55:36.1Z stdout F `, as container runtimes write files for Kubernetes.
    Cri,
    /// `<165>1 2003-10-11T22:14:15.003Z host app 123 ID47 [id a="b"] ` (RFC 5424).
    Syslog,
    /// `<13>Oct 11 22:14:15 host app[123]: ` (RFC 3164), also with the time of RFC 3339, and without the number.
    OldSyslog,
    /// `web-1  | `, as docker compose shows lines.
    Compose,
    /// `[pod/web-1/nginx] `, as `kubectl logs --prefix` shows lines.
    Pod,
    /// `Oct 11 22:14:15 host `, without a tag.
    UntaggedSyslog,
    /// `2024-10-10T13:55:36.1Z `, as `docker logs --timestamps` shows lines, also with a space for the T.
    Time,
}

/// What was cut off.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Cut<'l> {
    /// The line without its prefix.
    pub rest: &'l [u8],
    /// Whether the line continues in the next one of its stream.
    pub continues: bool,
    /// The stream: 1 is the standard error of a container. Lines of the two may be mixed.
    pub stream: usize,
}

impl Prefix {
    /// In the order in which they are tried. A time alone comes last, because lines may begin with a time of their own.
    pub const ALL: [Self; 7] = [
        Self::Cri,
        Self::Syslog,
        Self::OldSyslog,
        Self::Compose,
        Self::Pod,
        Self::UntaggedSyslog,
        Self::Time,
    ];

    /// Whether a line with this prefix may also be a line without one.
    pub const fn is_weak(self) -> bool {
        matches!(self, Self::UntaggedSyslog | Self::Time)
    }

    /// The name of the prefix in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cri => "a container runtime",
            Self::Syslog | Self::OldSyslog | Self::UntaggedSyslog => "syslog",
            Self::Compose => "compose",
            Self::Pod => "kubectl",
            Self::Time => "a time",
        }
    }

    /// Cuts the prefix off, if the line has it.
    pub fn cut(self, line: &[u8]) -> Option<Cut<'_>> {
        let (mut continues, mut of) = (false, 0);
        let rest = match self {
            Self::Cri => {
                let (stream, rest) = word(iso_time(line)?)?;
                let (tag, rest) = word(rest)?;
                continues = tag.starts_with(b"P");
                of = usize::from(stream == b"stderr");
                let is_tag = continues || tag.starts_with(b"F");
                (matches!(stream, b"stdout" | b"stderr") && is_tag).then_some(rest)
            }
            Self::Syslog => {
                let rest = iso_time(priority(line)?.strip_prefix(b"1 ")?)?;
                // The host, the program, the process, and the kind of message.
                let mut rest = rest;
                for _ in 0..4 {
                    rest = word(rest)?.1;
                }
                // Heroku writes no structured data.
                let rest = structured_data(rest).unwrap_or(rest);
                Some(rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest))
            }
            Self::OldSyslog => {
                let line = priority(line).unwrap_or(line);
                let rest = bsd_time(line).or_else(|| iso_time(line))?;
                // The host may be missing. A tag ends with a colon.
                let (first, rest) = word(rest)?;
                let is_tag = |word: &[u8]| word.len() > 1 && word.ends_with(b":");
                if is_tag(first) {
                    Some(rest)
                } else {
                    let (second, rest) = word(rest)?;
                    is_tag(second).then_some(rest)
                }
            }
            Self::Compose => {
                let line = without_colour(line);
                let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@');
                let name = line.iter().take_while(|b| is_name(b)).count();
                let rest = line[name..].trim_ascii_start().strip_prefix(b"|")?;
                let rest = without_colour(rest.strip_prefix(b" ").unwrap_or(rest));
                (name > 0 && line.get(name) == Some(&b' ')).then_some(rest)
            }
            Self::Pod => {
                let end = line.strip_prefix(b"[pod/")?.iter().position(|&b| b == b']')?;
                line.get(5 + end + 1..)?.strip_prefix(b" ")
            }
            Self::UntaggedSyslog => {
                let line = bsd_time(priority(line).unwrap_or(line))?;
                // The host may be missing. The ident follows a client.
                let (_, rest) = word(line)?;
                Some(if rest.starts_with(b"- ") { line } else { rest })
            }
            Self::Time => iso_time(line).or_else(|| {
                // A space in the place of the T.
                let (date, rest) = word(line)?;
                let (clock, rest) = word(rest)?;
                let is_date = date.len() == 10 && begins_as(date, b"0000-00-00");
                (is_date && begins_as(clock, b"00:00:00")).then_some(rest)
            }),
        };
        rest.map(|rest| Cut { rest, continues, stream: of })
    }
}

/// Returns a word, and what follows its spaces.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&b| b == b' ')?;
    Some((&text[..end], text[end..].trim_ascii_start()))
}

/// Returns what follows `2024-10-10T13:55:36…`.
fn iso_time(text: &[u8]) -> Option<&[u8]> {
    let (time, rest) = word(text)?;
    let form = b"0000-00-00T00:00:00";
    (time.len() > form.len() && begins_as(time, form)).then_some(rest)
}

/// Returns what follows `Oct 11 22:14:15`.
fn bsd_time(text: &[u8]) -> Option<&[u8]> {
    let (month, rest) = word(text)?;
    let (day, rest) = word(rest)?;
    let (time, rest) = word(rest)?;
    let is_month = month.len() == 3 && month.iter().all(u8::is_ascii_alphabetic);
    let is_day = matches!(day.len(), 1 | 2) && day.iter().all(u8::is_ascii_digit);
    let is_time = time.len() >= 8 && time.get(2) == Some(&b':') && time.get(5) == Some(&b':');
    (is_month && is_day && is_time).then_some(rest)
}

/// Returns what follows `<165>`, which may have the length of the message in front (RFC 6587).
fn priority(text: &[u8]) -> Option<&[u8]> {
    let length = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let text = text[length..].trim_ascii_start().strip_prefix(b"<")?;
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    text[digits..].strip_prefix(b">").filter(|_| matches!(digits, 1..=3))
}

/// Returns what follows `[id a="b"][id c="d\]"] ` or `- `.
fn structured_data(text: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = text.strip_prefix(b"- ") {
        return Some(rest);
    }
    let (mut quoted, mut escaped, mut open) = (false, false, false);
    for (at, &b) in text.iter().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' => open = true,
            b']' => open = false,
            b' ' if !open => return (at > 0).then_some(&text[at + 1..]),
            _ if !open => return None,
            _ => {}
        }
    }
    None
}

/// Returns the text without a leading colour of a terminal.
fn without_colour(text: &[u8]) -> &[u8] {
    let Some(inner) = text.strip_prefix(b"\x1b[") else { return text };
    let length = inner.iter().take_while(|b| b.is_ascii_digit() || **b == b';').count();
    inner[length..].strip_prefix(b"m").unwrap_or(text)
}
