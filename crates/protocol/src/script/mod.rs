//! The scripts that answer on a server, the commands that call it, and its replies.

mod holds;
pub(crate) mod region;

use std::borrow::Cow;
use std::io::Write;
use std::sync::{Arc, LazyLock, OnceLock};

use ::redis::{Cmd, ErrorKind as Theirs, RedisError, RedisWrite, Script, Value};
use smallvec::SmallVec;
use tollgate::Timestamp;
use tollgate::internals::unix_nanos;

use super::call::{Call, LimitStanding, Question, Reply, Scope};
use super::error::{Error, ErrorKind};
use super::exact::{EXACT, LAST_US};
use super::kinds::{Form, KindPair, KindSet, Questions};
use super::model::MARGINS_US;
use super::plan::{Arithmetic, Plan, Windows};

pub use self::region::{link_ages, links};

/// The most numbers of a limit.
const NUMBERS: usize = 4;
/// The usual numbers of arguments, and of bytes, of a command. More are possible.
const ARGUMENTS: usize = 16;
const BYTES: usize = 256;
/// The code of the script's own error.
const FOREIGN_STATE: &str = "NOTOURS";
const NO_PASSWORD: &str = "NOAUTH the server needs a password; check the user and the password";
const NO_TLS: &str = "there is no TLS connection; check the certificates of the server and the client, and whom each side trusts";

/// A script and its hash.
pub(crate) struct ScriptText {
    text: Cow<'static, str>,
    script: Script,
}

impl ScriptText {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self { script: Script::new(&text), text }
    }

    /// Returns the script of these kinds. It is made on first use. It has only the texts that its plan needs, because
    /// Redis runs a script's whole text at each call.
    fn of(kinds: KindSet, form: Form) -> &'static Self {
        static SOURCES: [[OnceLock<ScriptText>; KindSet::COUNT]; 3] =
            [const { [const { OnceLock::new() }; KindSet::COUNT] }; 3];
        SOURCES[form as usize][kinds.index()].get_or_init(|| Self::new(kinds.script(form)))
    }

    /// Returns the script of one or two limits. It is made on first use.
    fn of_pair(kinds: KindPair, questions: Questions) -> &'static Self {
        static SOURCES: [[OnceLock<ScriptText>; KindPair::COUNT]; 2] =
            [const { [const { OnceLock::new() }; KindPair::COUNT] }; 2];
        let make = || Self::new(kinds.script(questions, NUMBERS, margin_ms(None)));
        SOURCES[questions as usize][kinds.index()].get_or_init(make)
    }

    /// Begins a command that calls the script about this number of keys.
    pub(crate) fn call(&self, by: By, keys: usize) -> Cmd {
        let mut command = Cmd::with_capacity(ARGUMENTS, BYTES);
        match by {
            By::Hash => command.arg("EVALSHA").arg(self.script.get_hash()),
            By::Text => command.arg("EVAL").arg(&*self.text),
        };
        command.arg(keys);
        command
    }
}

/// How a call names the script.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum By {
    /// By its hash. The server must know the script.
    Hash,
    /// By its text. The server then knows the script.
    Text,
}

/// Adds the time of a call. Without a time, the server's time counts.
pub(crate) fn add_time(command: &mut Cmd, now_us: Option<u64>) -> &mut Cmd {
    match now_us {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    }
}

/// The milliseconds that keys live longer than necessary.
fn margin_ms(now: Option<Timestamp>) -> u64 {
    MARGINS_US[usize::from(now.is_some())] / 1_000
}

/// Builds the command that calls the script of the call's scope.
pub fn command(call: &Call, by: By) -> Cmd {
    match &call.scope {
        Scope::Limits => limits_command(call, by),
        Scope::Holds { most_units } => holds::command(call, *most_units, by),
        Scope::Region(scope) => region::command(call, scope, by),
    }
}

