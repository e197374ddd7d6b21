//! Errors of loads whose files are valid: they name the rule and its file.

use tollgate_rules::{Config, Descriptor, Rules};

use super::{config, file, one};

#[test]
fn missing_redis_server_error_names_rule() {
    let config = config(&one("{ unit: day, requests_per_unit: 100, store: redis }"));
    let error = Rules::builder().load([config.clone()]).unwrap_err().to_string();
    for part in ["test.yaml:1:", "\"d|a\"", "store: redis", "was given no server"] {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
    // The limiter counts in this process.
    let alone = Rules::builder().alone(true).load([config]).unwrap();
    let answer = alone.check("d", &[Descriptor::new(&[("a", "x")])]);
    assert_eq!(answer.limits().map(|limit| limit.remaining()).collect::<Vec<_>>(), [99]);
}

/// Cause: the error of a rule's store named only a line. Symptom: with several files, the message did not show which
/// file to correct.
#[test]
fn load_error_names_rule_file() {
    let file = |name: &str, key: &str, store: &str| {
        let rule = format!("key: {key}, rate_limit: {{ unit: day, requests_per_unit: 1{store} }}");
        Config::from_yaml(name, &file(&[&rule])).expect("the file is valid")
    };
    for merged in [false, true] {
        let none = Config::from_yaml("none.yaml", if merged { "domain: d" } else { "domain: e" })
            .expect("the file is valid");
        let mut files = vec![none, file("two.yaml", "b", ", store: redis")];
        if merged {
            files.insert(0, file("one.yaml", "a", ""));
            files.push(file("three.yaml", "c", ""));
        }
        let error = Rules::builder().merge_domains(merged).load(files).unwrap_err().to_string();
        assert!(error.starts_with("two.yaml:4: rule \"d|b\" has store: redis"), "{error}");
    }
}
