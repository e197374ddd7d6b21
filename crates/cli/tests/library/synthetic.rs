//! The generated day.

use tollgate_cli::synthetic::{DAY, HOUR, day};

#[test]
fn generated_day_is_deterministic() {
    let trace = day();
    assert!((280_000..320_000).contains(&trace.records.len()), "{}", trace.records.len());
    assert!(trace.records.is_sorted_by_key(|record| record.at));
    assert!(trace.records.iter().all(|record| (DAY..DAY + 24 * HOUR).contains(&record.at)));
    // FNV-1a over all records: it changes only if the day changes on purpose.
    let sum = trace.records.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, record| {
        (sum ^ record.at ^ u64::from(record.key) << 32).wrapping_mul(0x0000_0100_0000_01b3)
    });
    assert_eq!(
        (trace.records.len(), trace.keys.len(), format!("{sum:x}")),
        (300_399, 17_383, "73f2eb3dd1d774d1".to_owned())
    );
}

#[test]
fn popularity_follows_zipf() {
    let trace = day();
    let mut counts = vec![0_u64; trace.keys.len()];
    trace.records.iter().for_each(|record| counts[record.key as usize] += 1);
    let of = |name: &str| {
        (0_u32..).zip(&counts).find(|&(id, _)| trace.keys.name(id) == name).map_or(0, |(_, &n)| n)
    };
    let (first, tenth) = (of("client-00001"), of("client-00010"));
    assert!((8 * tenth..12 * tenth).contains(&first), "{first} {tenth}");
    assert_eq!(of("scraper"), 21_600);
}
