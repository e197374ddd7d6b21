//! Rules start no thread.

use tollgate_rules::{Descriptor, Rules};
use tollgate_testing::child::runs_in_own_process;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("a process has threads").count()
}

// G27
#[test]
fn rules_start_no_thread() {
    if !runs_in_own_process("threads::rules_start_no_thread") {
        return;
    }
    let before = threads();
    let rules = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: second, requests_per_unit: 1 } }]";
    let rules = Rules::from_yaml(rules).unwrap();
    assert!(rules.check("d", &[Descriptor::new(&[("k", "v")])]).is_allowed());
    assert_eq!(threads(), before);
}
