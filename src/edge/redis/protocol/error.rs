//! What can fail.

use std::fmt;

/// Why the shared state gave no answer. No key is told.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    what: Box<str>,
}

/// The kinds of failures; each is counted by its name.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `address`: the address is none.
    Address,
    /// `unreachable`: there is no connection.
    Unreachable,
    /// `timeout`: no answer came in time. It may have been charged.
    Timeout,
    /// `breaker`: the server was not asked, since it has failed just now.
    Breaker,
    /// `refused`: the server answered with an error: out of memory, a replica, a cluster that is down.
    Refused,
    /// `reply`: the answer is none of ours, or something else is kept under this key.
    Reply,
}

impl ErrorKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Address, Self::Unreachable, Self::Timeout, Self::Breaker, Self::Refused, Self::Reply];

    /// Its name, for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// Its name, and what errors say of it.
    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Address => ("address", "no address of a server"),
            Self::Unreachable => ("unreachable", "the server cannot be reached"),
            Self::Timeout => ("timeout", "the server did not answer in time"),
            Self::Breaker => ("breaker", "the server is not asked after failures"),
            Self::Refused => ("refused", "the server refused"),
            Self::Reply => ("reply", "the server has what is none of ours"),
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<Box<str>>) -> Self {
        Self { kind, what: what.into() }
    }

    /// Of which kind it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.texts().1)?;
        if self.what.is_empty() { Ok(()) } else { write!(f, ": {}", self.what) }
    }
}

impl std::error::Error for Error {}
