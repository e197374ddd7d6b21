//! Loads rules from text in any format. Loading never panics, every error names the place, and loaded rules can be
//! matched.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use tollgate_config::{Config, Domain};

// G64, G68, G90, G123
fuzz_target!(|data: &[u8]| -> Corpus {
    let Some((&format, text)) = data.split_first() else { return Corpus::Reject };
    let Ok(text) = std::str::from_utf8(text) else { return Corpus::Reject };
    let read = match format % 3 {
        0 => Config::from_yaml("fuzz", text),
        1 => Config::from_json("fuzz", text),
        _ => Config::from_toml("fuzz", text),
    };
    match read {
        Ok(config) => {
            for warning in config.warnings() {
                assert!(warning.line() > 0 && !warning.message().is_empty(), "{warning}");
            }
            // Requests whose identities use the words of the rules.
            let words: Vec<String> =
                config.rules().iter().take(8).map(|rule| rule.identity.to_string()).collect();
            let domain = Domain::merge([config], true).expect("one file cannot clash with itself").remove(0);
            for word in &words {
                let mut entries: Vec<(&str, &str)> =
                    word.split('|').skip(1).map(|step| step.split_once('=').unwrap_or((step, "x"))).collect();
                let own = entries.last().map_or("x", |(_, value)| *value);
                // Addresses too, for ranges and prefixes. A rule of a range has the range as its value.
                let inside = own.trim_start_matches('=').split('/').next().unwrap_or_default();
                for value in [own, inside, "10.1.2.3", "2001:db8::1", "::ffff:10.1.2.3"] {
                    entries.last_mut().into_iter().for_each(|entry| entry.1 = value);
                    let rules = domain.matching(&entries, Some("premium"));
                    assert!(rules.len() <= domain.rules().len());
                    rules.iter().for_each(|rule| assert!(rule.metric_name("d", &entries).starts_with("d.")));
                }
            }
        }
        Err(error) => {
            assert!(!error.problems().is_empty());
            for problem in error.problems() {
                // A line of the file, or the number of lines left out.
                assert!(problem.line() > 0 || problem.message().starts_with("and "), "{problem}");
                assert!(problem.line() <= text.split(['\n', '\r']).count() + 1, "{problem}");
            }
        }
    }
    Corpus::Keep
});
