//! The descriptors of a rate limit service call, and the limits of a joint call.

use std::fmt::Write as _;

use serde_json::Value;
use tollgate::{Capacity, Gcra, RateLimiter, check_all};
use tollgate_rules::{Config, Descriptor, Rules};

use crate::limiters::{GovernorOf, PLENTY, call, governor, quota, turn};
use crate::subject::Contender;
use crate::support::{XorShift, key, length};
use crate::{Point, Scale};

const CLIENTS: u64 = 1_000;
/// The calls with one limit in a turn. Larger calls are fewer.
const CALLS: u64 = 400_000;

/// A row before it is measured: its subject, its size and its contender.
type Row<K> = (&'static str, u64, Box<dyn Contender<K>>);

/// Measures rows in turns. `stream` makes the keys of a row's turns.
fn in_turns<K: Sync>(
    chart: &'static str,
    rows: Vec<Row<K>>,
    scale: Scale,
    stream: impl Fn(u64) -> Vec<K>,
) -> Vec<Point> {
    let mut rows: Vec<_> = rows
        .into_iter()
        .map(|(subject, x, contender)| {
            let point = Point { chart, subject, x, ns: Vec::new(), more: Value::Null };
            (point, contender, vec![stream(x)])
        })
        .collect();
    for round in 0..=scale.rounds {
        for (point, contender, stream) in &mut rows {
            let calls = CALLS / scale.divisor / point.x;
            let ns = turn(&**contender, stream, calls);
            // Round 0 only warms up.
            if round > 0 {
                point.ns.push(ns);
            }
        }
    }
    rows.into_iter().map(|(point, ..)| point).collect()
}

/// A service call with several descriptors.
struct Call {
    client: String,
    descriptors: Vec<Descriptor<'static>>,
}

/// Which rules the descriptors of a call find.
#[derive(Copy, Clone)]
enum Finds {
    /// One descriptor for each of the first rules of the file, all with the client's address.
    Each,
    /// All of them the first rule, each with another address.
    One,
}

impl Call {
    fn new(client: u64, size: u64, finds: Finds) -> Self {
        // The descriptors of a bench may live until the process ends.
        let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let address = |n: u64| format!("203.{n}.{}.{}", client / 256, client % 256);
        let entries = |n| match finds {
            Finds::Each => &*Box::leak(Box::new([(leak(format!("key{n}")), leak(address(0)))])),
            Finds::One => Box::leak(Box::new([("key0", leak(address(n)))])),
        };
        let descriptors = (0..size).map(|n| Descriptor::new(entries(n))).collect();
        Self { client: address(0), descriptors }
    }
}

pub(crate) fn descriptors(scale: Scale) -> Vec<Point> {
    const MOST: u64 = 64;
    let mut text = "domain: bench\ntollgate: {}\ndescriptors:\n".to_owned();
    for n in 0..MOST {
        let limit =
            "rate_limit: { unit: second, requests_per_unit: 10000000, algorithm: gcra, burst: 30000000 }";
        writeln!(text, "  - {{ key: key{n}, {limit} }}").expect("writing to a String never fails");
    }
    let config = Config::from_yaml("bench.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
    let rules = Rules::builder().load([config]).unwrap_or_else(|error| panic!("{error}"));
    let rules = std::sync::Arc::new(rules);
    let sizes = [1, 2, 3, 4, 8, 16, 32, MOST];
    let check = || {
        let rules = rules.clone();
        call(move |call: &Call| rules.check("bench", &call.descriptors).is_allowed())
    };
    let mut rows: Vec<Row<Call>> = Vec::new();
    for size in sizes {
        rows.push(("tollgate rules", size, check()));
        let limiters: Vec<GovernorOf<String>> = (0..size).map(|_| governor(PLENTY)).collect();
        let check =
            call(move |call: &Call| limiters.iter().all(|limiter| limiter.check_key(&call.client).is_ok()));
        rows.push(("governor, one after the other", size, check));
    }
    let stream = |finds| move |size| (0..CLIENTS).map(|client| Call::new(client, size, finds)).collect();
    let mut points = in_turns("descriptors", rows, scale, stream(Finds::Each));
    let rows = sizes.map(|size| ("tollgate rules", size, check())).into();
    points.extend(in_turns("descriptors of one rule", rows, scale, stream(Finds::One)));
    points
}

fn compact() -> RateLimiter {
    let builder = RateLimiter::builder(Gcra::new(quota(PLENTY)));
    builder.capacity(Capacity::slots(length(CLIENTS) * 4)).compact().expect("the quota fits in a slot's word")
}

/// The row of a joint call whose limits are a tuple.
macro_rules! tuple {
    ($rows:ident, $size:literal: $($index:literal)+) => {
        let limiters: [RateLimiter; $size] = std::array::from_fn(|_| compact());
        let joint = move |key: &u64| check_all(($(limiters[$index].on(key),)+)).is_allowed();
        $rows.push(("tollgate joint call", $size, call(joint)));
    };
}

/// The other rows of a number of limits.
fn limits_of<const N: usize>(size: u64, rows: &mut Vec<Row<u64>>) {
    let limiters: [RateLimiter; N] = std::array::from_fn(|_| compact());
    let joint = move |key: &u64| check_all(limiters.each_ref().map(|limiter| limiter.on(key))).is_allowed();
    let singles: [RateLimiter; N] = std::array::from_fn(|_| compact());
    let single = move |key: &u64| singles.iter().all(|limiter| limiter.check(key).is_allowed());
    let others: [GovernorOf<u64>; N] = std::array::from_fn(|_| governor(PLENTY));
    let other = move |key: &u64| others.iter().all(|limiter| limiter.check_key(key).is_ok());
    rows.push(("tollgate joint call, array", size, call(joint)));
    rows.push(("tollgate, one after the other", size, call(single)));
    rows.push(("governor, one after the other", size, call(other)));
}

pub(crate) fn limits(scale: Scale) -> Vec<Point> {
    let mut rows = Vec::new();
    tuple!(rows, 1: 0);
    tuple!(rows, 2: 0 1);
    tuple!(rows, 4: 0 1 2 3);
    tuple!(rows, 8: 0 1 2 3 4 5 6 7);
    limits_of::<1>(1, &mut rows);
    limits_of::<2>(2, &mut rows);
    limits_of::<4>(4, &mut rows);
    limits_of::<8>(8, &mut rows);
    limits_of::<16>(16, &mut rows);
    let mut random = XorShift::new(16);
    let keys: Vec<u64> = (0..1 << 14).map(|_| key(random.below(CLIENTS))).collect();
    in_turns("limits", rows, scale, |_| keys.clone())
}