/// Builds the command that calls the script of limits.
fn limits_command(call: &Call, by: By) -> Cmd {
    let plan = &*call.plan;
    let parts = plan.parts();
    if matches!(call.ask, Question::Forget) {
        let mut command = ::redis::cmd("DEL");
        add_keys(&mut command, call, &[""]);
        return command;
    }
    let pair = plan.pair.filter(|_| !matches!(call.ask, Question::Post { .. }));
    if let (Some(kinds), &Question::Check { cost }, None) = (pair, &call.ask, call.now) {
        let mut command = ScriptText::of_pair(kinds, Questions::Check).call(by, parts.len());
        add_keys(&mut command, call, &[""]);
        command.arg(exact(cost));
        add_numbers(&mut command, plan);
        return command;
    }
    if plan.needs_time {
        return limits_command(&at_its_time(call), by);
    }
    let posts = matches!(call.ask, Question::Post { .. });
    let letters: &[&str] = if posts { &["", "p"] } else { &[""] };
    let script = match pair {
        Some(kinds) => ScriptText::of_pair(kinds, Questions::Any),
        None => ScriptText::of(call.plan.kinds, if posts { Form::Post } else { Form::All }),
    };
    let mut command = script.call(by, letters.len() * parts.len());
    add_keys(&mut command, call, letters);
    let (ask, first, others) = words(&call.ask);
    add_time(&mut command, time_us(call));
    command.arg(ask).arg(margin_ms(call.now)).arg(first);
    if pair.is_some() {
        add_numbers(&mut command, plan);
    } else {
        add_kinds(&mut command, plan);
    }
    if let Some(others) = others {
        command.arg(&others);
    }
    command
}

/// The call with a plan for the calendar periods of its time.
fn at_its_time(call: &Call) -> Call {
    Call { plan: Arc::new(call.plan.with_time(calendar_time_us(call))), ..call.clone() }
}

/// The time of a call in microseconds. Without a time, the server's time counts.
pub(crate) fn time_us(call: &Call) -> Option<u64> {
    call.now.map(|now| now.as_nanos() / 1_000)
}

/// Adds the kind and the numbers of each limit.
fn add_kinds(command: &mut Cmd, plan: &Plan) {
    for (kind, numbers) in &plan.arguments {
        command.arg(*kind);
        add_texts(command, numbers, NUMBERS);
    }
}

/// Adds the numbers of one or two limits. Those of the second begin after [`NUMBERS`].
fn add_numbers(command: &mut Cmd, plan: &Plan) {
    for (index, (_, numbers)) in plan.arguments.iter().enumerate() {
        let least = if index + 1 < plan.parts().len() { NUMBERS } else { 0 };
        add_texts(command, numbers, least);
    }
}

/// Adds the numbers of a limit, and zeros up to `least` numbers.
fn add_texts(command: &mut Cmd, numbers: &[Box<str>], least: usize) {
    for number in numbers {
        command.arg(&**number);
    }
    for _ in numbers.len()..least {
        command.arg(0);
    }
}

/// The time whose period a call sends. Without a time, the server's time selects the period, and the wall clock is near it.
fn calendar_time_us(call: &Call) -> u64 {
    match (&call.ask, call.now) {
        (Question::Refund { at_us, .. }, _) => *at_us,
        (_, now) => now.map_or_else(unix_nanos, Timestamp::as_nanos) / 1_000,
    }
}

impl Windows {
    /// The name of the kind in the arguments of a script.
    pub(crate) const fn kind(&self) -> &'static str {
        match (self.slides, self.strict) {
            (_, true) => "S",
            (true, false) => "s",
            (false, false) => "f",
        }
    }
}

/// The texts of a key's states, and their lives in milliseconds. The life of an absent state is 0.
pub type StoredStates = SmallVec<[(Vec<u8>, u64); 1]>;

/// A step of the copy of a key's states from one server to another, after the set of servers changed.
///
/// A step that writes stores a mark with each state, and replaces no state and no mark. So a copy that is late or repeated changes nothing.
#[derive(Copy, Clone, Debug)]
pub enum CopyStep<'s> {
    /// Asks the new server whether each limit has a state or a mark. The reply is 1 or 0.
    Find,
    /// Reads the states at the previous server. [`states`] parses the reply.
    Read,
    /// Stores them at the new server, each with a mark. Changes nothing for a limit that has a state or a mark.
    Write(&'s StoredStates),
}

static COPY: LazyLock<ScriptText> = LazyLock::new(|| ScriptText::new(include_str!("copy.lua")));

/// Builds the command that calls the script of copies, about the limits of a call. Its question does not matter.
pub fn copy(call: &Call, step: CopyStep<'_>, by: By) -> Cmd {
    let mut command = COPY.call(by, 2 * call.plan.parts().len());
    add_keys(&mut command, call, &["", "c"]);
    match step {
        CopyStep::Find => command.arg("find"),
        CopyStep::Read => command.arg("read"),
        CopyStep::Write(states) => {
            command.arg("write");
            for (text, life_ms) in states {
                command.arg(&text[..]).arg(*life_ms);
            }
            &mut command
        }
    };
    command
}

