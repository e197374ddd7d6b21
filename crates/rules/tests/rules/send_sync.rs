//! Every public type can be shared between threads and implements `Debug`, and errors show their message.

use std::fmt::Debug;

use tollgate::ManualClock;
use tollgate_rules::{
    Answer, Applied, Config, ConfigError, Descriptor, Descriptors, Domain, Format, LoadReport, Rule, Rules,
    RulesError,
};

fn shared<T: Send + Sync + Debug + 'static>() {}
fn value<T: Send + Sync + Debug + Clone + 'static>() {}

#[test]
fn rules_are_shareable_and_printable() {
    shared::<Rules>();
    shared::<Rules<ManualClock>>();
    shared::<Answer>();
    shared::<Domain>();
    shared::<Applied<'static>>();
    value::<Config>();
    value::<ConfigError>();
    value::<RulesError>();
    value::<LoadReport>();
    value::<Rule>();
    value::<Descriptors>();
    value::<Descriptor<'static>>();
}

/// A program whose `main` returns an error prints its `Debug`.
#[test]
fn debug_of_errors_is_message() {
    fn message(error: impl std::error::Error) {
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(!error.to_string().is_empty());
    }
    message(Config::from_yaml("limits.yaml", "domain: [").unwrap_err());
    message(Rules::from_yaml("domain: [").unwrap_err());
    message("xml".parse::<Format>().unwrap_err());
}
