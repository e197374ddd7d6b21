//! Helpers that read a text and compare the messages.

use tollgate_config::Config;

pub(crate) use crate::files::{config as good, file};

/// Reads a text that must be rejected, and returns the messages, one string per problem.
#[track_caller]
pub(crate) fn bad(text: &str) -> Vec<String> {
    match Config::from_yaml("test.yaml", text) {
        Ok(config) => panic!("this text must be rejected, but it was accepted: {text}\n{config:?}"),
        Err(error) => error.problems().iter().map(ToString::to_string).collect(),
    }
}

/// Asserts that the reader reports one problem for each line, whose message contains all parts of the line: see [`contain`].
#[track_caller]
pub(crate) fn problem(text: &str, said: &str) {
    contain(&bad(text), said);
}

/// Asserts that there are as many messages as lines `PART ... PART`, and that each message contains all of its parts.
#[track_caller]
pub(crate) fn contain(messages: &[String], said: &str) {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(messages.len(), lines.len(), "{messages:#?}");
    for (message, line) in messages.iter().zip(lines) {
        for part in line.split(" ... ") {
            assert!(message.contains(part), "expected {part:?} in the message {message:?}");
        }
    }
}

/// Returns a file with `tollgate: {}` and one rule, whose `rate_limit` has these fields.
pub(crate) fn limit(fields: &str) -> String {
    format!("domain: d\ntollgate: {{}}\ndescriptors:\n  - key: a\n    rate_limit: {{ {fields} }}\n")
}

/// Checks each row of a table: `FIELDS => PART ... PART`. The reader reports one problem in the file that `file` makes of the
/// fields, and its message contains all parts; ` ...` at the end of a row stands for further problems. A row can go on in a
/// second line, and `\n` in it is a line break.
#[track_caller]
pub(crate) fn rejected(rows: &str, file: impl Fn(&str) -> String) {
    let rows = rows.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    for row in rows.replace("\n=> ", " => ").replace("\n... ", " ... ").lines() {
        let (fields, said) = row.split_once(" => ").unwrap_or_else(|| panic!("a row has no message: {row}"));
        let problems = bad(&file(&fields.replace(r"\n", "\n")));
        let (parts, more) = said.strip_suffix(" ...").map_or((said, false), |parts| (parts, true));
        assert!(more || problems.len() == 1, "{row}: {problems:#?}");
        let has = |part: &str| problems.iter().any(|problem| problem.contains(part));
        assert!(parts.split(" ... ").all(has), "{row}: {problems:#?}");
    }
}

/// Checks rows of fields of a `rate_limit` that follow these ones. Each message has the path of the `rate_limit`.
#[track_caller]
pub(crate) fn rejected_limits(before: &str, rows: &str) {
    let rows = rows.replace(" => ", " => descriptors[0].rate_limit ... ");
    rejected(&rows, |fields| limit(&format!("{before}{fields}")));
}
