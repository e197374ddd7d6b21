//! What the stores of a fixed size have in common: with enough memory, they decide as the keyed store.

use serde_json::Value;

use crate::support::{Place, results};
use crate::{compact, sketch};

/// A store, and requests. The store denies some of them.
struct Bounded {
    store: &'static str,
    place: fn() -> Place,
    args: &'static str,
    /// Enough memory for these requests.
    ample: &'static str,
    algorithms: &'static [&'static str],
}

const STORES: [Bounded; 2] = [
    Bounded {
        store: "compact",
        place: compact::flood,
        args: compact::FLOOD,
        ample: "1MiB",
        algorithms: &["gcra", "fixed-window", "sliding-window"],
    },
    Bounded {
        store: "sketch",
        place: sketch::crowd,
        args: sketch::BUSY,
        ample: "256KiB",
        algorithms: &sketch::BOTH,
    },
];

fn number(result: &Value, store: &str, field: &str) -> u64 {
    result[store][field].as_u64().unwrap_or_else(|| panic!("no {field} in {result}"))
}

/// Asserts that no decision is wrong.
fn all_right(result: &Value, store: &str) {
    let wrongly = ["wrongly_denied", "wrongly_admitted"].map(|field| number(result, store, field));
    assert_eq!(wrongly, [0, 0], "{result}");
}

#[test]
fn ample_memory_agrees_with_keyed_store() {
    for Bounded { store, place, args, ample, algorithms } in STORES {
        let place = place();
        for strict in ["", "--strict-windows"] {
            let args = format!("replay {args} {strict}");
            let json = place.run(&format!("{args} --store {store} --memory {ample} --json")).json();
            let keyed = place.run(&format!("{args} --json")).json();
            for result in results(&json) {
                all_right(result, store);
                let same = results(&keyed).iter().find(|keyed| keyed["algorithm"] == result["algorithm"]);
                for field in ["admitted", "denied", "never", "keys_denied", "top_denied"] {
                    assert_eq!(result[field], same.unwrap()[field], "{field}: {result}");
                }
                assert!(result["denied"].as_u64().unwrap() > 100, "more than 100 are denied: {result}");
            }
        }
        for algorithm in algorithms {
            let args = format!("{args} --algorithm {algorithm}");
            let bounded = place.decisions(&format!("{args} --store {store} --memory {ample}"));
            assert!(bounded == place.decisions(&args), "{store} {algorithm}");
        }
        let table = place.run(&format!("replay {args} --store {store} --memory {ample}")).ok().stdout;
        assert!(
            table.contains("Memory is enough: every decision is the same as the keyed store's."),
            "{table}"
        );
        assert!(!table.contains("Warning"), "{table}");
    }
}

