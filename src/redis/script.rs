//! The script that answers on a server, and what is sent to it and comes back.

use std::sync::LazyLock;

use ::redis::{ErrorKind as Theirs, RedisError, Script, Value};
use smallvec::SmallVec;

use super::call::{Ask, Call, Reply, Standing};
use super::error::{Error, ErrorKind};
use super::in_process::MARGINS_US;
use super::plan::{EXACT, Kind, LAST_US, Pace, Part, Windows};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));
const TEXT: &str = include_str!("script.lua");

/// How the script is named in a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// By its hash: the server must know it.
    Hash,
    /// By its text, which the server then knows.
    Text,
}

/// The command that asks a server.
pub(super) fn command(call: &Call, by: By) -> ::redis::Cmd {
    let mut command = match by {
        By::Hash => ::redis::cmd("EVALSHA"),
        By::Text => ::redis::cmd("EVAL"),
    };
    match by {
        By::Hash => command.arg(SCRIPT.get_hash()),
        By::Text => command.arg(TEXT),
    };
    let parts = call.plan.parts();
    let (ask, numbers) = words(&call.ask);
    let posts = matches!(call.ask, Ask::Post { .. });
    command.arg(if posts { parts.len() * 2 } else { parts.len() });
    for part in parts {
        command.arg(key(call, "", part));
    }
    if posts {
        for part in parts {
            command.arg(key(call, "p", part));
        }
    }
    match call.now {
        Some(now) => command.arg(now.as_nanos() / 1_000),
        None => command.arg(""),
    };
    command.arg(ask);
    for number in numbers {
        command.arg(number);
    }
    command.arg(MARGINS_US[usize::from(call.now.is_some())] / 1_000);
    for part in parts {
        let (kind, numbers) = match part.kind {
            Kind::Pace(Pace { interval, scale, capacity }) => ("g", [interval, scale, capacity]),
            Kind::Windows(Windows { limit, period_us, unit_us, slides, strict }) => {
                let kind = if strict {
                    "S"
                } else if slides {
                    "s"
                } else {
                    "f"
                };
                (kind, [limit, period_us, unit_us])
            }
        };
        command.arg(kind).arg(&numbers);
    }
    command
}

/// The tag, what it is, the algorithm, and the place of the limit.
fn key(call: &Call, what: &str, part: &Part) -> Vec<u8> {
    let mut key = call.tag.clone();
    key.extend(format!(":{what}{}{}", part.letter(), part.index).bytes());
    key
}

/// An ask by name and numbers. Units beyond all that a script counts are as many as it counts.
fn words(ask: &Ask) -> (&'static str, [u64; 3]) {
    let most = |units: u64| units.min(EXACT - 1);
    match *ask {
        Ask::Check { cost } => ("check", [most(cost), 0, 0]),
        Ask::Peek => ("peek", [0, 0, 0]),
        Ask::Force { cost } => ("force", [most(cost), 0, 0]),
        Ask::Refund { units, at_us } => ("refund", [most(units), at_us.min(LAST_US), 0]),
        Ask::Lease { least, wanted, share } => {
            ("lease", [most(least.max(1)), most(wanted), most(share.max(1))])
        }
        // The process is a name to the script.
        Ask::Post { process, epoch, total } => ("post", [process, most(epoch), most(total)]),
    }
}

/// What a server answered.
pub(super) fn reply(call: &Call, value: &Value) -> Result<Reply, Error> {
    let none_of_ours = || Error::new(ErrorKind::Reply, "it answers something else");
    let Value::Array(numbers) = value else { return Err(none_of_ours()) };
    let numbers: Option<SmallVec<[u64; 8]>> = numbers
        .iter()
        .map(|number| match number {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        })
        .collect();
    let numbers = numbers.ok_or_else(none_of_ours)?;
    let (Some(&[granted, now_us]), Some(limits)) = (numbers.first_chunk(), numbers.get(2..)) else {
        return Err(none_of_ours());
    };
    let parts = call.plan.parts();
    if limits.len() != parts.len() * 3 {
        return Err(none_of_ours());
    }
    let standing = |(part, numbers): (&Part, &[u64])| match (part.kind, numbers) {
        (Kind::Pace(_), &[ahead, ..]) => Some(Standing::Pace { ahead }),
        (Kind::Windows(_), &[start_us, previous, current]) => {
            Some(Standing::Windows { start_us, previous, current })
        }
        _ => None,
    };
    let limits: Option<_> = parts.iter().zip(limits.chunks_exact(3)).map(standing).collect();
    Ok(Reply { granted, now_us, limits: limits.ok_or_else(none_of_ours)? })
}

/// Whether the server does not know the script: it was restarted, or is another one.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == Theirs::Server(::redis::ServerErrorKind::NoScript)
}

/// Whether the connection is of no use any more: it is gone, or leads to a server that is not the one it was, such as one that has become
/// a replica.
pub(super) fn is_lost(error: &RedisError) -> bool {
    error.is_io_error() || error.is_unrecoverable_error()
}

/// What a library's error means. Its text may have an address in it, which may have a password in it, unless it is the server's.
pub(super) fn failure(error: &RedisError) -> Error {
    if error.is_timeout() {
        return Error::new(ErrorKind::Timeout, "no answer within the time-out");
    }
    match error.kind() {
        Theirs::Server(_) | Theirs::Extension => {
            let text = match (error.code(), error.detail()) {
                (Some(code), Some(detail)) => format!("{code} {detail}"),
                (_, Some(detail)) => detail.to_owned(),
                (Some(code), None) => code.to_owned(),
                _ => "without saying why".to_owned(),
            };
            Error::new(ErrorKind::Refused, text)
        }
        Theirs::UnexpectedReturnType | Theirs::Parse => {
            Error::new(ErrorKind::Reply, "it does not speak the protocol")
        }
        Theirs::AuthenticationFailed => {
            Error::new(ErrorKind::Refused, "it does not accept user and password")
        }
        Theirs::InvalidClientConfig => {
            Error::new(ErrorKind::Address, "the client's settings do not go together")
        }
        Theirs::Io => Error::new(ErrorKind::Unreachable, "the connection failed"),
        _ => Error::new(ErrorKind::Unreachable, "there is no connection to it"),
    }
}
