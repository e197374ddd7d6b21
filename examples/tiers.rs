//! Tenants with plans, on one limiter: `cargo run --example tiers`.
//!
//! Plans and tenants come from a table. A change of the table takes effect from the next request on, for one tenant
//! (an upgrade, an exception) or for all tenants of a plan. The limiter stays the same, and tenants keep their state:
//! a tenant owes the time of its requests under the old plan, unless you forgive the debt. The program prints the
//! answers to a few tenants, and checks them.
//!
//! The caller passes a tenant's quota with each check. So the state is one word and a key, for any number of plans.

use std::collections::HashMap;
use std::error::Error;
use std::sync::RwLock;

use tollgate::{
    Algorithm, Clock, Decision, Gcra, Keyed, ManualClock, Quota, RateLimiter, Timestamp, WhenFull,
};

const TABLE: &str = "
plan    free        10/min
plan    team        60/min burst 100
plan    enterprise  1000/min

tenant  ada         free
tenant  bob         team
tenant  big-corp    enterprise
tenant  carol       25/min burst 50     # an agreement of her own
";

struct Tenants {
    limiter: RateLimiter<Keyed<String>, ManualClock>,
    /// The prepared plan of each tenant. A tenant without a row has the first plan, which is the limiter's own. The
    /// code reads the map for each request; a server with much traffic would use `ArcSwap` here.
    plans: RwLock<HashMap<String, Gcra>>,
}

impl Tenants {
    fn new(table: &str, clock: ManualClock) -> Result<Self, Box<dyn Error>> {
        let free: Quota = table
            .lines()
            .find_map(|line| line.strip_prefix("plan")?.trim().strip_prefix("free"))
            .ok_or("the table has no plan called free")?
            .parse()?;
        let limiter = RateLimiter::builder(Gcra::new(free))
            .clock(clock)
            .max_keys(100_000, WhenFull::Forget) // tenants are authenticated, so clients cannot invent keys
            .keyed();
        let tenants = Self { limiter, plans: RwLock::default() };
        tenants.load(table)?;
        Ok(tenants)
    }

    /// Puts a table in force: the whole table, or nothing if it contains a mistake.
    fn load(&self, table: &str) -> Result<(), Box<dyn Error>> {
        let (mut plans, mut tenants) = (HashMap::new(), HashMap::new());
        for line in table.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
            let mut words =
                line.splitn(3, char::is_whitespace).map(str::trim).filter(|word| !word.is_empty());
            let Some(kind) = words.next() else { continue };
            let (name, rest) = line[kind.len()..]
                .trim()
                .split_once(char::is_whitespace)
                .ok_or("a row needs three columns")?;
            let rest = rest.trim();
            // The same algorithm with another quota. It reads the state that the limiter's own algorithm has written.
            let gcra = match plans.get(rest) {
                Some(plan) => *plan,
                None => self.limiter.algorithm().requota(&rest.parse::<Quota>()?)?,
            };
            match kind {
                "plan" => plans.insert(name.to_owned(), gcra),
                "tenant" => tenants.insert(name.to_owned(), gcra),
                other => return Err(format!("a row must start with plan or tenant, not {other}").into()),
            };
        }
        *self.plans.write().expect("no thread panics while it holds the lock") = tenants;
        Ok(())
    }

    fn check(&self, tenant: &str, cost: u64) -> Decision {
        let plan = self.plans.read().expect("no thread panics while it holds the lock").get(tenant).copied();
        match plan {
            Some(plan) => self.limiter.at(self.limiter.clock().now()).check_with(tenant, cost, &plan),
            None => self.limiter.check_n(tenant, cost),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // A manual clock, so that the output is the same every time; leave it out in a server.
    let tenants = Tenants::new(TABLE, ManualClock::new(Timestamp::from_secs(1_800_000_000)))?;
    let ask = |tenant: &str, cost| {
        let decision = tenants.check(tenant, cost);
        match decision.retry_after() {
            _ if decision.is_allowed() => println!(
                "{tenant:<9} {cost:>4}: admitted; {} of {} are left",
                decision.remaining(),
                decision.limit()
            ),
            Some(wait) => println!("{tenant:<9} {cost:>4}: 429, retry after {wait:?}"),
            None => println!(
                "{tenant:<9} {cost:>4}: never admitted; the plan admits at most {} at once",
                decision.limit()
            ),
        }
        decision
    };
    assert_eq!(ask("ada", 8).remaining(), 2);
    assert!(ask("ada", 8).is_denied());
    assert_eq!(ask("bob", 90).remaining(), 10);
    assert!(ask("carol", 60).is_never());
    assert_eq!(ask("big-corp", 600).remaining(), 400);
    assert!(ask("new-one", 10).is_allowed()); // a tenant without a row has the free plan

    println!(
        "ada buys the plan team; she owes 8 requests at 10 a minute, which is 48 s, or 48 units of the new plan"
    );
    tenants.load(&TABLE.replace("ada         free", "ada         team"))?;
    assert_eq!(ask("ada", 8).remaining(), 100 - 48 - 8);
    assert_eq!(ask("bob", 5).remaining(), 5); // other tenants keep their state
    println!("ada's debt is forgiven");
    tenants.limiter.reset("ada");
    assert_eq!(ask("ada", 8).remaining(), 92);

    println!(
        "a table with a mistake changes nothing: {}",
        tenants.load("plan free 10/sometimes").unwrap_err()
    );
    assert_eq!(ask("ada", 50).remaining(), 42);
    Ok(())
}
