//! The commands that exist, as `COMMAND` lists them.

use super::read::Args;
use super::write::{Replies, Shown};

/// A command.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Name {
    Limit(Limit),
    Auth,
    Client,
    Command,
    Config,
    Discard,
    Echo,
    Exec,
    Hello,
    Info,
    Multi,
    Ping,
    Quit,
    Reset,
    Select,
    Unwatch,
    Watch,
}

/// A command that asks for a limit. Users can be denied it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Limit {
    Throttle,
    Gcra,
    TollgateCheck,
    TollgatePeek,
    TollgateHold,
    TollgateCommit,
}

/// What is known about a command.
#[derive(Debug)]
pub struct Known {
    /// Its name, in lower case.
    pub name: &'static str,
    pub command: Name,
    /// The number of its texts, with the name. The least number if this is negative.
    arity: i8,
}

const fn known(name: &'static str, command: Name, arity: i8) -> Known {
    Known { name, command, arity }
}

/// All commands. Those that clients send most are first.
pub const KNOWN: [Known; 22] = [
    known("cl.throttle", Name::Limit(Limit::Throttle), -5),
    known("gcra", Name::Limit(Limit::Gcra), -5),
    known("tollgate.check", Name::Limit(Limit::TollgateCheck), -4),
    known("tollgate.peek", Name::Limit(Limit::TollgatePeek), -4),
    known("tollgate.hold", Name::Limit(Limit::TollgateHold), -4),
    known("tollgate.commit", Name::Limit(Limit::TollgateCommit), -6),
    known("auth", Name::Auth, -2),
    known("client", Name::Client, -2),
    known("command", Name::Command, -1),
    known("config", Name::Config, -2),
    known("discard", Name::Discard, 1),
    known("echo", Name::Echo, 2),
    known("exec", Name::Exec, 1),
    known("hello", Name::Hello, -1),
    known("info", Name::Info, -1),
    known("multi", Name::Multi, 1),
    known("ping", Name::Ping, -1),
    known("quit", Name::Quit, -1),
    known("reset", Name::Reset, 1),
    known("select", Name::Select, 2),
    known("unwatch", Name::Unwatch, 1),
    known("watch", Name::Watch, -2),
];

impl Known {
    /// Whether the command asks for a limit.
    pub const fn is_limit(&self) -> bool {
        matches!(self.command, Name::Limit(_))
    }

    /// Whether a transaction does not queue the command.
    pub const fn is_at_once(&self) -> bool {
        matches!(
            self.command,
            Name::Multi | Name::Exec | Name::Discard | Name::Watch | Name::Reset | Name::Quit
        )
    }

    /// Whether a client may send the command before it has given a password.
    pub const fn is_for_strangers(&self) -> bool {
        matches!(self.command, Name::Auth | Name::Hello | Name::Quit | Name::Reset)
    }

    /// Whether the command can have this many texts.
    pub fn takes(&self, texts: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { texts >= wanted } else { texts == wanted }
    }

    /// Writes what `COMMAND` says: the name, the number of texts, properties, and where its keys are.
    fn describe(&self, to: &mut Replies) {
        to.array(6);
        to.bulk(self.name.as_bytes());
        to.integer(self.arity.into());
        to.array(1);
        to.simple("fast");
        let has_key = matches!(self.command, Name::Limit(Limit::Throttle | Limit::Gcra));
        for _ in 0..3 {
            to.integer(has_key.into());
        }
    }
}

/// Returns the command with this name, in upper or lower case.
pub fn find(name: &[u8]) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name.as_bytes().eq_ignore_ascii_case(name))
}

/// Answers `COMMAND`.
pub fn list(args: Args<'_>, to: &mut Replies) {
    let Some(part) = args.get(1) else {
        to.array(KNOWN.len());
        return KNOWN.iter().for_each(|known| known.describe(to));
    };
    let named = args.from(2);
    match &part.to_ascii_lowercase()[..] {
        b"count" => to.count(KNOWN.len() as u64),
        b"list" => {
            to.array(KNOWN.len());
            KNOWN.iter().for_each(|known| to.bulk(known.name.as_bytes()));
        }
        // So that no answer is many times as long as its command.
        b"info" if named.len() > KNOWN.len() => {
            to.error(format_args!("ERR COMMAND INFO takes at most {} names", KNOWN.len()));
        }
        b"info" if named.len() > 0 => {
            to.array(named.len());
            named.iter().for_each(|name| match find(name) {
                Some(known) => known.describe(to),
                None => to.null(),
            });
        }
        b"info" => list(args.from(args.len()), to),
        // Clients show these texts while somebody types.
        b"docs" => to.map(0),
        _ => to.error(format_args!(
            "ERR unknown subcommand {} of COMMAND; there are COUNT, DOCS, INFO and LIST",
            Shown(part)
        )),
    }
}
