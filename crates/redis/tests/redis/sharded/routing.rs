//! Which server holds a key, with servers in this process.

use tollgate::Quota;
use tollgate_redis::{Client, InProcess, Limit, Shard, ShardError, Shards};
use tollgate_testing::redis::NO_END;

use super::{named, set};
use crate::absent;

const KEYS: u32 = 3_000;

fn servers<const N: usize>() -> [InProcess; N] {
    std::array::from_fn(|_| InProcess::default())
}

#[test]
fn invalid_server_set_is_an_error_when_built() {
    let error = |shards: Vec<Shard<InProcess>>| InProcess::sharded(shards).expect_err("the set is invalid");
    let shard = |name: &str| Shard::new(name, InProcess::default());
    assert_eq!(error(vec![]), ShardError::Empty);
    assert_eq!(error(vec![shard("a"), shard("b"), shard("a")]), ShardError::Duplicate("a".into()));
    assert_eq!(error(vec![shard("a"), shard("b").weight(0)]), ShardError::Weight("b".into()));
    for name in ["", "a b", "a,b", "ä", "redis://a", "a\n", &"x".repeat(65)] {
        let error = error(vec![shard(name)]);
        assert_eq!(error, ShardError::Name(name.into()));
        assert!(error.to_string().contains("ASCII letters, digits"), "{error}");
    }
    let nested = set(&servers::<2>());
    assert_eq!(error(vec![shard("a"), Shard::new("both", nested)]), ShardError::Nested("both".into()));
    assert_eq!(error((0..129).map(|at| shard(&at.to_string())).collect()), ShardError::TooMany);
    let second = std::time::Duration::from_secs(1);
    let empty_previous = Shards::new([shard("a")]).previous([], second);
    assert_eq!(InProcess::sharded(empty_previous).unwrap_err(), ShardError::Empty);
    let same = Shards::new([shard("a")]).previous([shard("b"), shard("b")], second);
    let told = InProcess::sharded(same).unwrap_err().to_string();
    assert_eq!(told, "two servers have the name \"b\"; give each server its own name");
    let clients = [(); 2].map(|()| Shard::new("a", absent()));
    assert_eq!(Client::sharded(clients).unwrap_err(), ShardError::Duplicate("a".into()));
}

#[test]
fn client_debug_names_servers_and_function() {
    let shards = [Shard::new("one", absent())];
    let client = Client::sharded(Shards::new(shards).by("whole key", |key| key)).unwrap();
    let text = format!("{client:?}");
    assert!(text.contains("one") && text.contains("whole key"), "{text}");
    assert!(!text.contains("127.0.0.1"), "{text}");
}

// G95
#[test]
fn each_key_is_on_one_server_in_all_processes() {
    let all = servers::<3>();
    let mut reversed = named(&all);
    reversed.reverse();
    let [there, here] = [named(&all), reversed].map(|set| {
        let client = InProcess::sharded(set).unwrap().blocking();
        let builder = client.limiter("api", Limit::gcra(Quota::per_hour(2)));
        builder.and(Limit::fixed_window(Quota::new(9, NO_END))).atomic().unwrap()
    });
    for key in 0..KEYS {
        assert!(there.check(&key).is_allowed() && here.check(&key).is_allowed());
        assert!(there.check(&key).is_denied() && here.check(&key).is_denied(), "both use the same state");
    }
    let counts = all.map(|server| server.keys());
    assert_eq!(counts.iter().sum::<usize>(), 3_000, "both limits of a key are on one server: {counts:?}");
    // 1,000 keys are expected on each server, and the standard deviation is 26.
    assert!(counts.iter().all(|count| (896..=1_104).contains(count)), "{counts:?}");
}

#[test]
fn limiters_spread_equal_keys_over_servers() {
    let all = servers::<3>();
    let client = set(&all).blocking();
    for name in 0..30 {
        let limiter = client.limiter(&name.to_string(), Limit::gcra(Quota::per_hour(2))).atomic().unwrap();
        assert!(limiter.check("").is_allowed());
    }
    assert!(all.iter().all(|server| server.keys() > 0), "limits without a key are not all on one server");
}

