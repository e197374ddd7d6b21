//! The failures that end a run, and their exit codes.

use std::fmt;
use std::io;
use std::path::Path;

/// The reason why the program stops early.
#[derive(Debug)]
pub enum Error {
    /// The command line is invalid (exit code 2).
    Usage(String),
    /// Input, output or the run itself failed (exit code 1).
    Run(String),
    /// The service ended, and had to cut off connections (exit code 3).
    CutOff(String),
    /// The results are those of a part of the input (exit code 3).
    Partly(String),
    /// The reader of the output closed it, as `head` does. This is not an error, so no message is printed (exit code
    /// 0).
    BrokenPipe,
}

impl Error {
    /// Creates a failure of the run from a message.
    pub fn run(message: impl Into<String>) -> Self {
        Self::Run(message.into())
    }

    /// Creates an invalid-command-line error from a message.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Creates the error of a command that this program was built without. `feature` adds it.
    pub fn left_out(what: &str, feature: &str) -> Self {
        Self::Usage(format!(
            "this program was built without {what}; build it with `cargo install --path crates/cli --features {feature}`"
        ))
    }

    /// Creates the error of a failed write to `target`.
    pub fn writing(target: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Run(format!("cannot write {target}: {}", plain(error))),
        }
    }

    /// Returns the process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Run(_) => 1,
            Self::CutOff(_) | Self::Partly(_) => 3,
            Self::BrokenPipe => 0,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Run(message) => f.write_str(message),
            Self::CutOff(message) | Self::Partly(message) => f.write_str(message),
            Self::BrokenPipe => f.write_str("the output was closed"),
        }
    }
}

/// Reads a file.
///
/// # Errors
/// If it cannot be read. The text names the file.
pub fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {}: {}", path.display(), plain(&error)))
}

/// Returns an I/O error's text without "(os error 2)".
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
