//! The budget of a language model with streamed answers: tokens per minute and requests per minute together: `cargo
//! run --example token_budget`.
//!
//! The real cost of a request is known only after its answer has ended. So the request is charged its maximum cost
//! (prompt and longest answer), in both limits or in none. It is settled when the answer ends, when the client
//! disconnects, or after an error. A guard settles when it is dropped, so every exit settles. The program plays some
//! requests with its own clock, prints the result of each, and checks it.

use std::time::Duration;

use tollgate::{Compact, Decision, Gcra, ManualClock, Quota, QuotaError, RateLimiter, check_all};

struct Budget {
    tokens: RateLimiter<Compact, ManualClock>,
    requests: RateLimiter<Compact, ManualClock>,
}

impl Budget {
    fn new(clock: &ManualClock) -> Result<Self, QuotaError> {
        Ok(Self {
            tokens: RateLimiter::builder(Gcra::new(Quota::per_minute(10_000)))
                .overdraft(10_000) // an answer above its charge becomes a debt
                .clock(clock.clone())
                .compact()?,
            requests: RateLimiter::builder(Gcra::new(Quota::per_minute(5))).clock(clock.clone()).compact()?,
        })
    }

    /// Charges the maximum cost of a request.
    ///
    /// # Errors
    /// The answer to the client, which was charged nothing.
    fn begin<'a>(
        &'a self,
        client: &'a str,
        prompt: u64,
        longest_answer: u64,
    ) -> Result<Answering<'a>, String> {
        let most = prompt + longest_answer;
        let tokens = self.tokens.on(client).cost(most).named("tokens");
        let charge = check_all((tokens, self.requests.on(client).named("requests")));
        match (charge.denied_by_name(), charge.retry_after()) {
            (None, _) => Ok(Answering { budget: self, client, charge: charge.each()[0], used: prompt }),
            (Some(name), Some(wait)) => Err(format!("429: too few {name} are left, retry after {wait:.1?}")),
            (Some(_), None) => Err(format!("400: {most} tokens exceed the limit of a minute")),
        }
    }
}

/// A request whose answer is being sent. It settles when it is dropped.
struct Answering<'a> {
    budget: &'a Budget,
    client: &'a str,
    charge: Decision,
    used: u64,
}

impl Answering<'_> {
    /// Records that a piece of the answer was sent.
    fn sent(&mut self, tokens: u64) {
        self.used += tokens;
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        // If the real cost is higher than the charge, the difference is charged now, even without room. If it is
        // lower, the difference is returned, unless time has already paid for it.
        self.budget.tokens.settle(self.client, &self.charge, self.used);
    }
}

fn main() -> Result<(), QuotaError> {
    // A clock that this example moves; leave it out in a server.
    let clock = ManualClock::default();
    let budget = Budget::new(&clock)?;
    let left = |client: &str| budget.tokens.peek(client).remaining();
    let show = |client: &str, what: &str| println!("{client}: {what}; {} tokens are left", left(client));

    // A whole answer, in five pieces within a second: 1,000 of 4,000 tokens.
    let mut answer = budget.begin("alice", 500, 3_500).expect("a new client has room");
    show("alice", "4,000 are charged");
    assert_eq!(left("alice"), 6_000);
    for _ in 0..5 {
        clock.advance(Duration::from_millis(200));
        answer.sent(100);
    }
    drop(answer);
    show("alice", "used 1,000, settled");
    assert!((9_000..=9_200).contains(&left("alice"))); // 167 tokens refill in a second

    // Two requests at once: the second cannot use the tokens that the first may still need.
    let first = budget.begin("bob", 1_000, 5_000).expect("a new client has room");
    let second = budget.begin("bob", 1_000, 5_000).err();
    println!("bob: his second request at the same time: {second:?}");
    assert!(second.is_some_and(|told| told.contains("tokens")));

    // The client disconnects. Tokens that were not sent are not charged.
    clock.advance(Duration::from_secs(1));
    drop(first);
    show("bob", "disconnected after his prompt of 1,000");
    assert!(left("bob") >= 9_000);

    // The answer is longer than allowed. This leaves a debt, and no request is admitted until a part of it is paid.
    let mut answer = budget.begin("carol", 1_000, 8_000).expect("a new client has room");
    answer.sent(12_000);
    drop(answer);
    show("carol", "used 13,000 tokens, 9,000 were charged");
    let told = budget.begin("carol", 10, 10).err();
    println!("carol: her next request: {told:?}");
    assert!(told.is_some());
    clock.advance(Duration::from_secs(19));
    assert!(budget.begin("carol", 10, 10).is_ok()); // 3,000 tokens refill in 18 s

    // Small requests reach the other limit, and then are charged no tokens.
    let small = (0..6).map(|_| budget.begin("dave", 10, 0)).filter(Result::is_ok).count();
    let told = budget.begin("dave", 10, 0).err();
    println!("dave: {small} small requests were admitted; the next: {told:?}");
    assert_eq!((small, left("dave")), (5, 9_950));

    let told = budget.begin("erin", 4_000, 8_000).err();
    println!("erin: {told:?}");
    assert!(told.is_some_and(|told| told.starts_with("400")));
    Ok(())
}
