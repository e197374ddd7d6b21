//! Protects a login against guessed passwords: `cargo run --example login`.
//!
//! Each attempt has three limits, which are charged together or not at all:
//!
//! - *account and network*: five wrong passwords in any quarter of an hour, exactly. It uses a log, because the
//!   number is small.
//! - *network*: an IPv4 address, or the /64 network of an IPv6 client. A wrong password costs five units and a right
//!   one costs nothing. So an office is not limited, but a client that tries one password on many accounts is.
//! - *account*: thirty attempts a day from anywhere, against attackers with many networks. Devices that have logged
//!   in before are exempt. Otherwise an attacker could lock any user out.
//!
//! Attempts are charged *before* the password is checked, so a thousand parallel attempts are not a thousand guesses.
//! A correct password returns the charge afterwards. Accounts that do not exist are treated like existing ones. A
//! denied client does not learn which limit denied it.
//!
//! The program plays five scenes with its own clock, prints the result of each, and checks it.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tollgate::{Compact, check_all};
use tollgate::{Gcra, Keyed, ManualClock, Quota, QuotaError, RateLimiter, SlidingLog, Timestamp, WhenFull};

/// The cost of a wrong password for its network, which has forty units and regains one each minute.
const WRONG: u64 = 5;

struct Guard {
    by_pair: RateLimiter<Keyed<(String, IpAddr), SlidingLog>, ManualClock>,
    by_network: RateLimiter<Compact, ManualClock>,
    by_account: RateLimiter<Keyed<String>, ManualClock>,
}

/// The answer to the client, which contains nothing else.
#[derive(Debug, PartialEq)]
enum Answer {
    Welcome,
    /// For a wrong password, and also for an account that does not exist.
    WrongPassword,
    /// Status 429, with `Retry-After` in whole seconds.
    TooMany(u64),
}

impl Guard {
    fn new(clock: &ManualClock) -> Result<Self, QuotaError> {
        // Clients can invent names, so the number of keys has a cap. The key with the smallest debt is evicted first.
        const NAMES: usize = 100_000;
        Ok(Self {
            by_pair: RateLimiter::builder(SlidingLog::try_new("5/15min".parse()?)?)
                .clock(clock.clone())
                .max_keys(NAMES, WhenFull::Forget)
                .keyed(),
            by_network: RateLimiter::builder(Gcra::new(Quota::per_hour(60).burst(40)))
                .clock(clock.clone())
                .overdraft(2 * WRONG) // the last wrong password may cost more than the rest
                .compact()?,
            by_account: RateLimiter::builder(Gcra::new(Quota::per_day(30)))
                .clock(clock.clone())
                .max_keys(NAMES, WhenFull::Forget)
                .keyed(),
        })
    }

    /// `known`: the client has a signed cookie from an earlier login to this account.
    fn log_in(&self, from: &str, known: bool, account: &str, password: &str) -> Answer {
        let network = network(from.parse().expect("the peer's address is valid"));
        let account = account.to_lowercase(); // otherwise each spelling has a separate limit
        let pair = (account.clone(), network);

        let by_network = self.by_network.on(&network).named("network");
        let by_pair = self.by_pair.on(&pair).named("account and network");
        let by_account = self.by_account.on(account.as_str()).named("account");
        // The limits that can return a charge come first in `each`. For a known device, the account's limit is only
        // peeked.
        let attempt = check_all((by_network, by_account.cost(u64::from(!known)), by_pair));
        if attempt.is_denied() {
            // `attempt.denied_by_name()` is for the operator's log only.
            let wait = attempt.retry_after().unwrap_or(Duration::from_secs(86_400));
            return Answer::TooMany(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        }
        if !is_right(&account, password) {
            self.by_network.charge_unchecked(&network, WRONG - 1);
            return Answer::WrongPassword;
        }
        // The owner logged in: the account and the network get their charges back.
        self.by_network.refund(&network, &attempt.each()[0]);
        self.by_account.refund(account.as_str(), &attempt.each()[1]);
        self.by_pair.reset(&pair);
        Answer::Welcome
    }
}

/// Maps the addresses of one client to one: an IPv6 address to its /64 network, and an IPv4 address in IPv6 form to
/// IPv4. (`tollgate_tower::ClientIp` does this, and reads proxies' header fields.)
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// In a server, hash the password in every case. If the account does not exist, compare with a fixed hash, so that
/// both cases take the same time.
fn is_right(account: &str, password: &str) -> bool {
    password == format!("{account}'s secret")
}

fn main() -> Result<(), QuotaError> {
    let clock = ManualClock::new(Timestamp::from_secs(1_800_000_000));
    let guard = Guard::new(&clock)?;
    let home = "2001:db8:1:2::17";

    println!("Alice mistypes her password twice, and then types it correctly:");
    for password in ["alices secret", "alice secret", "alice's secret"] {
        println!("    {password:<16} {:?}", guard.log_in(home, false, "Alice", password));
    }
    assert_eq!(guard.log_in(home, true, "alice", "alice's secret"), Answer::Welcome);

    println!("An attacker guesses, each time from another address of one /64:");
    let mut answers = Vec::new();
    for guess in 0..8 {
        let from = format!("2001:db8:bad:1::{guess:x}");
        answers.push(guard.log_in(&from, false, "alice", &format!("guess {guess}")));
        println!("    {from:<20} {:?}", answers[guess]);
        clock.advance(Duration::from_secs(10));
    }
    // Exactly five are admitted. The wait lasts until the first of them is a quarter of an hour old.
    assert_eq!(answers[4..6], [Answer::WrongPassword, Answer::TooMany(15 * 60 - 50)]);
    let (real, made_up) = ("bob", "no-such-user");
    let ask = |account| guard.log_in("198.51.100.200", false, account, "guess");
    assert_eq!(ask(real), ask(made_up));

    println!("An attacker tries one password on a hundred accounts, from one address:");
    let spray = |n| guard.log_in("198.51.100.9", false, &format!("user{n}"), "Summer2026!");
    let answers: Vec<_> = (0..100).map(spray).collect();
    let tried = answers.iter().filter(|answer| **answer == Answer::WrongPassword).count();
    println!("    {tried} attempts were checked; then the answer is {:?}", answers[tried]);
    assert_eq!(tried, 8); // 40 units, 5 for each password

    println!("Two hundred people in an office log in at nine o'clock, from one address:");
    let enter = |n| {
        let account = format!("colleague{n}");
        guard.log_in("203.0.113.80", false, &account, &format!("{account}'s secret"))
    };
    let welcome = (0..200).filter(|&n| enter(n) == Answer::Welcome).count();
    println!("    {welcome} are logged in");
    assert_eq!(welcome, 200);

    println!("Five hundred machines guess at Alice's password, one guess each:");
    let guess = |n: u32| guard.log_in(&format!("10.{}.{}.1", n / 250, n % 250), false, "alice", "guess");
    let tried = (0..500).filter(|&n| guess(n) == Answer::WrongPassword).count();
    let from_home = guard.log_in(home, true, "alice", "alice's secret");
    println!("    {tried} attempts were checked; Alice, from a known device: {from_home:?}");
    assert!(tried <= 30, "{tried} attempts were checked, and the account's limit is thirty a day");
    assert_eq!(from_home, Answer::Welcome);
    Ok(())
}
