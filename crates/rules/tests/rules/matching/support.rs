//! A helper that makes a domain from a text.

use tollgate_rules::{Config, Domain};

#[track_caller]
pub(crate) fn domain(text: &str) -> Domain {
    let config = Config::from_yaml("test.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Domain::merge([config], false).unwrap().remove(0)
}
