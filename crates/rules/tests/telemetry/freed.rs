//! Which thread frees the rules that a load replaces. The handles of a rule's counters tell it, because they are dropped with the rule.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};

use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use tollgate_rules::{Answer, Config, Descriptor, Rules};

/// Reports the thread that drops it.
struct Handle(Sender<ThreadId>);

impl CounterFn for Handle {
    fn increment(&self, _: u64) {}

    fn absolute(&self, _: u64) {}
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().id());
    }
}

/// Gives handles to the counters of rules.
struct Handles(Sender<ThreadId>);

impl metrics::Recorder for Handles {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.labels().any(|label| label.key() == "rule") {
            true => Counter::from_arc(std::sync::Arc::new(Handle(self.0.clone()))),
            false => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

fn text(key: &str) -> String {
    let limit = "{ unit: day, requests_per_unit: 9 }";
    format!("{{ domain: d, descriptors: [ {{ key: {key}, rate_limit: {limit} }} ] }}")
}

/// Calls `load`, and returns what it returns and the threads that will drop handles.
fn noted<T>(load: impl FnOnce() -> T) -> (T, Receiver<ThreadId>) {
    let (sender, dropped) = channel();
    (metrics::with_local_recorder(&Handles(sender), load), dropped)
}

fn ask(rules: &Rules) -> Answer {
    rules.check("d", &[Descriptor::new(&[("a", "x")])])
}

/// A load published other rules while a thread had an answer of the earlier ones. That thread was the last one to use them, so it freed
/// them: 10,000 rules took it several milliseconds, and a request waited for that.
// G108
#[test]
fn load_frees_the_rules_and_no_answer_does() {
    let (rules, dropped) = noted(|| Rules::from_yaml(&text("a")).unwrap());
    let load = |key| rules.replace([Config::from_yaml("limits.yaml", &text(key)).unwrap()]).unwrap();
    let answers = [ask(&rules), ask(&rules)];
    load("b");
    thread::scope(|scope| answers.map(|answer| scope.spawn(|| drop(answer)).join().unwrap()));
    assert_eq!(dropped.try_iter().count(), 0, "no thread with an answer frees the rules");
    load("b");
    let freed: Vec<_> = dropped.try_iter().collect();
    assert!(!freed.is_empty(), "the next load frees them");
    assert!(freed.iter().all(|thread| *thread == thread::current().id()));
}

/// Without answers in use, a load itself frees what it replaces.
// G108
#[test]
fn load_frees_unused_rules_at_once() {
    let (rules, dropped) = noted(|| Rules::from_yaml(&text("a")).unwrap());
    drop(ask(&rules));
    rules.replace([Config::from_yaml("limits.yaml", &text("b")).unwrap()]).unwrap();
    assert!(dropped.try_iter().count() > 0);
}

/// The next load may come only after days, so the watcher looks again.
// G108
#[cfg(feature = "watch")]
#[test]
fn watcher_frees_the_rules_soon_after_the_last_answer() {
    use std::time::Duration;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.yaml");
    std::fs::write(&path, text("a")).unwrap();
    let (rules, dropped) = noted(|| std::sync::Arc::new(Rules::read(&path).unwrap()));
    let mut answer = Some(ask(&rules));
    let watcher = Rules::watch(&rules, move |loaded| {
        loaded.unwrap();
        drop(answer.take());
    });
    let watcher = watcher.unwrap();
    let new = folder.path().join("limits.new");
    std::fs::write(&new, text("b")).unwrap();
    std::fs::rename(&new, &path).unwrap();
    let freed = dropped.recv_timeout(Duration::from_secs(60)).expect("the watcher frees the rules");
    assert_ne!(freed, thread::current().id());
    drop(watcher);
}
