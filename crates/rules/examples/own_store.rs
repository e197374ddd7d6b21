//! Counts rules in a store of the program's own: `cargo run -p tollgate-rules --example own_store`.
//!
//! Two sets of rules stand for two machines, and share one limit. The store is a map behind a mutex. A database would need the
//! same two operations on one row: count a request if the window has room for it, and take the count back.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{DecidedBy, Decision, LimitKind, Outcome, SharedDecision, Timestamp};
use tollgate_rules::{
    Config, Descriptor, MayWait, Rules, SharedLimiter, SharedReply, SharedRule, SharedStore,
};

/// The counts of all rules, which clones share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<CountByKey>>);

/// The count of each rule's name, period and key. A load can change the period of a rule.
type CountByKey = HashMap<(Arc<str>, u64, String), Count>;

/// The used units of a key in its present window.
#[derive(Debug, Default)]
struct Count {
    window: u64,
    used: u64,
}

#[derive(Debug)]
struct FixedWindow {
    counts: Counts,
    rule: Arc<str>,
    limit: u64,
    period_ns: u64,
}

impl SharedStore for Counts {
    fn limiter_for(
        &self,
        rule: &SharedRule<'_>,
    ) -> Result<Arc<dyn SharedLimiter>, Box<dyn Error + Send + Sync>> {
        if rule.limit.kind() != LimitKind::FixedWindow || rule.limit.block().is_some() {
            return Err("is on a store that counts fixed windows without blocks".into());
        }
        let period_ns = u64::try_from(rule.limit.quota().period().as_nanos())?;
        let (counts, limit) = (self.clone(), rule.limit.most());
        Ok(Arc::new(FixedWindow { counts, rule: rule.name.into(), limit, period_ns }))
    }
}

impl SharedLimiter for FixedWindow {
    fn check(&self, key: &str, cost: u64, _: bool, _: MayWait) -> SharedReply<SharedDecision> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let (window, passed_ns) = (now_ns / self.period_ns, now_ns % self.period_ns);
        let until_end = Duration::from_nanos(self.period_ns - passed_ns);
        let mut counts = self.counts.0.lock().expect("no thread panics with the lock");
        let count = counts.entry((Arc::clone(&self.rule), self.period_ns, key.to_owned())).or_default();
        if count.window < window {
            *count = Count { window, used: 0 };
        }
        // A load can lower the limit below the used units.
        let outcome = match cost {
            _ if cost > self.limit => Outcome::Never,
            _ if cost > self.limit.saturating_sub(count.used) => Outcome::Denied,
            _ => Outcome::Allowed,
        };
        if outcome == Outcome::Allowed {
            count.used += cost;
        }
        let decision = Decision::made_elsewhere(outcome, cost, self.limit, Timestamp::from_nanos(now_ns))
            .with_figures(self.limit.saturating_sub(count.used), until_end, until_end);
        SharedReply::Now(SharedDecision::new(decision, DecidedBy::Server).with_mark(window))
    }

    fn can_refund(&self) -> bool {
        true
    }

    /// Takes a charge back, unless its window has ended.
    fn refund(&self, key: &str, charge: SharedDecision, _: MayWait) -> SharedReply<()> {
        let mut counts = self.counts.0.lock().expect("no thread panics with the lock");
        let count = counts.get_mut(&(Arc::clone(&self.rule), self.period_ns, key.to_owned()));
        if let Some(count) = count.filter(|count| count.window == charge.mark()) {
            count.used = count.used.saturating_sub(charge.decision().charged());
        }
        SharedReply::Now(())
    }
}

/// In files, `store: redis` names the store that machines share, whatever store the program passes.
const LIMITS: &str = "
domain: shop
tollgate: { store: redis, mode: atomic }
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 3 } }
";

fn main() -> Result<(), Box<dyn Error>> {
    let store = Counts::default();
    let machine = || Rules::builder().shared(store.clone()).load([Config::from_yaml("limits.yaml", LIMITS)?]);
    let machines = [machine()?, machine()?];
    let alice = [Descriptor::new(&[("user", "alice")])];
    for (request, rules) in machines.iter().cycle().take(5).enumerate() {
        let answer = rules.check("shop", &alice);
        let decided = if answer.is_allowed() { "admits" } else { "denies" };
        println!("machine {} {decided} request {}", request % 2 + 1, request + 1);
        assert_eq!(answer.is_allowed(), request < 3);
    }
    Ok(())
}
