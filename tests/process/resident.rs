//! The memory of many rules follows their use: the system provides a page when it is first written.

use super::{alone, runs_in_own_process};
use tollgate::rules::{Config, Descriptor, Rules};
use tollgate::{Capacity, Gcra, Quota, RateLimiter};

/// The bytes of this process.
struct Memory {
    /// All addresses that it may use.
    mapped: usize,
    /// Those that are in memory.
    resident: usize,
}

fn memory() -> Memory {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux shows the memory of a process");
    // SAFETY: the call only reads a setting.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page has a size");
    let mut bytes = text.split(' ').map(|pages| page * pages.parse::<usize>().expect("a number of pages"));
    let mut next = || bytes.next().expect("two numbers");
    Memory { mapped: next(), resident: next() }
}

fn resident() -> usize {
    memory().resident
}

/// Many rules of the default store. A freed table of the same size must not change how the system provides later ones.
// G68
#[test]
fn ten_thousand_rules_take_memory_as_they_are_used() {
    let _alone = alone();
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

/// The default store of a limiter takes what it promises, and is resident as far as it is used, whatever blocks the
/// process freed before. This is the figure in the README and in the documentation of `RateLimiter::new`.
// G31
#[test]
fn new_limiter_takes_four_mebibytes_as_it_is_used() {
    let _alone = alone();
    if !runs_in_own_process("resident::new_limiter_takes_four_mebibytes_as_it_is_used") {
        return;
    }
    let limiter = || RateLimiter::new(Quota::per_day(1));
    drop(limiter());
    let before = memory();
    let limiters: Vec<_> = (0..100).map(|_| limiter()).collect();
    assert!(limiters.iter().all(|limiter| limiter.check("x").is_allowed()));
    let after = memory();
    let each = (after.mapped - before.mapped) / limiters.len();
    assert!(each.abs_diff(4 << 20) <= 64 << 10, "{each} bytes of addresses for each limiter");
    let each = (after.resident - before.resident) / limiters.len();
    assert!(each <= 128 << 10, "{each} bytes in memory for each limiter");
    let full = limiters.first().expect("there are limiters");
    for key in 0..500_000 {
        let _ = full.check(&key);
    }
    let grown = resident() - after.resident;
    assert!((3 << 20..=5 << 20).contains(&grown), "{grown} bytes for a full limiter");
}
