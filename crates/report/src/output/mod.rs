//! Standard output and standard error: messages, lines that fit the terminal, tables, and JSON.

pub mod table;
pub mod wrap;

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use crate::error::Error;
use crate::text::printable_lines;

/// The style of pages.
pub const STYLE: &str = include_str!("page.css");

/// Prints a message to standard error, in lines that fit the terminal; if it is closed, the message is dropped.
///
/// Codes for colours are left out if it is no terminal, or if `NO_COLOR` is set.
pub fn say(text: &str) {
    let _ = anstream::stderr().lock().write_all(wrap::for_stderr(text).as_bytes());
}

/// Prints an error to standard error. It may have text from others, which must not control the terminal.
pub fn say_error(error: impl fmt::Display) {
    say(&format!("\x1b[1m\x1b[31merror:\x1b[0m {}\n", printable_lines(&error.to_string())));
}

/// Prints a warning to standard error.
pub fn say_warning(warning: impl fmt::Display) {
    say(&format!("\x1b[1m\x1b[33mwarning:\x1b[0m {}\n", printable_lines(&warning.to_string())));
}

/// Prints text to standard error as it is; if it is closed, the text is dropped.
pub fn say_unchanged(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Returns any value as indented JSON with a final line end. A terminal shows it as it is: JSON itself escapes only the controls below a
/// space.
pub fn to_json(value: &Value) -> String {
    let escaped = |text: String, c: char| text.replace(c, &format!("\\u{:04x}", u32::from(c)));
    ('\u{7f}'..='\u{9f}').fold(format!("{value:#}\n"), escaped)
}

/// Merges the members of all these objects; a value that is not an object has none.
pub fn merged<const N: usize>(parts: [Value; N]) -> Value {
    parts
        .iter()
        .filter_map(Value::as_object)
        .flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Writes to a file, or to standard output for `-`.
///
/// # Errors
/// Returns an error if writing fails; a reader that closed the output is [`Error::BrokenPipe`].
pub fn write_to(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if path.as_os_str() == "-" {
        return print(bytes);
    }
    fs::write(path, bytes).map_err(|error| Error::writing(&path.display().to_string(), &error))
}

/// Writes lines of text to standard output. They fit the terminal.
///
/// # Errors
/// The same as for [`write_to`].
pub fn print_lines(text: &str) -> Result<(), Error> {
    print(wrap::for_stdout(text).as_bytes())
}

/// Writes to standard output.
///
/// # Errors
/// The same as for [`write_to`].
pub fn print(bytes: &[u8]) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|error| Error::writing("standard output", &error))
}

/// Prints the error of a run, and returns the exit code of the process.
pub fn end(result: Result<(), Error>) -> ExitCode {
    match result {
        // A reader that closed the output is not an error.
        Ok(()) | Err(Error::BrokenPipe) => ExitCode::SUCCESS,
        Err(error) => {
            say_error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}
