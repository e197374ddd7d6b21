//! The memory of many rules follows their use: the system provides a page when it is first written.

use tollgate::{Capacity, Gcra, Quota, RateLimiter};
use tollgate_rules::{Config, Descriptor, Rules};
use tollgate_testing::child::runs_in_own_process;

/// Returns the bytes of this process that are in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux shows the memory of a process");
    // SAFETY: the call only reads a setting.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page has a size");
    page * text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages")
}

/// Many rules of the default store. A freed table of the same size must not change how the system provides later ones.
// G68
#[test]
fn ten_thousand_rules_take_memory_as_they_are_used() {
    if !runs_in_own_process("resident::ten_thousand_rules_take_memory_as_they_are_used") {
        return;
    }
    drop(RateLimiter::builder(Gcra::new(Quota::per_day(1))).capacity(Capacity::memory(1 << 20)).compact());
    let line = |at| {
        format!(
            "  - {{ key: tenant, value: t{at}, descriptors: [ {{ key: client, rate_limit: {{ unit: day, requests_per_unit: 9 }} }} ] }}\n"
        )
    };
    let text: String = (0..10_000).map(line).collect();
    let config = Config::from_yaml("rules", &format!("domain: d\ndescriptors:\n{text}")).unwrap();
    let rules = Rules::builder().load([config]).unwrap();
    let loaded = resident();
    for tenant in 0..1_000 {
        let tenant = format!("t{tenant}");
        let entries = [("tenant", &*tenant), ("client", "x")];
        assert!(rules.check("d", &[Descriptor::new(&entries)]).is_allowed());
    }
    let used = resident();
    println!("{} kB after the load, {} kB after 1,000 rules were used", loaded >> 10, used >> 10);
    assert!(used <= 120 << 20, "{loaded} bytes after the load, {used} bytes after 1,000 rules were used");
    assert!(used - loaded <= 16 << 20, "from {loaded} to {used} bytes for 1,000 rules");
}
