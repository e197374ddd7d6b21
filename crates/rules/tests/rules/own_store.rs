//! Rules that count in a store of the program's own: that of the example, and one that answers later.

use std::error::Error;
use std::sync::Arc;

use tollgate_rules::{Answer, Config, Descriptor, Rules, RulesError, SharedLimiter, SharedRule, SharedStore};

#[path = "../../examples/own_store.rs"]
#[expect(dead_code, reason = "the example's `main`")]
mod example;

use self::example::Counts;

fn text(settings: &str, rules: &[&str]) -> String {
    let rules = rules.iter().map(|rule| format!("  - {{ {rule} }}\n"));
    format!("domain: d\ntollgate: {{ {settings} }}\ndescriptors:\n{}", rules.collect::<String>())
}

fn load(store: &Counts, text: &str) -> Result<Rules, RulesError> {
    Rules::builder().shared(store.clone()).load([Config::from_yaml("test.yaml", text)?])
}

fn ask(rules: &Rules, keys: &[&str], hits: u64) -> Answer {
    let entries: Vec<_> = keys.iter().map(|key| [(*key, "x")]).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
    rules.check_n("d", &descriptors, hits)
}

const TEN: &str = "rate_limit: { unit: year, requests_per_unit: 10 }";
const NEAR: &str = "key: near, rate_limit: { unit: year, requests_per_unit: 4, store: keyed }";

#[test]
fn machines_share_counts_of_own_store() {
    let (store, text) = (Counts::default(), text("store: redis", &[&format!("key: a, {TEN}")]));
    let [one, other] = [(); 2].map(|()| load(&store, &text).unwrap());
    assert!(ask(&one, &["a"], 6).is_allowed());
    assert!(ask(&other, &["a"], 5).is_denied());
    let answer = ask(&other, &["a"], 4);
    let limit = answer.limits().next().unwrap();
    assert_eq!((limit.remaining(), limit.decided_by()), (0, Some(tollgate::DecidedBy::Server)));
    assert!(ask(&one, &["a"], 1).retry_after().is_some());
    // After a load with another limit, the counts of the store stay.
    one.replace([Config::from_yaml("test.yaml", &text.replace("10", "12")).unwrap()]).unwrap();
    assert!(ask(&one, &["a"], 2).is_allowed() && ask(&one, &["a"], 1).is_denied());
    for (limit, admitted) in [("5", false), ("12", false), ("13", true)] {
        one.replace([Config::from_yaml("test.yaml", &text.replace("10", limit)).unwrap()]).unwrap();
        assert_eq!(ask(&one, &["a"], 1).is_allowed(), admitted, "{limit}");
    }
    assert_eq!((one.shared_limiters().len(), other.shared_limiters().len()), (1, 1));
}

#[test]
fn own_store_is_charged_with_other_rules_or_not_at_all() {
    let (store, text) = (Counts::default(), text("store: redis", &[&format!("key: a, {TEN}"), NEAR]));
    let rules = load(&store, &text).unwrap();
    let admitted = (0..30).filter(|_| ask(&rules, &["a", "near"], 1).is_allowed()).count();
    assert_eq!(admitted, 4);
    let entries = [[("a", "x")]];
    let descriptors = [Descriptor::new(&entries[0])];
    let answer = rules.check_n("d", &descriptors, 6);
    assert!(answer.is_allowed());
    assert!(ask(&rules, &["a"], 1).is_denied());
    rules.refund(&descriptors, &answer);
    assert!(ask(&rules, &["a"], 6).is_allowed());
    assert!(ask(&rules, &["a"], 1).is_denied());
}

#[test]
fn own_store_refuses_rules_that_it_cannot_count() {
    let gcra = format!("key: a, {}", TEN.replace("10", "10, algorithm: gcra"));
    let classes =
        "key: a, classes: { low: 50%, high: 100% }, rate_limit: { unit: year, requests_per_unit: 10 }";
    let window = format!("key: a, {TEN}");
    for (settings, rule, why) in [
        ("store: redis", &*gcra, "\"d|a\" is on a store that counts fixed windows"),
        ("store: redis, charging: count-denials", &*window, "its store does not; use another charging"),
        ("store: redis, mode: atomic", classes, "cannot have this class: its store does not count it"),
    ] {
        let error = load(&Counts::default(), &text(settings, &[rule])).unwrap_err().to_string();
        assert!(error.starts_with("test.yaml:4: rule ") && error.contains(why), "{error}");
    }
    // A load that adds classes to a rule keeps its counter, and then denied every request without an error.
    let settings = "store: redis, mode: atomic";
    let rules = load(&Counts::default(), &text(settings, &[&window])).unwrap();
    let later = Config::from_yaml("test.yaml", &text(settings, &[classes])).unwrap();
    assert!(rules.replace([later]).unwrap_err().to_string().contains("cannot have this class"));
    assert!(ask(&rules, &["a"], 10).is_allowed() && ask(&rules, &["a"], 1).is_denied());
}

