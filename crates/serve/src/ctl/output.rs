//! The answer of a service as a table.

use std::time::Duration;

use serde_json::Value;

use tollgate_report::human;
use tollgate_report::output::table;
use tollgate_report::text::printable;

/// Returns the table.
pub fn text(verb: &str, answer: &Value) -> String {
    let rows = answer["rules"].as_array().into_iter().flatten().map(|rule| row(verb, rule));
    let header = "Rule|Name|Key|Limit|Used|Remaining|Reset|Held|Block|Part|Result|File";
    format!("{}\n", table::table(header, 3..9, rows.collect::<Vec<_>>(), &[1, 9, 7, 11, 2]))
}

fn row(verb: &str, rule: &Value) -> Vec<String> {
    let state = &rule["state"];
    let count = |name: &str| state[name].as_u64().map_or(String::new(), human::count);
    let time = |name: &str| {
        let nanos = state[name].as_u64();
        nanos.map_or(String::new(), |nanos| human::duration(Duration::from_nanos(nanos)))
    };
    let text = |name: &str, most| printable(rule[name].as_str().unwrap_or("").as_bytes(), most);
    let result = match (rule["done"] == true, verb) {
        (false, _) => format!("refused: {}", text("why_not", 200)),
        (true, "inspect") => String::new(),
        (true, "block" | "unblock") => "done".to_owned(),
        (true, _) => format!("{} back", human::counted(rule["units"].as_u64().unwrap_or(0), "unit")),
    };
    vec![
        text("rule", 80),
        text("name", 80),
        text("key", 60),
        count("limit"),
        count("used"),
        count("remaining"),
        time("reset_after_ns"),
        count("held"),
        time("blocked_for_ns"),
        text("part", 20),
        result,
        format!("{}:{}", text("file", 100), rule["line"].as_u64().unwrap_or(0)),
    ]
}
