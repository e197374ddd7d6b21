//! Reads the requests that the command line names.

use std::path::Path;

use indicatif::ProgressBar;

use crate::error::Error;
use crate::input::{self, Selection, Trace};
use crate::output::progress::{bar, bar_of_bytes, size};
use crate::synthetic;

/// The requests to work on: those of the files, or the made-up day.
pub fn requests(input: &Selection, json: Option<&Path>) -> Result<Trace, Error> {
    if input.files.is_empty() {
        return Ok(synthetic::day());
    }
    with_bar(input, json, |progress| input::load(input, progress))
}

/// Reads files, while a bar shows how far that is.
pub fn with_bar(
    input: &Selection,
    json: Option<&Path>,
    load: impl FnOnce(&ProgressBar) -> Result<Trace, Error>,
) -> Result<Trace, Error> {
    let progress = match size(&input.files) {
        Some(size) => bar(size, "reading"),
        None => bar_of_bytes(),
    };
    let trace = load(&progress);
    progress.finish_and_clear();
    match (trace, &input.files[..]) {
        // `--json out.json` names a second input, which is seldom what was meant.
        (Err(Error::Run(message)), [_, .., last])
            if json == Some(Path::new("-"))
                && last.extension().is_some_and(|extension| extension == "json") =>
        {
            Err(Error::Run(format!(
                "{message}\n(to write JSON to a file, join it by =, as in --json={})",
                last.display()
            )))
        }
        (trace, _) => trace,
    }
}