/// Adds the names of the keys of each limit, first with the first of these letters.
fn add_keys(command: &mut Cmd, call: &Call, letters: &[&str]) {
    for letter in letters {
        for end in &call.plan.names {
            let mut name = command.writer_for_next_arg();
            // Writing to memory does not fail.
            for part in [&*call.tag, b":", letter.as_bytes(), end.as_bytes()] {
                let _ = name.write_all(part);
            }
        }
    }
}

/// Parses the states that a server read.
///
/// # Errors
/// Returns an error if the reply is not from the script.
pub fn states(call: &Call, value: Value) -> Result<StoredStates, Error> {
    let unexpected_reply = || Error::new(ErrorKind::Reply, "the reply is not from the script of copies");
    let Value::Array(values) = value else { return Err(unexpected_reply()) };
    let mut states = StoredStates::new();
    let mut values = values.into_iter();
    while let (Some(text), Some(life)) = (values.next(), values.next()) {
        let (Value::BulkString(text), Value::Int(life_ms)) = (text, life) else {
            return Err(unexpected_reply());
        };
        // The last millisecond is 0. A state without a life was changed by hand; it expires like others.
        let life_ms = match life_ms {
            -2 => 0,
            -1 => call.plan.refill_us().div_ceil(1_000).max(1),
            _ => u64::try_from(life_ms).map_err(|_| unexpected_reply())?.max(1),
        };
        states.push((text, life_ms));
    }
    if states.len() == call.plan.parts().len() { Ok(states) } else { Err(unexpected_reply()) }
}

/// Reduces a number to the script's maximum.
fn exact(units: u64) -> u64 {
    units.min(EXACT - 1)
}

/// Returns a question's name, its first number, and its two other numbers. A number that is too large for the script is
/// reduced to the script's maximum.
fn words(ask: &Question) -> (&'static str, u64, Option<[u64; 2]>) {
    match *ask {
        Question::Check { cost } => ("check", exact(cost), None),
        Question::Peek { cost } => ("peek", exact(cost), None),
        Question::Force { cost } => ("force", exact(cost), None),
        // It is a command of the server, not a question to the script.
        Question::Forget => ("forget", 0, None),
        Question::Refund { units, at_us } => ("refund", exact(units), Some([at_us.min(LAST_US), 0])),
        Question::Lease { least, wanted, share } => {
            ("lease", exact(least.max(1)), Some([exact(wanted), exact(share.max(1))]))
        }
        // The script uses the process only as a name.
        Question::Post { process, epoch, total } => ("post", process, Some([exact(epoch), exact(total)])),
        // The others are about holds and regions, and go to other scripts.
        _ => ("peek", 0, None),
    }
}

