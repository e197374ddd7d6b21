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
    contain(&bad(text), problems);
}

/// Asserts that there are as many messages as lists of parts, and that each message contains all of its parts.
#[track_caller]
pub(crate) fn contain(messages: &[String], parts: &[&[&str]]) {
    assert_eq!(messages.len(), parts.len(), "{messages:#?}");
    for (message, parts) in messages.iter().zip(parts) {
        for part in *parts {
            assert!(message.contains(part), "expected {part:?} in the message {message:?}");
        }
    }
}

/// Asserts that the reader reports one problem, and that its message contains all of these parts.
#[track_caller]
pub(crate) fn problem(text: &str, parts: &[&str]) {
    refused(text, &[parts]);
}

/// Returns a file with `tollgate: {}` and one rule, whose `rate_limit` has these fields.
pub(crate) fn limit(fields: &str) -> String {
    format!("domain: d\ntollgate: {{}}\ndescriptors:\n  - key: a\n    rate_limit: {{ {fields} }}\n")
}