#[test]
fn several_limits_share_the_memory() {
    for Bounded { store, .. } in STORES {
        let place = Place::new();
        place.file("log", "ts,client\n100,a\n100,a\n101,a\n102,a\n103,a\n110,a\n110,b\n");
        let limits = format!("--limit 1/s --limit 3/10s --store {store}");
        let args = format!("log --algorithm fixed-window {limits} --memory 96KiB");
        // The decisions equal the keyed store's; see `two_limits_charge_all_or_none`.
        assert_eq!(place.decisions(&args), "1011011");
        let result = &place.run(&format!("replay {args} --json")).json()["results"][0];
        all_right(result, store);
        assert_eq!(number(result, store, "memory_bytes"), 96 << 10);
        let state = result["state_bytes"].as_u64().unwrap();
        assert!((90 << 10..=96 << 10).contains(&state), "{state}");
        // Slots of eight bytes take nine sixteenths of the memory.
        assert!(store == "sketch" || number(result, store, "slots") == 6_912);
        let table = place.run(&format!("replay {args}")).ok().stdout;
        assert!(table.contains(&format!("{store}, 96KiB in all, shared by 2 limits")), "{table}");
        place
            .run(&format!("replay log {limits} --memory 300"))
            .fails(2, &["--memory 300B", "at least 544 bytes", "272 for each limit"]);
    }
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn suggestion_uses_chosen_store() {
    for Bounded { store, place, .. } in STORES {
        let place = place();
        let goal = "log --time-format s --deny-requests 1%";
        // Without `--algorithm`, the program chooses an algorithm that the store supports.
        let algorithm = if store == "sketch" { "fixed-window" } else { "gcra" };
        let keyed = place.run(&format!("suggest {goal} --algorithm {algorithm} --json")).json();
        let bounded = place.run(&format!("suggest {goal} --store {store} --memory 1MiB --json")).json();
        let (keyed, bounded) = (&keyed["suggestions"][0], &bounded["suggestions"][0]);
        assert_eq!((&keyed["store"], &bounded["store"]), (&"keyed".into(), &store.into()));
        assert!(keyed.get(store).is_none());
        for field in ["algorithm", "limit", "denied", "keys_denied", "tried"] {
            assert_eq!(keyed[field], bounded[field], "{store} {field}");
        }
        all_right(bounded, store);
        assert_eq!(number(bounded, store, "memory_bytes"), 1 << 20);
        let run = place.run(&format!("suggest {goal} --algorithm all --store {store} --memory 2KiB")).ok();
        for part in [
            format!("--algorithm {algorithm} --store {store} --memory 2KiB\n"),
            format!("{store} store of 2KiB"),
            "Wrongly denied".to_owned(),
            "sub-window left out".to_owned(),
        ] {
            assert!(run.stdout.to_lowercase().contains(&part.to_lowercase()), "{part}: {}", run.stdout);
        }
    }
    let run = compact::flood().run(
        "suggest log --time-format s --deny-requests 1% --store compact --memory 2KiB --overflow inherit",
    );
    let run = run.ok();
    assert!(run.stdout.contains("--memory 2KiB --overflow inherit\n"), "{}", run.stdout);
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn default_memory_suffices_for_generated_day() {
    for (store, told) in [("compact", "Compact store of 4MiB"), ("sketch", "Sketch store of 4MiB")] {
        let run = Place::new().run(&format!("replay --store {store}")).ok();
        assert!(run.stdout.contains(told) && run.stdout.contains("Memory is enough"), "{}", run.stdout);
    }
}

#[test]
fn help_explains_choice_of_store() {
    let help = Place::new().run("replay --help").ok().stdout;
    // Undo the line breaks of the help text.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "tollgate replay access.log --limit 100/60s --store compact --memory 64KiB",
        "tollgate replay access.log --limit 100/60s --store sketch --memory 64KiB",
        "RateLimiter::new",
        "[default: 4MiB]",
        "flood of new clients",
        "right for most servers",
        "more busy clients than fit in memory",
        "No client gets more than the limit",
        "for fixed-window and sliding-window only",
        "\"compact\"",
        "\"sketch\"",
        "wrongly_denied",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn honeynet_httpd_2004() {
    compact::real("honeynet_httpd_2004", "", None);
    sketch::real("honeynet_httpd_2004", &[("10/d", "272"), ("3/7d", "1KiB")]);
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn aws_honeypot_2013() {
    compact::real("aws_honeypot_2013", "", None);
    sketch::real("aws_honeypot_2013", &[("3/h", "272"), ("10/d", "1KiB")]);
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn github_events_2015() {
    compact::real("github_events_2015", "--algorithm gcra --algorithm fixed-window", Some("512"));
    sketch::real("github_events_2015", &[("10/60s", "512"), ("10/h", "16KiB")]);
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn sec_edgar_2017() {
    compact::real("sec_edgar_2017", "", Some("2KiB"));
    sketch::real("sec_edgar_2017", &[("10/60s", "1KiB"), ("3/h", "512")]);
}

#[test]
fn zeek_conn_2022() {
    compact::real("zeek_conn_2022", "", None);
    sketch::real("zeek_conn_2022", &[("10/h", "272"), ("3/d", "1KiB")]);
}
