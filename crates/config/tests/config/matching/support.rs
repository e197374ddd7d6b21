//! A helper that makes a domain from a text.

use tollgate_config::Domain;

use crate::files::config;
#[track_caller]
pub(crate) fn domain(text: &str) -> Domain {
    Domain::merge([config(text)], false).unwrap().remove(0)
}
