//! The command line of this process, and what is wrong with it.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};

use crate::output::say;

/// Parses the command line of this process. If it is wrong, prints the reason and ends the process.
pub fn read<P: Parser>() -> P {
    P::try_parse_from(line()).unwrap_or_else(|error| {
        let error = with_optional_files::<P>(with_variable::<P>(error));
        if !error.use_stderr() {
            error.exit();
        }
        say(&error.render().ansi().to_string());
        std::process::exit(error.exit_code())
    })
}

/// Returns this process's command line. Under the name `ratelimit`, the program is the service: gateways start the Go
/// service by this name.
pub fn line() -> Vec<OsString> {
    let mut line: Vec<OsString> = std::env::args_os().collect();
    let name = line.first().and_then(|program| std::path::Path::new(program).file_name());
    if name.is_some_and(|name| name == "ratelimit") {
        line.insert(1, "serve".into());
    }
    line
}

/// Returns the command of this process's command line, and the arguments after its name.
fn subcommand_of_line<P: CommandFactory>() -> (clap::Command, impl Iterator<Item = OsString>) {
    let mut command = P::command();
    let mut line = line().into_iter().skip(1).peekable();
    while let Some(next) = line.peek().and_then(|word| command.find_subcommand(word)) {
        command = next.clone();
        line.next();
    }
    (command, line)
}

/// Shows a file that may be left out as optional. In the usage of an error, each argument that was given looks required.
fn with_optional_files<P: CommandFactory>(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return error };
    let mut usage = usage.ansi().to_string();
    let (command, _) = subcommand_of_line::<P>();
    for files in command.get_positionals().filter(|files| !files.is_required_set()) {
        for name in files.get_value_names().unwrap_or_default() {
            usage = usage.replace(&format!("<{name}>..."), &format!("[{name}]..."));
        }
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
    error
}

/// Returns the flag that an error is about, such as `--grpc`.
pub fn flag_of(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(shown)) => shown.split(' ').next(),
        _ => None,
    }
}

/// Adds the variable that a wrong value is from, if it is not from the command line.
fn with_variable<P: CommandFactory>(mut error: clap::Error) -> clap::Error {
    if let Some(name) = variable_of::<P>(&error) {
        let tip = format!("the value is from the variable {name}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn variable_of<P: CommandFactory>(error: &clap::Error) -> Option<String> {
    let flag = flag_of(error)?;
    let (command, mut line) = subcommand_of_line::<P>();
    if line.any(|arg| arg.to_string_lossy().split('=').next() == Some(flag)) {
        return None;
    }
    let arg = command.get_arguments().find(|arg| arg.get_long() == flag.strip_prefix("--"))?;
    Some(arg.get_env()?.to_string_lossy().into_owned())
}
