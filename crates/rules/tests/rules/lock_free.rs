//! The checks of rules are lock-free; see `common/stopped.rs`.

use crate::arena::inside;
use crate::files::file;
use crate::stopping::{PROGRESS, goes_on};
use std::sync::atomic::Ordering;
use tollgate_rules::{Descriptor, Rules};
use tollgate_testing::compact::Random;

// G25
#[test]
fn rules_are_lock_free() {
    let text = file(&[
        "key: compact, rate_limit: { unit: second, requests_per_unit: 900, algorithm: gcra }",
        "key: keyed, rate_limit: { unit: second, requests_per_unit: 900, algorithm: sliding-log }",
        "key: all, value: x, rate_limit: { unit: second, requests_per_unit: 900 }",
    ]);
    let rules = inside(|| Rules::from_yaml(&text).unwrap());
    let keys = ["compact", "keyed", "all"];
    goes_on("rules", &|random| {
        let values = ["x", "y", "z"];
        let pick = |random: &mut Random| usize::try_from(random.below(3)).expect("the number is below 3");
        let (first, second) =
            ([(keys[pick(random)], values[pick(random)])], [(keys[pick(random)], values[pick(random)])]);
        let answer = rules.check("d", &[Descriptor::new(&first), Descriptor::new(&second)]);
        PROGRESS.fetch_add(u64::from(answer.is_allowed()), Ordering::Relaxed);
    });
}
