//! Progress bars on standard error, only if it is a terminal.

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns the total bytes of files; `None` if it is unknown, as for standard input and pipes.
pub fn size(files: &[PathBuf]) -> Option<u64> {
    let size = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok().filter(|_| path.as_os_str() != "-")?;
        metadata.is_file().then_some(metadata.len())
    };
    files.iter().map(size).sum()
}

/// A bar for input of unknown length: shows the bytes read.
pub fn bar_of_bytes() -> ProgressBar {
    styled(ProgressBar::no_length(), "{prefix:>9} {spinner} {binary_bytes} {msg}").with_prefix("reading")
}

/// A bar for work of a known length.
pub fn bar(length: u64, prefix: &'static str) -> ProgressBar {
    styled(ProgressBar::new(length), "{prefix:>9} {wide_bar} {percent:>3} % {msg}").with_prefix(prefix)
}

/// A bar for a search, whose number of replays is not known in advance.
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
    fn only_regular_files_have_size() {
        let file: PathBuf = env!("CARGO_MANIFEST_PATH").into();
        let bytes = std::fs::metadata(&file).unwrap().len();
        assert_eq!(size(&[file.clone(), file.clone()]), Some(2 * bytes));
        assert_eq!(size(&[file, "-".into()]), None);
        assert_eq!(size(&["/dev/null".into()]), None);
        // Without a known size, the bar shows no fraction.
        assert_eq!(bar_of_bytes().length(), None);
        assert_eq!(bar(7, "reading").length(), Some(7));
    }
}
