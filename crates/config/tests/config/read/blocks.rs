//! `block` in files: forms that are read, and forms that are errors.

use std::time::Duration;

use tollgate::Block;
use tollgate::StoreKind;
use tollgate_config::{Amount, Config};

use super::support::{good, limit, problem, rejected_limits};

const FIVE: &str = "unit: minute, requests_per_unit: 5, algorithm: gcra";

fn block_of(config: &Config) -> Option<Block> {
    match &config.rules()[0].limit {
        Amount::Limited { limit, .. } => limit.block(),
        _ => None,
    }
}

#[test]
fn lengths_are_read() {
    let seconds = |seconds| Block::of(Duration::from_secs(seconds));
    for (text, expected) in [
        ("block: 10m", seconds(600)),
        ("block: 90s", seconds(90)),
        ("block: '2 h'", seconds(7_200)),
        ("block: { for: 10m }", seconds(600)),
        ("block: { for: 10m, at_most: 1d }", seconds(600).at_most(Duration::from_secs(86_400))),
    ] {
        let config = good(&limit(&format!("{FIVE}, {text}")));
        assert_eq!(block_of(&config), Some(expected), "{text}");
    }
    for algorithm in ["token-bucket", "leaky-bucket"] {
        let text = limit(&format!("unit: minute, requests_per_unit: 5, algorithm: {algorithm}, block: 10m"));
        assert!(block_of(&good(&text)).is_some());
    }
    assert_eq!(block_of(&good(&limit(FIVE))), None);
}

#[test]
fn bad_blocks_are_refused() {
    let rows = r#"
        block: 0s => rate_limit.block: expected a time above 0, found "0s" ... such as 30s, 10m, 2h or 1d
        block: 10 => expected a time above 0, found "10"
        block: soon => expected a time above 0
        block: {} => rate_limit.block.for: the length is missing
        block: { for: 10m, until: 1d } => block has no key "until"
        block: { for: 10m, at_most: 5m } => is 5min, but must be at least 10min
        block: { for: 1s, at_most: 30d } => can be at most 16384s
        block: 2000d => can be at most 833d
        block: { for: 10m, at_most: 1d }, store: compact => blocks of one length ... without at_most ... keyed store
        block: { for: 10m, at_most: 1d }, memory: 1MiB => blocks of one length ... keyed store
        block: 30d, store: compact => the longest block is 30d ... at most 1572804s
        block: 10m, store: sketch => the sketch store has no blocks ... store: keyed
        block: 10m, store: redis, mode: lease => the redis store has no blocks in the mode lease ... mode: atomic, or store: keyed
    "#;
    rejected_limits(&format!("{FIVE}, "), rows);
    for algorithm in ["fixed-window", "sliding-window", "sub-window", "sliding-log"] {
        let text = format!("unit: minute, requests_per_unit: 5, algorithm: {algorithm}, block: 10m");
        problem(&limit(&text), "does not use block ... use algorithm: gcra, token-bucket or leaky-bucket");
    }
    problem(&limit("unit: minute, requests_per_unit: 5, block: 10m"), "fixed-window does not use block");
    problem(&limit("unit: minute, requests_per_unit: 0, algorithm: gcra, block: 10m"), "the limit is 0");
    problem(&limit("unlimited: true, block: 10m"), "block cannot be used with unlimited: true");
}

#[test]
fn memory_of_the_file_does_not_make_the_store_compact() {
    let text = limit(&format!("{FIVE}, block: 10m"));
    let config = good(&text.replace("tollgate: {}", "tollgate: { memory: 4MiB }"));
    assert!(matches!(config.rules()[0].limit, Amount::Limited { store: None, .. }));
    let config = good(&text.replace("block: 10m", "block: 10m, max_keys: 1000"));
    let Amount::Limited { store: Some(store), .. } = &config.rules()[0].limit else { panic!("{config:?}") };
    assert_eq!(store.kind(), Some(StoreKind::Keyed));
    let said = "the redis store has no blocks in the mode lease ... store: keyed for this limit";
    problem(&text.replace("tollgate: {}", "tollgate: { store: redis, mode: lease }"), said);
}

#[test]
fn classes_and_calendars_have_no_blocks() {
    let text = limit(&format!("{FIVE}, block: 10m"));
    let classes = text.replace("- key: a\n", "- key: a\n    classes: { x: 100%, y: 50% }\n");
    let said = "descriptors[0].classes: classes cannot share a limit with block ... remove the block or";
    problem(&classes, said);
    #[cfg(feature = "calendar")]
    {
        let said = "calendar-window does not use block ... write unit instead of period";
        problem(&limit("period: month, requests_per_unit: 5, block: 10m"), said);
    }
}
