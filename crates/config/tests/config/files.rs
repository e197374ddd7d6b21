//! Files of rules.

use tollgate_config::Config;

/// Reads a file that has no problem.
#[track_caller]
pub(crate) fn config(text: &str) -> Config {
    Config::from_yaml("test.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns a file of the domain `d` with `tollgate: {}` and these descriptors. Each of them is the fields of one, or lines of
/// YAML that begin with a line break.
pub(crate) fn file(descriptors: &[&str]) -> String {
    let lines = descriptors.iter().map(|one| match one.strip_prefix('\n') {
        Some(lines) => lines.to_owned(),
        None => format!("  - {{ {one} }}\n"),
    });
    format!("domain: d\ntollgate: {{}}\ndescriptors:\n{}", lines.collect::<String>())
}
