//! What a shell and `man` read about the program: completions and manual pages, from the definition of the command line.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use tollgate_report::error::Error;
use tollgate_report::output::print;

/// Prints the script that completes the command line in a shell.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub fn completions(shell: Shell) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tollgate", &mut script);
    print(&script)
}

/// Prints the manual page of the program, or writes the pages of the program and of each command into a folder.
///
/// # Errors
/// Returns an error if the output cannot be written.
pub fn man(folder: Option<&Path>) -> Result<(), Error> {
    // The command `help` needs no page.
    let command = Cli::command().disable_help_subcommand(true);
    match folder {
        None => {
            let mut page = Vec::new();
            let rendered = Man::new(command).render(&mut page);
            rendered.map_err(|error| Error::writing("the page", &error))?;
            print(&page)
        }
        Some(folder) => fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command, folder))
            .map_err(|error| Error::writing(&folder.display().to_string(), &error))
            .and_then(|()| print(format!("The manual pages are in {}\n", folder.display()).as_bytes())),
    }
}
