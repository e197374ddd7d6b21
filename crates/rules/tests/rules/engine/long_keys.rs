//! Values that are longer than a store should hold.

use tollgate_rules::{Config, Descriptor, Rules, TimeUnit};

const RULES: &str = "
domain: edge
tollgate: {}
descriptors:
  - { key: keyed, rate_limit: { unit: year, requests_per_unit: LIMIT, store: keyed } }
  - { key: compact, rate_limit: { unit: year, requests_per_unit: LIMIT } }
  - key: one
    descriptors:
      - { key: other, rate_limit: { unit: year, requests_per_unit: LIMIT, store: keyed } }
";

fn config(limit: &str) -> Config {
    Config::from_yaml("rules", &RULES.replace("LIMIT", limit)).unwrap()
}

// G107
#[test]
fn long_values_are_counted_one_by_one() {
    let rules = Rules::builder().load([config("5")]).unwrap();
    let long = "x".repeat(10_000);
    let longer = [&*long, "y"].concat();
    for key in ["keyed", "compact", "one"] {
        let check = |value: &str| {
            let both = [(key, value), ("other", "")];
            let entries = if key == "one" { &both[..] } else { &both[..1] };
            let descriptors = [Descriptor::new(entries)];
            let answer = rules.check("edge", &descriptors);
            (answer.remaining(0), answer.is_allowed())
        };
        assert_eq!([check(&long), check(&long), check(&longer)], [(4, true), (3, true), (4, true)]);
        let entries = [(key, &*long), ("other", "")];
        let descriptors = [Descriptor::new(if key == "one" { &entries[..] } else { &entries[..1] })];
        let answer = rules.check("edge", &descriptors);
        rules.refund(&descriptors, &answer);
        assert_eq!(check(&long), (2, true), "{key}: the refund found the counter");
        // A limit of the request counts together with the rule.
        let own = [descriptors[0].limit(4, TimeUnit::Year)];
        assert_eq!(rules.check("edge", &own).remaining(0), 0);
        assert!(rules.check("edge", &own).is_denied());
    }
    // A load keeps what the keys have used.
    rules.replace([config("6")]).unwrap();
    for key in ["keyed", "compact"] {
        let answer = rules.check("edge", &[Descriptor::new(&[(key, &*long)])]);
        assert_eq!(answer.remaining(0), 1);
    }
}
