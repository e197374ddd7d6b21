//! What can end a run, and with which exit code.

use std::fmt;
use std::io;

/// Why the program stops early.
#[derive(Debug)]
pub enum Error {
    /// The command line asks for something that cannot be (exit code 2).
    Usage(String),
    /// Input, output or the run itself failed (exit code 1).
    Run(String),
    /// The reader of our output went away, as `head` does. Nothing is wrong, so nothing is said (exit code 0).
    BrokenPipe,
}

impl Error {
    /// A failure of the run, in words.
    pub fn run(message: impl Into<String>) -> Self {
        Self::Run(message.into())
    }

    /// A command line that cannot be obeyed, in words.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// A failed write to `target`.
    pub fn writing(target: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Run(format!("cannot write {target}: {}", plain(error))),
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Run(_) => 1,
            Self::BrokenPipe => 0,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Run(message) => f.write_str(message),
            Self::BrokenPipe => f.write_str("the output was closed"),
        }
    }
}

/// An I/O error's text without the "(os error 2)" that helps nobody.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
