//! Helpers that read a text and compare the messages.

use tollgate_rules::Config;

#[track_caller]
pub(crate) fn good(text: &str) -> Config {
    Config::from_yaml("test.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Reads a text that must be rejected, and returns the messages, one string per problem.
#[track_caller]
pub(crate) fn bad(text: &str) -> Vec<String> {
    match Config::from_yaml("test.yaml", text) {
        Ok(config) => panic!("this text must be rejected, but it was accepted: {text}\n{config:?}"),
        Err(error) => error.problems().iter().map(ToString::to_string).collect(),
    }
}

/// Asserts that the reader reports exactly these problems, and that each message contains all of its parts.
#[track_caller]
pub(crate) fn refused(text: &str, problems: &[&[&str]]) {
    let said = bad(text);
    assert_eq!(said.len(), problems.len(), "{text}\n{said:#?}");
    for (said, parts) in said.iter().zip(problems) {
        for part in *parts {
            assert!(said.contains(part), "expected {part:?} in the message {said:?}");
        }
    }
}

/// Returns a file with `tollgate: {}` and one rule, whose `rate_limit` has these fields.
pub(crate) fn limit(fields: &str) -> String {
    format!("domain: d\ntollgate: {{}}\ndescriptors:\n  - key: a\n    rate_limit: {{ {fields} }}\n")
}
