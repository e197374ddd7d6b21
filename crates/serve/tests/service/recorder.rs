//! Series of metrics, over many loads of rules.

use tollgate_rules::{Config, Descriptor, Rules};
use tollgate_serve::recorder::Recorder;

/// Two rules: one that every load keeps, and one whose name is another in each load.
fn config(name: &str) -> Config {
    let text = format!(
        "domain: edge\ndescriptors:\n\
         - {{ key: kept, rate_limit: {{ unit: day, requests_per_unit: 5 }} }}\n\
         - {{ key: {name}, rate_limit: {{ unit: day, requests_per_unit: 5 }} }}\n"
    );
    Config::from_yaml("limits.yaml", &text).unwrap()
}

fn page(recorder: &Recorder) -> String {
    let mut page = String::new();
    recorder.write(&mut page);
    page
}

/// Cause: the recorder kept each series for ever. Symptom: memory and page grew with each load that renamed a rule.
// G73
#[test]
fn series_of_removed_rules_leave() {
    let recorder = Recorder::default();
    let (rules, first) = metrics::with_local_recorder(&recorder, || {
        let rules = Rules::builder().load([config("rule-10000")]).unwrap();
        let _ = rules.check("edge", &[Descriptor::new(&[("kept", "x")])]);
        (rules, page(&recorder))
    });
    let count = "tollgate_requests_total{domain=\"edge\",rule=\"edge.kept\",decision=\"allowed\"} 1\n";
    assert!(first.contains(count) && first.contains("edge.rule-10000"), "{first}");
    let load = |name: &str| {
        metrics::with_local_recorder(&recorder, || drop(rules.replace([config(name)]).unwrap()));
    };
    // With a page after each load, and with none for 500 loads.
    for scraped in [true, false] {
        for number in 10_001..10_501 {
            load(&format!("rule-{number}"));
            if scraped {
                let page = page(&recorder);
                assert!(page.contains(count) && page.len() < 2 * first.len(), "{number}: {page}");
            }
        }
    }
    let once_more = page(&recorder);
    assert!(once_more.len() < 8 * first.len(), "{} bytes, first {}", once_more.len(), first.len());
    assert_eq!(page(&recorder).lines().count(), first.lines().count());
    // A rule that comes back has its series again, and those that stayed have theirs.
    load("rule-10000");
    let _ = page(&recorder);
    let last = page(&recorder);
    assert_eq!(last.lines().count(), first.lines().count());
    assert!(last.contains(count) && last.contains("edge.rule-10000"), "{last}");
}

#[test]
fn series_are_written_in_the_format() {
    let recorder = Recorder::default();
    metrics::with_local_recorder(&recorder, || {
        metrics::describe_counter!("c_total", "What it counts");
        let hostile = metrics::counter!("c_total", "rule" => "a\"b\\c\nd} 1", "x" => "");
        hostile.increment(3);
        hostile.absolute(2);
        metrics::gauge!("g").set(-0.5);
        let times = metrics::histogram!("t_seconds", "domain" => "d");
        [0.000_05, 0.000_06, 7.0].into_iter().for_each(|seconds| times.record(seconds));
        let page = page(&recorder);
        for line in [
            "# HELP c_total What it counts\n# TYPE c_total counter\nc_total{rule=\"a\\\"b\\\\c\\nd} 1\",x=\"\"} 3\n",
            "# TYPE g gauge\ng -0.5\n",
            "# TYPE t_seconds histogram\nt_seconds_bucket{domain=\"d\",le=\"0.00005\"} 1\n",
            "t_seconds_bucket{domain=\"d\",le=\"0.0001\"} 2\n",
            "t_seconds_bucket{domain=\"d\",le=\"0.02\"} 2\nt_seconds_bucket{domain=\"d\",le=\"+Inf\"} 3\n",
            "t_seconds_sum{domain=\"d\"} 7.00011\nt_seconds_count{domain=\"d\"} 3\n",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    });
    // Nothing holds the series with labels now. Those without labels are few.
    let _ = page(&recorder);
    assert_eq!(page(&recorder), "# TYPE g gauge\ng -0.5\n");
}
