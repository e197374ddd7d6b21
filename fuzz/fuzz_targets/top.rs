//! Runs random adds and merges on three summaries of the heaviest keys, and compares them with exact counts after
//! each step. It also uses random texts as keys that are cut.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use tollgate::sketch::{CutText, TopKeys};
use tollgate_testing::bounds::Exact;

#[derive(Arbitrary, Debug)]
enum Act {
    Add {
        key: u8,
        n: u8,
    },
    AddMuch {
        key: u8,
        n: u64,
    },
    /// Adds to consecutive keys.
    Flood {
        from: u8,
        keys: u8,
    },
    Merge {
        with: u8,
    },
    MergeWithItself,
    Clear,
}

#[derive(Arbitrary, Debug)]
struct Stream<'a> {
    entries: [u8; 3],
    acts: Vec<(u8, Act)>,
    texts: Vec<&'a str>,
}

fn play(entries: [u8; 3], acts: Vec<(u8, Act)>) {
    let entries = entries.map(|entries| usize::from(entries % 20) + 1);
    let fresh = |i: usize| (TopKeys::try_new(entries[i]).expect("small"), Exact::new(entries[i]));
    let mut all: [(TopKeys<u8>, Exact<u8>); 3] = std::array::from_fn(fresh);
    for (at, act) in acts.into_iter().take(300) {
        let at = usize::from(at % 3);
        let mut add = |key, n| {
            all[at].0.add(key, n);
            all[at].1.add(key, n);
        };
        match act {
            Act::Add { key, n } => add(key, n.into()),
            Act::AddMuch { key, n } => add(key, n),
            Act::Flood { from, keys } => (0..keys).for_each(|n| add(from.wrapping_add(n), 1)),
            Act::Merge { with } => {
                let (other, other_exact) = all[usize::from(with % 3)].clone();
                all[at].0.merge(&other);
                all[at].1.merge(&other_exact);
            }
            Act::MergeWithItself => {
                let (ours, exact) = all[at].clone();
                all[at].0.merge(&ours);
                all[at].1.merge(&exact);
            }
            Act::Clear => {
                all[at].0.clear();
                all[at].1 = fresh(at).1;
            }
        }
        let (ours, exact) = &all[at];
        // Beyond this, the sum of the counts itself would overflow.
        if exact.total() > u128::MAX / 1_024 {
            return;
        }
        exact.judge(ours);
    }
}

fn cut(texts: &[&str]) {
    let mut keys = HashMap::<CutText<7>, &str>::new();
    for text in texts {
        let key = CutText::new(text);
        assert!(text.starts_with(key.as_str()) && key.as_str().len() <= 7);
        assert_eq!((key.is_cut(), key.whole_len()), (key.as_str() != *text, text.len()));
        assert!(!key.is_cut() || key.as_str().len() > 3, "a text is cut only as far as necessary");
        assert_eq!(*keys.entry(key).or_insert(text), *text, "two different texts gave one key");
        assert!(format!("{key} {key:?}").starts_with(key.as_str()));
    }
}

// G63
fuzz_target!(|stream: Stream<'_>| {
    play(stream.entries, stream.acts);
    cut(&stream.texts);
});