// G95
#[test]
fn shard_function_keeps_a_tenant_on_one_server() {
    fn tenant(key: &[u8]) -> &[u8] {
        key.split(|&byte| byte == b'/').next().unwrap_or(key)
    }
    let all = servers::<3>();
    let client = InProcess::sharded(Shards::new(named(&all)).by("tenant", tenant)).unwrap();
    let limit = Limit::gcra(Quota::per_hour(2));
    let [one, other] = ["one", "other"].map(|name| client.blocking().limiter(name, limit).atomic().unwrap());
    let mut last = [0; 3];
    let mut holders = [0; 3];
    for tenant in 0..60 {
        for user in 0..5 {
            // A key of more than 96 bytes is hashed in Redis. The function still receives its bytes.
            let key = format!("tenant-{tenant}/{user}/{}", "x".repeat(100));
            assert!(one.check(&key).is_allowed() && other.check(&key).is_allowed());
        }
        let now: [_; 3] = std::array::from_fn(|at| all[at].keys());
        let grown: Vec<_> = (0..3).filter(|&at| now[at] > last[at]).collect();
        assert_eq!((grown.len(), now.iter().sum::<usize>()), (1, 10 * (tenant + 1)));
        (last, holders[grown[0]]) = (now, holders[grown[0]] + 1);
    }
    assert!(holders.iter().all(|&tenants| tenants > 5), "{holders:?}");
}

#[test]
fn peeks_refunds_and_charges_use_the_owner() {
    let all = servers::<3>();
    let builder = set(&all).blocking().limiter("api", Limit::fixed_window(Quota::new(3, NO_END)));
    let limiter = builder.atomic().unwrap();
    for key in 0..50_u32 {
        let answer = limiter.check_n(&key, 2);
        assert_eq!(limiter.block_on(|l| l.peek(&key)).decision().remaining(), 1);
        assert_eq!(limiter.block_on(|l| l.refund(&key, &answer)).unwrap(), 2);
        assert_eq!(limiter.block_on(|l| l.charge_unchecked(&key, 3)).unwrap().decision().remaining(), 0);
        assert!(limiter.check(&key).is_denied());
    }
    assert_eq!(all.iter().map(InProcess::keys).sum::<usize>(), 50);
    let (names, healths): (Vec<_>, Vec<_>) = limiter.health_by_server().into_iter().unzip();
    assert!(names.iter().map(|name| &**name).eq(["a", "b", "c"]));
    assert_eq!(healths.iter().map(|health| health.answered).sum::<u64>(), limiter.health().answered);
    assert!(healths.iter().all(|health| health.answered > 0), "{healths:?}");
    let one = InProcess::default().limiter("api", Limit::gcra(Quota::per_day(3))).atomic().unwrap();
    assert!(one.health_by_server().is_empty());
}

#[cfg(feature = "rules")]
#[test]
fn rules_use_a_sharded_client_unchanged() {
    use tollgate_rules::{Config, Descriptor, Rules};
    let all = servers::<3>();
    let text = "domain: d\ntollgate: { store: redis }\ndescriptors:\n  - { key: user, rate_limit: { unit: year, every: 70, requests_per_unit: 2 } }\n";
    let config = Config::from_yaml("test.yaml", text).unwrap();
    let rules = Rules::builder().shared(set(&all).blocking()).load([config]).unwrap();
    for user in 0..60 {
        let user = user.to_string();
        let entries = [("user", &*user)];
        let check = || rules.check("d", &[Descriptor::new(&entries)]).is_allowed();
        assert_eq!([check(), check(), check()], [true, true, false]);
    }
    assert!(all.iter().all(|server| server.keys() > 0));
    assert_eq!(all.iter().map(InProcess::keys).sum::<usize>(), 60);
}
