//! Runs random operations on a count-min sketch and on a Bloom filter of any size, with any hashes. It compares them
//! with a map and a set. An estimate is never too low and never above the total count, and the filter finds every
//! inserted key. The target also tries random sizes for their constructors.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::{Corpus, fuzz_target};
use std::collections::{HashMap, HashSet};
use tollgate::sketch::{Bloom, CountMin, SketchError};

/// The memory limit of a case. A case asks for at most this number of bytes, or for more than exists.
const FEW_BYTES: u128 = 1 << 20;

#[derive(Arbitrary, Debug)]
enum Counts {
    Small { width: u16, depth: u8 },
    Dimensions { width: usize, depth: usize },
    Memory { bytes: usize, depth: usize },
    Error { epsilon: f64, delta: f64 },
    Limit { units: u64, limit: u64, wrong_denials: f64 },
}

#[derive(Arbitrary, Debug)]
enum Filter {
    Small {
        bytes: u16,
        items: u16,
    },
    Memory {
        bytes: usize,
        items: usize,
    },
    Items {
        items: u32,
        false_positives: f64,
    },
    /// A filter for more keys than memory can hold, with a share of false positives of one in a hundred or less.
    TooMany {
        hundredths: u8,
    },
}

/// Operations on the key with this number among the case's hashes.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum Op {
    Count { key: u8, n: u8 },
    CountMany { key: u8, n: u64 },
    Insert { key: u8 },
    Ask { key: u8 },
    Clear,
}

#[derive(Arbitrary, Debug)]
struct Case {
    counts: Counts,
    filter: Filter,
    hashes: [u64; 16],
    ops: Vec<Op>,
}

fn reasonable(bytes: u128) -> bool {
    bytes <= FEW_BYTES || bytes > isize::MAX as u128
}

fn dimensions(width: usize, depth: usize) -> Option<Result<CountMin, SketchError>> {
    let counters = (width as u128).saturating_mul(depth as u128);
    reasonable(counters.saturating_mul(4)).then(|| CountMin::try_new(width, depth))
}

/// Returns `None` if the counters would take more memory than the limit above.
fn make_counts(counts: &Counts) -> Option<Result<CountMin, SketchError>> {
    match *counts {
        Counts::Small { width, depth } => dimensions(width.into(), depth.into()),
        Counts::Dimensions { width, depth } => dimensions(width, depth),
        Counts::Memory { bytes, depth } => {
            reasonable(bytes as u128).then(|| CountMin::for_memory(bytes, depth))
        }
        Counts::Error { epsilon, delta } => {
            // Invalid numbers are rejected. Valid numbers take at most this number of counters in eight rows.
            let sense = epsilon > 0.0 && epsilon < 1.0;
            (!sense || epsilon > 1e-4).then(|| CountMin::for_error(epsilon, delta))
        }
        Counts::Limit { units, limit, wrong_denials } => {
            match CountMin::size_for_limit(units, limit, wrong_denials) {
                Ok((width, depth)) => dimensions(width, depth),
                Err(error) => Some(Err(error)),
            }
        }
    }
}

fn make_filter(filter: &Filter) -> Option<Result<Bloom, SketchError>> {
    match *filter {
        Filter::Small { bytes, items } => Some(Bloom::for_memory(bytes.into(), items.into())),
        Filter::Memory { bytes, items } => reasonable(bytes as u128).then(|| Bloom::for_memory(bytes, items)),
        Filter::Items { items, false_positives } => {
            // At most one word for each key.
            Some(Bloom::for_items((items % (1 << 17)) as usize, false_positives))
        }
        Filter::TooMany { hundredths } => {
            let filter = Bloom::for_items(usize::MAX, 0.01 / f64::from(hundredths.max(1)));
            assert!(filter.is_err(), "no machine has memory for this filter");
            None
        }
    }
}

fn made<T>(made: Result<T, SketchError>) -> Option<T> {
    made.inspect_err(|error| assert!(error.to_string().starts_with("invalid sketch: "))).ok()
}

fn play(counts: Option<CountMin>, filter: Option<Bloom>, hashes: &[u64; 16], ops: &[Op]) {
    let hash = |key: u8| hashes[usize::from(key % 16)];
    let (mut counted, mut all, mut inserted) = (HashMap::<u64, u64>::new(), 0_u64, HashSet::new());
    for op in ops {
        if let Some(counts) = &counts {
            match *op {
                Op::Count { key, n: few } => count(counts, &mut counted, &mut all, hash(key), few.into()),
                Op::CountMany { key, n } => count(counts, &mut counted, &mut all, hash(key), n),
                Op::Insert { key } | Op::Ask { key } => {
                    let least = counted.get(&hash(key)).copied().unwrap_or(0);
                    assert!((least..=all).contains(&counts.estimate_hash(hash(key))), "{op:?}");
                }
                Op::Clear => {
                    counts.clear();
                    counted.clear();
                    all = 0;
                }
            }
        }
        if let Some(filter) = &filter {
            match *op {
                Op::Insert { key } => {
                    let there = filter.contains_hash(hash(key));
                    assert_eq!(filter.insert_hash(hash(key)), there, "{op:?}");
                    assert!(
                        inserted.insert(hash(key)) || there,
                        "{op:?}: the filter does not find an inserted key"
                    );
                }
                Op::Clear => {
                    filter.clear();
                    inserted.clear();
                }
                Op::Ask { key } | Op::Count { key, .. } | Op::CountMany { key, .. } => {
                    assert!(filter.contains_hash(hash(key)) || !inserted.contains(&hash(key)), "{op:?}");
                }
            }
        }
    }
}

fn count(counts: &CountMin, counted: &mut HashMap<u64, u64>, all: &mut u64, hash: u64, n: u64) {
    let least = counted.entry(hash).or_default();
    *least = least.saturating_add(n).min(CountMin::MAX);
    *all = all.saturating_add(n).min(CountMin::MAX);
    let told = counts.add_hash(hash, n);
    assert!((*least..=*all).contains(&told), "{n}: the estimate {told} is not in {least}..={all}");
    assert_eq!(counts.estimate_hash(hash), told);
}

// G59
fuzz_target!(|case: Case| -> Corpus {
    let (Some(counts), Some(filter)) = (make_counts(&case.counts), make_filter(&case.filter)) else {
        return Corpus::Reject;
    };
    play(made(counts), made(filter), &case.hashes, &case.ops);
    Corpus::Keep
});
