//! The examples of the rules guide load, and they behave as the guide describes.

use tollgate_config::{Config, ConfigError, Domain, Rule};

const GUIDE: &str = include_str!("../../../../../docs/rules.md");

/// Returns the code blocks of the guide in this language.
fn examples(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    GUIDE.split(&*fence).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn rules_guide_examples_load_without_warnings() {
    type Read = fn(&str, &str) -> Result<Config, ConfigError>;
    let formats: [(&str, usize, Read); 3] =
        [("yaml", 3, Config::from_yaml), ("toml", 1, Config::from_toml), ("json", 1, Config::from_json)];
    for (language, count, read) in formats {
        let texts = examples(language);
        assert_eq!(texts.len(), count, "{language}");
        for text in texts {
            let config = read("guide", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert!(config.warnings().is_empty(), "{:?}", config.warnings());
            assert!(!config.rules().is_empty());
        }
    }
}

// G66
#[test]
fn rules_guide_examples_behave_as_described() {
    let domains: Vec<Domain> = examples("yaml")
        .into_iter()
        .map(|text| Domain::merge([Config::from_yaml("guide", text).unwrap()], false).unwrap().remove(0))
        .collect();
    let found = |at: usize, entries: &[(&str, &str)], tier| {
        domains[at].matching(entries, tier).iter().map(|rule| rule.identity.to_string()).collect::<Vec<_>>()
    };
    assert!(found(0, &[("path", "/login")], None).is_empty());
    assert!(found(0, &[("remote_address", "198.51.100.20")], None).is_empty());
    assert_eq!(found(0, &[("path", "/v1/a")], None), ["edge|path=/v1/*"]);
    assert_eq!(found(1, &[("user", "joe")], None), ["api|user#unit=second", "api|user#unit=hour"]);
    assert_eq!(found(1, &[("user", "acme")], None), ["api|user#tier=premium"]);
    let shared: Vec<bool> = domains[2].rules().iter().map(Rule::is_shared).collect();
    assert_eq!(shared, [true, true, false]);
    assert_eq!(found(1, &[("user", "acme")], Some("partner")), ["api|user#tier=partner"]);
}
