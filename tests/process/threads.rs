//! No limiter starts a thread.

use tollgate::sketch::{InFlight, Rate};
use tollgate::{FixedWindow, Gcra, Quota, RateLimiter, check_all};
use tollgate_testing::child::runs_in_own_process;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("a process has threads").count()
}

// G27
#[test]
fn no_limiter_starts_a_thread() {
    if !runs_in_own_process("threads::no_limiter_starts_a_thread") {
        return;
    }
    let before = threads();
    let quota = Quota::per_second(2);
    let build = || RateLimiter::builder(Gcra::new(quota));
    let (compact, keyed, direct) = (RateLimiter::new(quota), build().keyed::<u64>(), build().direct());
    let striped = build().striped();
    let sketch = RateLimiter::builder(FixedWindow::new(quota)).sketch().unwrap();
    let adjustable = build().compact().unwrap().adjustable();
    let (rate, in_flight) = (Rate::try_new(quota.period()).unwrap(), InFlight::new());
    for key in 0..20_000_u64 {
        let _ = (compact.check(&key), keyed.check(&key), direct.check(), striped.check(), sketch.check(&key));
        let _ = (adjustable.check(&key), check_all((compact.on(&key), keyed.on(&key))));
        let _ = (rate.observe(&key, 1), in_flight.enter(&key, 1).count());
    }
    adjustable.set_quota(&Quota::per_second(3), tollgate::Carry::AsIs).unwrap();
    keyed.retain_active();
    assert_eq!(threads(), before);
    // Control: the count includes a thread that the test starts.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    assert_eq!(threads(), before + 1);
    drop(stop);
    let _ = thread.join();
}
