//! Errors of the shared state.

use std::fmt;

/// Why the shared state gave no answer. An error contains no key.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    what: Box<str>,
}

/// The kinds of errors. Metrics count each kind by its name.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `address`: the address is invalid.
    Address,
    /// `unreachable`: there is no connection.
    Unreachable,
    /// `timeout`: no answer came in time. The server may have charged the request.
    Timeout,
    /// `breaker`: the limiter did not call the server, because calls failed just before.
    Breaker,
    /// `refused`: the server answered with an error, for example out of memory, a read-only replica, or a Cluster that
    /// is down.
    Refused,
    /// `reply`: the answer is not from a script of this package, or Redis holds other data under this key.
    Reply,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Address, Self::Unreachable, Self::Timeout, Self::Breaker, Self::Refused, Self::Reply];

    /// Returns the name of this kind in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// Returns whether the server failed, so that calls should pause. With the other kinds the server runs, or a pause repairs
    /// nothing.
    #[must_use]
    pub const fn is_of_server(self) -> bool {
        match self {
            Self::Timeout | Self::Unreachable | Self::Refused => true,
            Self::Address | Self::Breaker | Self::Reply => false,
        }
    }

    /// The name, and the text in error messages.
    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Address => ("address", "invalid server address"),
            Self::Unreachable => ("unreachable", "the server cannot be reached"),
            Self::Timeout => ("timeout", "the server did not answer in time"),
            Self::Breaker => ("breaker", "the circuit breaker is open"),
            Self::Refused => ("refused", "the server refused the command"),
            Self::Reply => ("reply", "unexpected reply from the server"),
        }
    }
}

impl Error {
    /// Creates an error. `what` says more than the kind, and contains no key and no password. It may be empty.
    pub fn new(kind: ErrorKind, what: impl Into<Box<str>>) -> Self {
        Self { kind, what: what.into() }
    }

    /// Returns the kind of this error.
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

tollgate::internals::debug_shows_message!(Error);

impl std::error::Error for Error {}
