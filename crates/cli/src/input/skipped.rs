//! The lines that gave no record, grouped by their reason.

use std::ops::Range;

use tollgate_report::human;
use tollgate_report::text::printable;

/// The number of reasons that are kept.
const REASONS: usize = 5;

/// The number of lines whose numbers are kept for each reason.
const FIRST: usize = 3;

/// The skipped lines of all inputs.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    lines: u64,
    reasons: Vec<SkipReason>,
}

/// The lines of one input that were skipped for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkipReason {
    /// The input.
    pub file: String,
    /// The reason, as that of the first of the lines.
    pub reason: String,
    /// How many lines were skipped for it.
    pub lines: u64,
    /// The numbers of the first lines, from 1.
    pub first: Vec<u64>,
    /// The first line.
    pub example: String,
    /// The reason without the parts that differ from line to line.
    kind: String,
}

impl Skipped {
    /// Returns the number of skipped lines.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Returns the first reasons.
    pub fn reasons(&self) -> &[SkipReason] {
        &self.reasons
    }

    /// Counts the lines of what was no record, and asks for its text only if its reason is new.
    pub fn add(&mut self, file: &str, lines: Range<u64>, reason: String, text: impl FnOnce() -> Vec<u8>) {
        let (line, lines) = (lines.start, lines.end.saturating_sub(lines.start).max(1));
        self.lines += lines;
        let kind = kind_of(&reason);
        let known = self.reasons.iter_mut().find(|known| known.kind == kind && known.file == file);
        if let Some(known) = known {
            known.lines += lines;
            if known.first.len() < FIRST {
                known.first.push(line);
            }
        } else if self.reasons.len() < REASONS {
            let (file, example) = (file.to_owned(), printable(&text(), 120));
            self.reasons.push(SkipReason { file, reason, lines, first: vec![line], example, kind });
        }
    }

    /// Returns the lines of a report: one for each reason.
    pub fn shown(&self) -> String {
        let shown = |reason: &SkipReason| format!("  {}\n", reason.shown());
        let mut text: String = self.reasons.iter().map(shown).collect();
        let others = self.lines - self.reasons.iter().map(|reason| reason.lines).sum::<u64>();
        if others > 0 {
            text += &format!("  {} for other reasons\n", human::counted(others, "line"));
        }
        text
    }
}

impl SkipReason {
    fn shown(&self) -> String {
        let Self { file, reason, lines, first, example, .. } = self;
        if let (1, [line]) = (lines, &first[..]) {
            return format!("{file}:{line}: {reason}: {example}");
        }
        let first: Vec<String> = first.iter().map(u64::to_string).collect();
        format!("{file}: {}: {reason}; first {}: {example}", human::counted(*lines, "line"), first.join(", "))
    }
}

/// Removes texts in quotes and numbers from a reason.
fn kind_of(reason: &str) -> String {
    let (mut kind, mut is_quoted, mut is_escaped) = (String::new(), false, false);
    for letter in reason.chars() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => {
                is_quoted = !is_quoted;
                kind.push(letter);
            }
            _ if is_quoted || letter.is_ascii_digit() => {}
            _ => kind.push(letter),
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_grouped_by_reason() {
        let mut skipped = Skipped::default();
        for line in [3, 9, 14, 20] {
            let reason = format!("the time \"at \\\" {line}\" has no known format");
            skipped.add("log", line..line + 1, reason, || format!("line {line}").into_bytes());
        }
        skipped.add("log", 21..22, "no field \"ip\"".to_owned(), || b"{}".to_vec());
        assert_eq!(
            skipped.shown(),
            "  log: 4 lines: the time \"at \\\" 3\" has no known format; first 3, 9, 14: line 3\n  log:21: no field \"ip\": {}\n"
        );
        for (line, reason) in (30..).zip(["a", "b", "c", "d", "e", "e"]) {
            skipped.add("log", line..line + 1, reason.to_owned(), Vec::new);
        }
        assert_eq!((skipped.lines(), skipped.reasons().len()), (11, 5));
        assert!(
            skipped.shown().ends_with("  log:32: c: \n  3 lines for other reasons\n"),
            "{}",
            skipped.shown()
        );
    }
}
