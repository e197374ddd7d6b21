//! A set of servers changes, with servers in this process.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{ManualClock, Quota, Timestamp};
use tollgate_redis::{AtomicLimiter, Blocking, InProcess, Limit, Shards};
use tollgate_testing::limits::all_kinds;

use super::{named, set};

const LIMIT: u64 = 10;
const HOUR: Duration = Duration::from_secs(3_600);
/// 1,000 seconds after the beginning of an hour.
const START: Timestamp = Timestamp::from_secs(1_699_999_200 + 1_000);

fn servers() -> (ManualClock, [InProcess; 3]) {
    let clock = ManualClock::new(START);
    let servers = std::array::from_fn(|_| InProcess::new(clock.clone()));
    (clock, servers)
}

/// The set of all servers, which replaces the set of the first two.
fn grown(all: &[InProcess; 3], during: Duration) -> InProcess {
    InProcess::sharded(Shards::new(named(all)).previous(named(&all[..2]), during)).expect("the set is valid")
}

macro_rules! admitted {
    ($limiter:expr, $key:expr, $times:expr) => {
        (0..$times).filter(|_| $limiter.check($key).is_allowed()).count() as u64
    };
}

/// The control of the tests below: without the previous set, each key that moves gets one more budget, and no more.
// G97
#[test]
fn moved_key_gets_one_more_budget_without_previous_set() {
    for limit in &all_kinds(Quota::per_hour(LIMIT))[..11] {
        let (_, all) = servers();
        let old = set(&all[..2]).blocking().limiter("api", *limit).atomic().unwrap();
        let new = set(&all).blocking().limiter("api", *limit).atomic().unwrap();
        let mut moved = 0;
        for key in 0..300_u32 {
            assert_eq!(admitted!(old, &key, 2 * LIMIT), LIMIT);
            match admitted!(new, &key, 2 * LIMIT) {
                LIMIT => moved += 1,
                more => assert_eq!(more, 0, "{limit}: a key that stays"),
            }
        }
        // A third of the keys move; the standard deviation is 8.2.
        assert!((67..=133).contains(&moved), "{limit}: {moved} of 300 keys moved");
        assert_eq!(all[2].keys(), moved);
    }
}

#[test]
fn key_with_two_limits_keeps_both_budgets() {
    let (clock, all) = servers();
    let both = |client: InProcess| {
        let builder = client.blocking().limiter("api", Limit::gcra(Quota::per_second(1).burst(5)));
        builder.and(Limit::sliding_window(Quota::per_hour(7))).atomic().unwrap()
    };
    let old = both(set(&all[..2]));
    for key in 0..100_u32 {
        assert_eq!(admitted!(old, &key, 9), 5);
    }
    // The burst refills. The window does not.
    clock.advance(Duration::from_secs(10));
    let new = both(grown(&all, HOUR));
    for key in 0..100_u32 {
        assert_eq!(admitted!(new, &key, 9), 2);
    }
}

// G97
#[tokio::test]
async fn leases_and_write_back_keep_budgets_of_moved_keys() {
    let (clock, all) = servers();
    let limit = Limit::fixed_window(Quota::per_hour(LIMIT));
    let old = set(&all[..2]).limiter("api", limit).atomic().unwrap();
    let new = grown(&all, HOUR);
    let leases = new.limiter("api", limit).leases().clock(clock.clone()).build().unwrap();
    let write_back = new.limiter("api", limit).write_back().clock(clock.clone()).build().unwrap();
    for key in 0..120_u32 {
        for _ in 0..LIMIT {
            assert!(old.check(&key).await.is_allowed());
        }
        let answer = match key % 2 {
            0 => leases.check_async(&key).await,
            // The first check of a key is decided here. The post tells this process the count of the server.
            _ => {
                let _ = write_back.check_async(&key).await;
                write_back.flush().await;
                write_back.check_async(&key).await
            }
        };
        assert!(answer.is_denied(), "key {key}: {answer:?}");
    }
    leases.close().await;
    write_back.close().await;
}

/// What each of some keys is asked, and by which process, with the seconds since the question before.
type Questions = Vec<(usize, u32, u64)>;

/// Several processes with the new set, in any order, on one key after another: together with the old set, they admit exactly what one
/// server admits.
fn admits_as_one(
    limit: Limit,
    joins: bool,
    before: &Questions,
    after: &Questions,
) -> Result<(), TestCaseError> {
    let (clock, all) = servers();
    let limiter = |client: InProcess| client.blocking().limiter("api", limit).atomic().unwrap();
    let (old, new) = if joins { (&all[..2], &all[..]) } else { (&all[..], &all[..2]) };
    let new = || InProcess::sharded(Shards::new(named(new)).previous(named(old), 3 * HOUR)).unwrap();
    let (one, old) = (limiter(InProcess::new(clock.clone())), limiter(set(old)));
    let ask = |limiters: &[Blocking<AtomicLimiter>], questions: &Questions| {
        for (process, key, seconds) in questions {
            clock.advance(Duration::from_secs(*seconds));
            for _ in 0..3 {
                let (here, there) = (limiters[process % limiters.len()].check(key), one.check(key));
                prop_assert_eq!(here.is_allowed(), there.is_allowed(), "{:?}, one server: {:?}", here, there);
            }
        }
        Ok(())
    };
    ask(&[old], before)?;
    let new = [(); 3].map(|()| limiter(new()));
    ask(&new, after)?;
    for health in new.map(|limiter| limiter.health()) {
        prop_assert_eq!((health.uncopied, health.failed()), (0, 0));
    }
    Ok(())
}

fn questions(most: usize) -> impl Strategy<Value = Questions> {
    prop::collection::vec((0_usize..3, 0_u32..8, 0_u64..300), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// A server joins the set or leaves it, for each kind of limit.
    // G97
    #[test]
    fn changed_set_admits_as_one_server(before in questions(60), after in questions(80)) {
        for limit in all_kinds(Quota::per_hour(LIMIT)) {
            for joins in [true, false] {
                admits_as_one(limit, joins, &before, &after)?;
            }
        }
    }
}
