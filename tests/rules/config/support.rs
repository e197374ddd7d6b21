//! Reading texts, and looking at what is said of them.

use tollgate::rules::Config;

#[track_caller]
pub(crate) fn good(text: &str) -> Config {
    Config::from_yaml("test.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// What is said of a text that is refused, a line each.
#[track_caller]
pub(crate) fn bad(text: &str) -> Vec<String> {
    match Config::from_yaml("test.yaml", text) {
        Ok(config) => panic!("this was read: {text}\n{config:?}"),
        Err(error) => error.problems().iter().map(ToString::to_string).collect(),
    }
}

/// That exactly these things are wrong, each said with all of its parts.
#[track_caller]
pub(crate) fn refused(text: &str, problems: &[&[&str]]) {
    let said = bad(text);
    assert_eq!(said.len(), problems.len(), "{text}\n{said:#?}");
    for (said, parts) in said.iter().zip(problems) {
        for part in *parts {
            assert!(said.contains(part), "{part:?} is not in {said:?}");
        }
    }
}

/// A file with this in the place of a `rate_limit`, in our own language.
pub(crate) fn limit(fields: &str) -> String {
    format!("domain: d\ntollgate: {{}}\ndescriptors:\n  - key: a\n    rate_limit: {{ {fields} }}\n")
}
