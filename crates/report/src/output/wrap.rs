//! Text that fits the terminal: lines end between words.

use std::env;
use std::io::{self, IsTerminal as _};

use terminal_size::terminal_size_of;
use unicode_width::UnicodeWidthStr as _;

/// The most columns of a line of text. Longer lines are hard to read, also on a wide terminal.
const MOST: usize = 80;
/// The least columns: on a narrower terminal, lines are longer than the terminal is wide.
const LEAST: usize = 20;
/// The width of the labels of a summary, such as `Replayed `. The text after a label continues below itself.
const LABEL: usize = 9;

/// Returns the columns of the terminal on standard output: from `COLUMNS`, or from the terminal; `None` without either.
pub fn columns_of_stdout() -> Option<usize> {
    columns(|| terminal_size_of(io::stdout()).filter(|_| io::stdout().is_terminal()))
}

fn columns_of_stderr() -> Option<usize> {
    columns(|| terminal_size_of(io::stderr()).filter(|_| io::stderr().is_terminal()))
}

type Size = (terminal_size::Width, terminal_size::Height);

fn columns(terminal: impl FnOnce() -> Option<Size>) -> Option<usize> {
    let said = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.or_else(|| terminal().map(|(width, _)| usize::from(width.0))).filter(|&width| width > 0)
}

/// Wraps a text if standard output is a terminal.
pub fn for_stdout(text: &str) -> String {
    columns_of_stdout().map_or_else(|| text.to_owned(), |columns| wrapped(text, columns))
}

/// Wraps a text if standard error is a terminal.
pub fn for_stderr(text: &str) -> String {
    columns_of_stderr().map_or_else(|| text.to_owned(), |columns| wrapped(text, columns))
}

/// Breaks lines that are longer than a terminal is wide, or longer than 80 columns, between words. A longer word, such as a
/// path, stays whole.
pub fn wrapped(text: &str, columns: usize) -> String {
    let most = columns.clamp(LEAST, MOST);
    let mut wrapped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if width(line) <= most {
            wrapped += line;
        } else {
            wrap_line(line, most, &mut wrapped);
        }
    }
    wrapped
}

fn wrap_line(line: &str, most: usize, wrapped: &mut String) {
    let below = " ".repeat(indent(line));
    let (mut used, mut is_first) = (0, true);
    // Each word has its spaces behind it; those at the end of a line are dropped.
    for word in line.trim_start_matches(' ').split_inclusive(' ') {
        let columns = width(word.trim_end());
        if is_first {
            let spaces = line.len() - line.trim_start_matches(' ').len();
            *wrapped += &line[..spaces];
            used = spaces;
        } else if used + columns > most && columns > 0 {
            wrapped.truncate(wrapped.trim_end_matches(' ').len());
            wrapped.push('\n');
            *wrapped += &below;
            used = below.len();
        }
        *wrapped += word;
        used += width(word);
        is_first = false;
    }
}

/// Returns the spaces before the lines that continue a line.
fn indent(line: &str) -> usize {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    let label = line.get(..LABEL).unwrap_or_default();
    let is_label = label.starts_with(|c: char| c.is_ascii_uppercase())
        && label.ends_with(' ')
        && label.trim_end().bytes().all(|b| b.is_ascii_alphabetic())
        && !line[LABEL..].starts_with(' ');
    match spaces {
        0 if is_label => LABEL,
        LABEL => LABEL,
        0 if line.starts_with(|c: char| c.is_ascii_uppercase() || c == '(') => 0,
        spaces => spaces + 2,
    }
}

/// Returns the columns that a text takes on a terminal, without those of the codes for colours.
fn width(text: &str) -> usize {
    let mut parts = text.trim_end_matches('\n').split("\x1b[");
    let plain = parts.next().map_or(0, str::width);
    plain + parts.map(|part| part.split_once('m').map_or(0, |(_, text)| text.width())).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words() {
        let text = "Input    one two three four five\nshort\n  a: one two three four five\n";
        let expected =
            "Input    one two three\n         four five\nshort\n  a: one two three four\n    five\n";
        assert_eq!(wrapped(text, 24), expected);
        assert_eq!(wrapped(text, 80), text);
        // A long word stays whole.
        let path = "/a/very/long/path/of/a/file/";
        assert_eq!(
            wrapped(&format!("error: {path} is missing"), 20),
            format!("error:\n  {path}\n  is missing")
        );
        assert_eq!(wrapped("Memory is enough: it is", 20), "Memory is enough: it\nis");
        // Also on a wide terminal, lines have at most 80 columns.
        assert!(wrapped(&"word ".repeat(60), 200).lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn columns_are_those_of_the_screen() {
        assert_eq!(width("\x1b[1m\x1b[31merror:\x1b[0m\n"), 6);
        assert_eq!(width("日本"), 4);
    }
}