/// The numbers of a reply. `None` if the reply is neither a list of whole numbers of at least 0, nor a text with 8 bytes for
/// each of them.
pub(crate) fn numbers(value: &Value) -> Option<SmallVec<[u64; 8]>> {
    let number = |number: &Value| match number {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    match value {
        Value::Array(numbers) => numbers.iter().map(number).collect(),
        Value::BulkString(text) => {
            let (numbers, rest) = text.as_chunks();
            let number = |bytes: &[u8; 8]| u64::try_from(i64::from_be_bytes(*bytes)).ok();
            if rest.is_empty() { numbers.iter().map(number).collect() } else { None }
        }
        _ => None,
    }
}

/// Parses the reply of a server.
///
/// # Errors
/// Returns an error if the reply is not from the script.
pub fn reply(call: &Call, value: &Value) -> Result<Reply, Error> {
    if let (Question::Forget, &Value::Int(gone)) = (&call.ask, value) {
        return Ok(Reply::new(u64::try_from(gone).unwrap_or(0), 0, SmallVec::new()));
    }
    let numbers = numbers(value).unwrap_or_default();
    let unexpected_reply = || Error::new(ErrorKind::Reply, "the reply is not from the limiter's script");
    match (&call.scope, &*numbers) {
        (Scope::Limits, [granted, now_us, limits @ ..]) => {
            reply_of(&call.plan, *granted, *now_us, limits).ok_or_else(unexpected_reply)
        }
        (Scope::Limits, _) => Err(unexpected_reply()),
        (Scope::Holds { .. }, numbers) => holds::reply(call, numbers).ok_or_else(unexpected_reply),
        (Scope::Region(scope), numbers) => {
            region::reply(&scope.terms, numbers).ok_or_else(region::unexpected_reply)
        }
    }
}

/// Makes a reply from its parts. `rest` has the numbers of the limits. Returns `None` if there are more or fewer.
pub(crate) fn reply_of(plan: &Plan, granted: u64, now_us: u64, mut rest: &[u64]) -> Option<Reply> {
    let mut limits = SmallVec::new();
    for part in plan.parts() {
        let (standing, others) = match (part.kind, rest) {
            (Arithmetic::Pace(_), &[ahead, ref others @ ..]) => {
                (LimitStanding::Pace { ahead, is_blocked: false }, others)
            }
            (Arithmetic::Blocked(_), &[ahead, blocked, ref others @ ..]) => {
                (LimitStanding::Pace { ahead, is_blocked: blocked > 0 }, others)
            }
            (Arithmetic::Windows(_), &[start_us, previous, current, ref others @ ..]) => {
                (LimitStanding::Windows { start_us, previous, current }, others)
            }
            (Arithmetic::Batches(_) | Arithmetic::Calendar(_), &[ends_us, used, ref others @ ..]) => {
                (LimitStanding::Batches { ends_us, used }, others)
            }
            (
                Arithmetic::Log(_) | Arithmetic::Parts(_) | Arithmetic::Spacing(_),
                &[left, wait_us, reset_us, delay_us, ref others @ ..],
            ) => (LimitStanding::Plain { left, wait_us, reset_us, delay_us }, others),
            _ => return None,
        };
        limits.push(standing);
        rest = others;
    }
    rest.is_empty().then(|| Reply::new(granted, now_us, limits))
}

/// Returns whether the server does not know the script, because it restarted or is another server.
pub fn is_unknown(error: &RedisError) -> bool {
    error.kind() == Theirs::Server(::redis::ServerErrorKind::NoScript)
}

/// Returns whether the connection is no longer useful: it is lost, or it leads to a server that has changed, for
/// example into a replica.
pub fn is_lost(error: &RedisError) -> bool {
    error.is_io_error() || error.is_unrecoverable_error() || has_code(error, "READONLY")
}

/// Returns whether the error has this code. Before version 7, the code of a script's failed command is inside the text
/// of another error: `ERR Error running script (…) @user_script:239: @user_script: 239: -READONLY …`.
fn has_code(error: &RedisError, code: &str) -> bool {
    let in_script = |text: &str| {
        text.contains("@user_script") && text.split(' ').any(|word| word.trim_start_matches('-') == code)
    };
    error.code() == Some(code) || error.detail().is_some_and(in_script)
}

/// The error of an attempt to connect by TLS.
pub fn no_tls() -> RedisError {
    (Theirs::Io, NO_TLS).into()
}

/// Converts an error of the client library. The result contains no password and no key:
///
/// - Text from the library may contain an address with a password, so it is removed.
/// - Text from the server is kept, unless it contains a brace, as every key does.
pub fn failure(error: &RedisError) -> Error {
    if error.is_timeout() {
        return Error::new(ErrorKind::Timeout, "no answer within the time-out");
    }
    if has_code(error, FOREIGN_STATE) || has_code(error, "WRONGTYPE") {
        // The error concerns this key and not the server, so other keys must continue to call the server.
        return Error::new(ErrorKind::Reply, "this key holds data that tollgate did not write");
    }
    let (kind, text) = match error.kind() {
        Theirs::Server(_) | Theirs::Extension => {
            // A key contains a brace. It may identify a client.
            let detail = error.detail().filter(|detail| !detail.contains('{'));
            // A client without a password may send short commands only, so the server calls a script's call an error of the protocol.
            if detail.is_some_and(|detail| detail.contains("unauthenticated")) {
                return Error::new(ErrorKind::Refused, NO_PASSWORD);
            }
            let text = match (error.code(), detail) {
                (Some(code), Some(detail)) => format!("{code} {detail}"),
                (_, Some(detail)) => detail.to_owned(),
                (Some(code), None) => code.to_owned(),
                _ => "no error message".to_owned(),
            };
            return Error::new(ErrorKind::Refused, text);
        }
        Theirs::UnexpectedReturnType | Theirs::Parse => {
            (ErrorKind::Reply, "the reply does not follow the Redis protocol")
        }
        Theirs::AuthenticationFailed => {
            (ErrorKind::Refused, "authentication failed; check the user and the password")
        }
        Theirs::InvalidClientConfig => (
            ErrorKind::Address,
            "the client's settings are invalid; rediss:// with rustls needs a provider, such as the feature ring of rustls",
        ),
        Theirs::Io if error.to_string().starts_with(NO_TLS) => (ErrorKind::Unreachable, NO_TLS),
        Theirs::Io => (ErrorKind::Unreachable, "the connection failed"),
        _ => (ErrorKind::Unreachable, "there is no connection"),
    };
    Error::new(kind, text)
}