/// The panic ended the thread that watches the rules, and no later load came into force.
#[test]
fn own_store_that_panics_fails_the_load() {
    #[derive(Debug)]
    struct Panics(Counts);

    impl SharedStore for Panics {
        fn limiter_for(
            &self,
            rule: &SharedRule<'_>,
        ) -> Result<Arc<dyn SharedLimiter>, Box<dyn Error + Send + Sync>> {
            assert!(rule.limit.most() < 20, "the test's panic");
            self.0.limiter_for(rule)
        }
    }

    let config = |limit: &str| {
        let rule = format!("key: a, {}", TEN.replace("10", limit));
        Config::from_yaml("test.yaml", &text("store: redis", &[&rule])).unwrap()
    };
    let rules = Rules::builder().shared(Panics(Counts::default())).load([config("10")]).unwrap();
    let error = rules.replace([config("20")]).unwrap_err().to_string();
    assert!(error.contains("cannot be counted: its store panicked"), "{error}");
    assert_eq!((rules.reloads().errors, rules.last_error().is_some()), (1, true));
    assert!(ask(&rules, &["a"], 10).is_allowed() && ask(&rules, &["a"], 1).is_denied());
}

#[cfg(feature = "tokio")]
mod later {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tokio::time::Instant;
    use tollgate::{DecidedBy, Decision, Outcome, SharedDecision, Timestamp};
    use tollgate_rules::{MayWait, SharedReply};

    use super::*;

    /// A store whose answers take some time. It admits everything, and counts the units in use.
    #[derive(Clone, Debug, Default)]
    struct Slow {
        takes: Duration,
        used: Arc<AtomicU64>,
    }

    impl SharedStore for Slow {
        fn limiter_for(
            &self,
            _: &SharedRule<'_>,
        ) -> Result<Arc<dyn SharedLimiter>, Box<dyn Error + Send + Sync>> {
            Ok(Arc::new(self.clone()))
        }
    }

    impl SharedLimiter for Slow {
        fn check(&self, _: &str, cost: u64, _: bool, _: MayWait) -> SharedReply<SharedDecision> {
            let Self { takes, used } = self.clone();
            SharedReply::Later(Box::pin(async move {
                tokio::time::sleep(takes).await;
                used.fetch_add(cost, Ordering::Relaxed);
                let allowed = Decision::made_elsewhere(Outcome::Allowed, cost, 100, Timestamp::from_secs(0));
                SharedDecision::new(allowed, DecidedBy::Server)
            }))
        }

        fn can_refund(&self) -> bool {
            true
        }

        fn refund(&self, _: &str, charge: SharedDecision, _: MayWait) -> SharedReply<()> {
            self.used.fetch_sub(charge.decision().charged(), Ordering::Relaxed);
            SharedReply::Now(())
        }

        fn close(&self) -> SharedReply<()> {
            let used = Arc::clone(&self.used);
            SharedReply::Later(Box::pin(async move { used.store(u64::MAX, Ordering::Relaxed) }))
        }
    }

    fn slow(takes: Duration) -> (Rules, Arc<AtomicU64>) {
        let store = Slow { takes, ..Slow::default() };
        let text = text("store: redis, mode: atomic", &[&format!("key: a, {TEN}"), NEAR]);
        let used = Arc::clone(&store.used);
        (Rules::builder().shared(store).load([Config::from_yaml("test.yaml", &text).unwrap()]).unwrap(), used)
    }

    async fn ask_async(rules: &Rules, keys: &[&str]) -> Answer {
        let entries: Vec<_> = keys.iter().map(|key| [(*key, "x")]).collect();
        let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
        rules.check_async("d", &descriptors).await
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_come_later_are_awaited_and_refunded() {
        let (rules, used) = slow(Duration::from_millis(5));
        for _ in 0..30 {
            let _ = ask_async(&rules, &["a", "near"]).await;
        }
        assert_eq!(used.load(Ordering::Relaxed), 4, "what `near` denied is not charged");
        // A caller that does not wait gets the answer of `fallback`, which denies.
        let answer = ask(&rules, &["a"], 1);
        assert_eq!(answer.limits().next().unwrap().decided_by(), Some(DecidedBy::Closed));
        assert!(answer.is_denied());
        rules.close().await;
        assert_eq!(used.load(Ordering::Relaxed), u64::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn late_answer_is_refunded() {
        let (rules, used) = slow(Duration::from_millis(50));
        let entries = [("a", "x")];
        let deadline = Instant::now().into_std() + Duration::from_millis(5);
        let answer = rules.check_until("d", &[Descriptor::new(&entries)], 3, deadline).await;
        assert!(answer.is_denied());
        // The caller of this one goes away.
        drop(tokio::time::timeout(Duration::from_millis(5), ask_async(&rules, &["a"])).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(used.load(Ordering::Relaxed), 0);
        // A store that never answers delays no request beyond its deadline.
        let (rules, _) = slow(Duration::MAX);
        let answer = rules.check_until("d", &[Descriptor::new(&entries)], 1, Instant::now().into_std()).await;
        assert!(answer.is_denied());
    }
}
