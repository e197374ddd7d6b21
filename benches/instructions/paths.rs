//! The hot paths. Each path is its own function, so that callgrind reports it separately.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ahash::RandomState;
use http::{Request, Response, StatusCode};
use tollgate::{
    Capacity, Compact, Direct, FixedWindow, Gcra, Keyed, ManualClock, Quota, RateLimiter, Sketch, Timestamp,
    WhenFull, joint::AllOf, leases::Striped,
};
use tollgate_rules::{Config, Descriptor, Rules};
use tollgate_tower::{ClientIp, KeyExtractor as _, PeerAddr, RateLimitLayer};
use tower::{Layer, Service};

use crate::support::{key, text};

/// Counted checks of each path.
pub(crate) const CALLS: u32 = 4_096;
/// Keys that the checks use.
const KEYS: u32 = 1_024;
const BATCH: usize = 16;
const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
/// A quota that no key uses up.
const PLENTY: Quota = Quota::per_minute(60).burst(1_000_000);
/// A quota that the first check uses up for an hour.
const ONE: Quota = Quota::per_hour(1);

/// Defines the paths. A path is a closure that takes the number of a check and returns whether the check was admitted.
/// `run` first calls it once for each key, uncounted, and then makes the counted calls.
macro_rules! paths {
    ($($(#[$doc:meta])* $name:ident, $answer:literal, $build:expr;)*) => {
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            mod $name {
                $(#[$doc])*
                #[inline(never)]
                pub(super) fn counted(check: &mut impl FnMut(u32) -> bool) -> u32 {
                    // Without this, the compiler could merge functions with the same code.
                    super::black_box(stringify!($name));
                    let mut admitted = 0;
                    for number in super::KEYS..super::KEYS + super::CALLS {
                        admitted += u32::from(check(super::black_box(number)));
                    }
                    admitted
                }
            }
        )*

        /// Runs all paths, and asserts that all counted checks of a path have the expected answer.
        pub(crate) fn run() {
            $({
                let mut check = $build;
                for number in 0..KEYS {
                    black_box(check(number));
                }
                let admitted = $name::counted(&mut check);
                assert_eq!(admitted, CALLS * u32::from($answer), stringify!($name));
            })*
        }
    };
}

paths! {
    /// A key with a debt and with units left.
    compact_allowed, true, {
        let limiter = compact(PLENTY);
        move |number| limiter.at(NOW).check(&known(number)).is_allowed()
    };
    /// A key without units left.
    compact_denied, false, {
        let limiter = compact(ONE);
        move |number| limiter.at(NOW).check(&known(number)).is_allowed()
    };
    /// String keys of 24 bytes.
    compact_str, true, {
        let (limiter, keys) = (compact(PLENTY), texts());
        move |number| limiter.at(NOW).check(keys[index(number)].as_str()).is_allowed()
    };
    /// Only new keys.
    compact_new_key, true, {
        let limiter = compact(PLENTY);
        move |number| limiter.at(NOW).check(&key(u64::from(number))).is_allowed()
    };
    /// Sixteen keys in one batch. Only every sixteenth call does the work, so the count per call is the cost of one
    /// check.
    compact_batch_of_16, true, {
        let limiter = compact(PLENTY);
        let mut batch = [0; BATCH];
        move |number| {
            let place = number as usize % BATCH;
            batch[place] = known(number);
            let mut admitted = true;
            if place + 1 == BATCH {
                limiter.check_each(batch.iter().map(|key| (key, 1)), |decision| admitted &= decision.is_allowed());
            }
            admitted
        }
    };
    /// With the limiter's clock instead of a given time. Here the clock is a `ManualClock`, so a reading is only one
    /// load.
    compact_by_clock, true, {
        let limiter = compact(PLENTY);
        move |number| limiter.check(&known(number)).is_allowed()
    };
    direct_allowed, true, {
        let limiter = direct(PLENTY);
        move |_| limiter.at(NOW).check().is_allowed()
    };
    direct_denied, false, {
        let limiter = direct(ONE);
        let _ = limiter.at(NOW).check();
        move |_| limiter.at(NOW).check().is_allowed()
    };
    keyed_allowed, true, {
        let limiter = keyed(PLENTY);
        move |number| limiter.at(NOW).check(&known(number)).is_allowed()
    };
    keyed_denied, false, {
        let limiter = keyed(ONE);
        move |number| limiter.at(NOW).check(&known(number)).is_allowed()
    };
    /// Only new keys, in a store that grows.
    keyed_new_key, true, {
        let limiter = keyed(PLENTY);
        move |number| limiter.at(NOW).check(&key(u64::from(number))).is_allowed()
    };
    /// Only new keys, each of which replaces another one.
    keyed_at_cap, true, {
        let builder = RateLimiter::builder(Gcra::new(PLENTY)).hasher(hasher());
        let limiter = builder.max_keys(KEYS as usize, WhenFull::Forget).keyed::<u64>();
        move |number| limiter.at(NOW).check(&key(u64::from(number))).is_allowed()
    };
    sketch_allowed, true, {
        let limiter = sketch(Quota::per_minute(1_000_000));
        move |number| limiter.at(NOW).check(&known(number)).is_allowed()
    };
    sketch_denied, false, {
        let limiter = sketch(ONE);
        move |number| limiter.at(NOW).check(&known(number)).is_allowed()
    };
    /// A limit whose counters fit twice into each of two words.
    sketch_hundred_allowed, true, {
        let limiter = sketch(Quota::per_minute(100));
        move |number| limiter.at(NOW).check(&known(number)).is_allowed()
    };
    /// A limit that the counters have reached.
    sketch_hundred_denied, false, {
        let limiter = sketch(Quota::per_minute(100));
        (0..KEYS).for_each(|number| assert!(limiter.at(NOW).check_n(&known(number), 100).is_allowed()));
        move |number| limiter.at(NOW).check(&known(number)).is_allowed()
    };
    striped_allowed, true, {
        let limiter = striped(PLENTY);
        move |_| limiter.at(NOW).check().is_allowed()
    };
    striped_denied, false, {
        let limiter = striped(ONE);
        let _ = limiter.at(NOW).check();
        move |_| limiter.at(NOW).check().is_allowed()
    };
    check_all_of_two, true, {
        let (first, second) = (compact(PLENTY), compact(PLENTY));
        move |number| {
            let key = known(number);
            AllOf::new((first.on(&key), second.on(&key))).at(NOW).check().is_allowed()
        }
    };
    /// One rule, keyed by the client's address.
    rules_one, true, {
        let (rules, clients) = (rules(PER_ADDRESS), texts());
        move |number| {
            let entry = [("remote_address", clients[index(number)].as_str())];
            rules.at(NOW).check("bench", &[Descriptor::new(&entry)]).is_allowed()
        }
    };
    /// A query of one rule: nothing is charged.
    rules_query, true, {
        let (rules, clients) = (rules(PER_ADDRESS), texts());
        move |number| {
            let entry = [("remote_address", clients[index(number)].as_str())];
            rules.at(NOW).check_n("bench", &[Descriptor::new(&entry)], 0).is_allowed()
        }
    };
    /// A denial that one rule also counts.
    rules_count_denials, false, {
        let once = "{ key: remote_address, rate_limit: { unit: hour, requests_per_unit: 1 } }";
        let (rules, clients) = (rules_with("charging: count-denials", once), texts());
        move |number| {
            let entry = [("remote_address", clients[index(number)].as_str())];
            let descriptors = [Descriptor::new(&entry)];
            let _ = number < KEYS && rules.at(NOW).check("bench", &descriptors).is_allowed();
            rules.at(NOW).check("bench", &descriptors).is_allowed()
        }
    };
    /// Three rules of a request with three descriptors.
    rules_three, true, {
        let parts = "{ key: a, rate_limit: { unit: minute, requests_per_unit: 100000000 } }, \
             { key: b, rate_limit: { unit: hour, requests_per_unit: 100000000 } }";
        let (rules, clients) = (rules(&format!("{PER_ADDRESS}, {parts}")), texts());
        move |number| {
            let client = clients[index(number)].as_str();
            let entries = ["remote_address", "a", "b"].map(|key| [(key, client)]);
            rules.at(NOW).check("bench", &entries.each_ref().map(|entry| Descriptor::new(entry))).is_allowed()
        }
    };
    /// One rule with limits for three prefixes of the address.
    rules_three_prefixes, true, {
        let steps = "32: { unit: minute, requests_per_unit: 1000000, algorithm: gcra }, \
             24: { unit: minute, requests_per_unit: 10000000 }, 16: { unit: second, requests_per_unit: 10000000 }";
        let rules = rules(&format!("{{ key: remote_address, prefixes: {{ ipv4: {{ {steps} }}, ipv6: {{ {steps} }} }} }}"));
        let clients: Vec<String> = (0..KEYS).map(address).collect();
        move |number| {
            let entry = [("remote_address", clients[index(number)].as_str())];
            rules.at(NOW).check("bench", &[Descriptor::new(&entry)]).is_allowed()
        }
    };
    /// One rule of a range, keyed by the address.
    rules_range, true, {
        let rules = rules(&PER_ADDRESS.replace("remote_address,", "remote_address, ranges: [203.0.0.0/16],"));
        let clients: Vec<String> = (0..KEYS).map(address).collect();
        move |number| {
            let entry = [("remote_address", clients[index(number)].as_str())];
            rules.at(NOW).check("bench", &[Descriptor::new(&entry)]).is_allowed()
        }
    };
    /// The middleware around a service that answers immediately, keyed by the peer's address. The requests are built
    /// beforehand.
    layer_by_peer, true, {
        let layer = RateLimitLayer::new(compact(PLENTY), ClientIp::peer()).policy("per-client", PLENTY);
        let (mut service, mut requests) = (layer.layer(Inner), requests());
        move |_| ask(&mut service, requests.pop().expect("there is one request for each check")) == StatusCode::OK
    };
    /// The same with two rules of a file: one per client, and one per client and path.
    layer_two_rules, true, {
        let client = ClientIp::peer();
        let layer = RateLimitLayer::rules(Arc::new(two_rules()), "bench", move |head, descriptors| {
            let address = client.key(head)?;
            descriptors.begin().address("remote_address", address);
            descriptors.begin().entry("path", head.path()).address("remote_address", address);
            Some(())
        });
        let layer = layer.unwrap_or_else(|error| panic!("{error}"));
        let (mut service, mut requests) = (layer.layer(Inner), requests());
        move |_| ask(&mut service, requests.pop().expect("there is one request for each check")) == StatusCode::OK
    };
}

fn index(number: u32) -> usize {
    (number % KEYS) as usize
}

/// Returns the key of a check. The keys repeat after `KEYS` checks.
fn known(number: u32) -> u64 {
    key(u64::from(number % KEYS))
}

fn texts() -> Vec<String> {
    (0..u64::from(KEYS)).map(text).collect()
}

fn address(number: u32) -> String {
    let [.., high, low] = number.to_be_bytes();
    format!("203.0.{high}.{low}")
}

fn hasher() -> RandomState {
    RandomState::with_seeds(1, 2, 3, 4)
}

fn compact(quota: Quota) -> RateLimiter<Compact, ManualClock> {
    let builder = RateLimiter::builder(Gcra::new(quota)).clock(ManualClock::new(NOW)).hasher(hasher());
    // Four slots for each key, including the new keys, as in `peers.rs`.
    builder.capacity(Capacity::slots(4 * (KEYS + CALLS) as usize)).compact().expect("the capacity is valid")
}

fn direct(quota: Quota) -> RateLimiter<Direct> {
    RateLimiter::direct(Gcra::new(quota))
}

/// Makes a limiter with two stripes on any machine.
fn striped(quota: Quota) -> RateLimiter<Striped> {
    RateLimiter::builder(Gcra::new(quota)).stripes(2).striped()
}

fn keyed(quota: Quota) -> RateLimiter<Keyed<u64>> {
    RateLimiter::builder(Gcra::new(quota)).hasher(hasher()).keyed()
}

fn sketch(quota: Quota) -> RateLimiter<Sketch> {
    let builder = RateLimiter::builder(FixedWindow::new(quota)).hasher(hasher());
    builder.capacity(Capacity::memory(1 << 20)).sketch().expect("the capacity is valid")
}

const PER_ADDRESS: &str =
    "{ key: remote_address, rate_limit: { unit: minute, requests_per_unit: 1000000, algorithm: gcra } }";

fn rules(descriptors: &str) -> Rules<ManualClock> {
    rules_with("", descriptors)
}

fn rules_with(options: &str, descriptors: &str) -> Rules<ManualClock> {
    let text = format!("{{ domain: bench, tollgate: {{ {options} }}, descriptors: [ {descriptors} ] }}");
    let config = Config::from_yaml("bench.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
    let rules = Rules::builder().clock(ManualClock::new(NOW)).load([config]);
    rules.unwrap_or_else(|error| panic!("{error}"))
}

/// A GCRA limit per address, and a window per address at one path.
fn two_rules() -> Rules<ManualClock> {
    rules(&format!(
        "{PER_ADDRESS}, {{ key: path, value: /, descriptors: [ \
         {{ key: remote_address, rate_limit: {{ unit: minute, requests_per_unit: 100000000 }} }} ] }}"
    ))
}

/// A service that answers immediately.
#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(())))
    }
}

fn ask<B>(
    service: &mut impl Service<Request<()>, Response = Response<B>>,
    request: Request<()>,
) -> StatusCode {
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    match pin!(service.call(request)).poll(&mut context) {
        Poll::Ready(Ok(response)) => response.status(),
        _ => panic!("the future must be ready at the first poll"),
    }
}

/// Builds a request for each check, including the checks that warm up.
fn requests() -> Vec<Request<()>> {
    let request = |number: u32| {
        let [.., high, low] = (number % KEYS).to_be_bytes();
        let peer = PeerAddr(SocketAddr::from(([203, 0, high, low], 443)));
        Request::builder().uri("/").extension(peer).body(()).expect("a valid request")
    };
    (0..KEYS + CALLS).map(request).collect()
}
