//! Progress bars on standard error; nothing unless that is a terminal.

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};

/// How many bytes files have together; `None` if that is not known, as of standard input and of pipes.
pub fn size(files: &[PathBuf]) -> Option<u64> {
    let size = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok().filter(|_| path.as_os_str() != "-")?;
        metadata.is_file().then_some(metadata.len())
    };
    files.iter().map(size).sum()
}

/// For input whose length is not known: how much was read.
pub fn bar_of_bytes() -> ProgressBar {
    styled(ProgressBar::no_length(), "{prefix:>9} {spinner} {binary_bytes} {msg}").with_prefix("reading")
}

/// For work of a known length.
pub fn bar(length: u64, prefix: &'static str) -> ProgressBar {
    styled(ProgressBar::new(length), "{prefix:>9} {wide_bar} {percent:>3} % {msg}").with_prefix(prefix)
}

/// For a search, of which no one knows how many replays it takes.
pub fn bar_of_tries() -> ProgressBar {
    styled(ProgressBar::no_length(), "{spinner} trying {msg}")
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_have_a_size_to_reach() {
        let file: PathBuf = env!("CARGO_MANIFEST_PATH").into();
        let bytes = std::fs::metadata(&file).unwrap().len();
        assert_eq!(size(&[file.clone(), file.clone()]), Some(2 * bytes));
        assert_eq!(size(&[file, "-".into()]), None);
        assert_eq!(size(&["/dev/null".into()]), None);
        // So there is no part of it to show.
        assert_eq!(bar_of_bytes().length(), None);
        assert_eq!(bar(7, "reading").length(), Some(7));
    }
}
