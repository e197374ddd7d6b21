//! Holds and requests in progress that processes share.
//! - Against a list of holds, and an atomic limiter that is charged by hand: every decision, with any algorithm.
//! - A commit of at most the held units never exceeds a limit.
//! - On a real server: two clients, a holder that is killed, a commit by another process, calls whose answers are lost, a
//!   server that dies, and a Cluster.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{PATIENCE, absent, client, client_of, in_tasks, strict, until, wait_until};
use proptest::prelude::*;
use tollgate::holds::HoldId;
use tollgate::{LeakyBucketQueue, ManualClock, MinimumSpacing, Quota, Timestamp, TokenBucket};
use tollgate_redis::{
    Blocking, Breaker, Client, DecidedBy, HoldingLimiter, InProcess, InProgressLimiter, Limit, OnFailure,
    Shard, Shards, SharedDecision, SharedHold,
};
use tollgate_testing::holds::HoldOp as Op;
use tollgate_testing::limits::all_kinds;
use tollgate_testing::redis::{Cluster, NO_END, Server};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn start() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(1_800_000_000))
}

fn op() -> impl Strategy<Value = (u64, Op)> {
    let op = prop_oneof![
        4 => (0..12_u64).prop_map(Op::Check),
        5 => (0..12_u64, 0..40_u8).prop_map(|(units, life_s)| Op::Hold { units, life_s }),
        3 => (any::<u8>(), 0..20_u64).prop_map(|(which, actual)| Op::Commit { which, actual }),
        2 => any::<u8>().prop_map(|which| Op::Release { which }),
        3 => (0..20_000_000_000_u64).prop_map(Op::Wait),
    ];
    (0..2_u64, op)
}

/// Limits whose units can be held, for a minute and about 20 units.
fn limit() -> impl Strategy<Value = Limit> {
    let quota = prop_oneof![Just(Quota::per_minute(20)), Just(Quota::per_minute(12).burst(18))];
    (quota, 0_usize..10).prop_map(|(quota, kind)| all_kinds(quota)[kind])
}

/// A hold of the reference, until it is settled.
#[derive(Clone, Debug)]
struct Noted {
    key: u64,
    id: HoldId,
    units: u64,
    is_there: bool,
}

/// Runs requests on two limiters of one server, and charges an atomic limiter of another server by hand.
///
/// With `within`, each commit is in the life of its hold, and at most its units. Then no commit exceeds the limit.
fn same_as_by_hand(limit: Limit, ops: &[(u64, Op)], within: bool) -> Result<(), TestCaseError> {
    let (clock, by_hand) = (start(), start());
    let server = InProcess::new(clock.clone()).blocking();
    let limiters = [(); 2].map(|()| server.limiter("tokens", limit).holding().unwrap());
    let plain = InProcess::new(by_hand.clone()).blocking().limiter("tokens", limit).atomic().unwrap();
    let mut noted = Vec::<Noted>::new();
    for (index, &(key, op)) in ops.iter().enumerate() {
        let (limiter, now) = (&limiters[index % 2], server_time(&clock));
        let of_key = |noted: &Noted| noted.key == key && noted.is_there && noted.id.end() > now;
        let held: u64 = noted.iter().filter(|of| of_key(of)).map(|of| of.units).sum();
        let left = plain.block_on(|l| l.peek(&key)).decision().remaining();
        prop_assert_eq!(limiter.block_on(|l| l.held(&key)).unwrap(), held);
        prop_assert_eq!(limiter.block_on(|l| l.peek(&key)).decision().remaining(), left.saturating_sub(held));
        let fits = |units: u64| units + held <= left || units == 0;
        match op {
            Op::Check(cost) => {
                let answer = limiter.check_n(&key, cost);
                prop_assert_eq!(answer.is_allowed(), fits(cost), "{} of {} - {}", cost, left, held);
                if answer.is_allowed() {
                    prop_assert!(plain.check_n(&key, cost).is_allowed());
                }
            }
            Op::Hold { units, life_s } => {
                let life = seconds(life_s.into());
                let answer = limiter.block_on(|l| l.hold(&key, units, life));
                let decision =
                    answer.as_ref().map_or_else(SharedDecision::decision, |hold| hold.answer().decision());
                prop_assert_eq!(answer.is_ok(), fits(units));
                let taken = if answer.is_ok() { units } else { 0 };
                prop_assert_eq!(decision.remaining(), left.saturating_sub(held + taken));
                prop_assert_eq!(decision.is_never(), units > limit.most());
                if let Ok(hold) = answer {
                    let id = hold.detach();
                    prop_assert_eq!(id.end(), now + life);
                    noted.push(Noted { key, id, units, is_there: true });
                }
            }
            Op::Commit { which, actual } if !noted.is_empty() => {
                let which = usize::from(which) % noted.len();
                let of = &mut noted[which];
                let has_ended = of.id.end() <= now;
                if within && has_ended {
                    continue;
                }
                let actual = if within { actual.min(of.units) } else { actual };
                limiter.block_on(|l| l.commit(&of.key, of.id, actual)).unwrap();
                if has_ended || of.is_there {
                    let left = plain.block_on(|l| l.peek(&of.key)).decision().remaining();
                    prop_assert!(!within || actual <= left);
                    let _ = plain.block_on(|l| l.charge_unchecked(&of.key, actual)).unwrap();
                }
                of.is_there = false;
            }
            Op::Release { which } if !noted.is_empty() => {
                let which = usize::from(which) % noted.len();
                let of = &mut noted[which];
                let was_there = of.is_there && of.id.end() > now;
                prop_assert_eq!(limiter.block_on(|l| l.release(&of.key, of.id)).unwrap(), was_there);
                of.is_there = false;
            }
            Op::Wait(ns) => {
                clock.advance(Duration::from_nanos(ns));
                by_hand.advance(Duration::from_nanos(ns));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The time of a server, in whole microseconds.
fn server_time(clock: &ManualClock) -> Timestamp {
    use tollgate::Clock as _;
    Timestamp::from_nanos(clock.now().as_nanos() / 1_000 * 1_000)
}

proptest! {
    // G137
    #[test]
    fn shared_holds_equal_charges_by_hand(limit in limit(), ops in prop::collection::vec(op(), 1..60)) {
        same_as_by_hand(limit, &ops, false)?;
        same_as_by_hand(limit, &ops, true)?;
    }

    /// The units in progress are those of the requests that have not left and have not ended.
    // G136
    #[test]
    fn shared_in_progress_equals_a_list(ops in prop::collection::vec(op(), 1..80)) {
        const LIMIT: u64 = 15;
        let clock = start();
        let server = InProcess::new(clock.clone()).blocking();
        let limiters = [(); 2].map(|()| server.in_progress("exports", LIMIT).life(seconds(20)).build().unwrap());
        let mut held = Vec::<(u64, HoldId, u64)>::new();
        for (index, (key, op)) in ops.into_iter().enumerate() {
            let (limiter, now) = (&limiters[index % 2], server_time(&clock));
            held.retain(|(_, id, _)| id.end() > now);
            let used: u64 = held.iter().filter(|of| of.0 == key).map(|&(_, _, units)| units).sum();
            prop_assert_eq!(limiter.block_on(|l| l.current(&key)).unwrap(), used);
            match op {
                Op::Hold { units, .. } => match limiter.block_on(|l| l.try_enter(&key, units)).map(SharedHold::detach) {
                    Ok(id) => {
                        prop_assert!(used + units <= LIMIT);
                        held.push((key, id, units));
                    }
                    Err(denied) => {
                        prop_assert!(used + units > LIMIT);
                        let decision = denied.decision();
                        prop_assert_eq!((decision.limit(), decision.remaining()), (LIMIT, LIMIT - used));
                        let first = held.iter().filter(|of| of.0 == key).map(|of| of.1.end()).min();
                        let first = first.map_or(Duration::ZERO, |end| end.duration_since(now));
                        prop_assert_eq!(decision.retry_after(), Some(first));
                    }
                },
                Op::Release { which } if !held.is_empty() => {
                    let (key, id, _) = held.swap_remove(usize::from(which) % held.len());
                    prop_assert!(limiter.block_on(|l| l.leave(&key, id)).unwrap());
                    prop_assert!(!limiter.block_on(|l| l.leave(&key, id)).unwrap());
                }
                Op::Wait(ns) => clock.advance(Duration::from_nanos(ns)),
                _ => {}
            }
        }
    }
}

fn tokens() -> (HoldingLimiter, ManualClock) {
    let clock = start();
    let server = InProcess::new(clock.clone());
    (server.limiter("tokens", Limit::gcra(Quota::per_hour(100))).holding().unwrap(), clock)
}

// G137
#[tokio::test]
async fn shared_hold_is_settled_once() {
    let (limiter, clock) = tokens();
    let id = limiter.hold("a", 60, seconds(60)).await.unwrap().detach();
    assert_eq!(limiter.commit("a", id, 10).await.unwrap().remaining(), 90);
    // The answer was lost, and the caller asks again.
    assert_eq!(limiter.commit("a", id, 10).await.unwrap().remaining(), 90);
    assert!(!limiter.release("a", id).await.unwrap());
    // More than was held is charged as well, and leaves a debt.
    let id = limiter.hold("a", 90, seconds(60)).await.unwrap().detach();
    assert_eq!(limiter.commit("a", id, 150).await.unwrap().remaining(), 0);
    assert_eq!(limiter.check("a").await.retry_after(), Some(seconds(61 * 36)));
    // Another key, and another identity, settle nothing.
    let id = limiter.hold("b", 60, seconds(60)).await.unwrap().detach();
    assert!(!limiter.release("c", id).await.unwrap());
    let mut other = id.to_bytes();
    other[23] ^= 1;
    assert!(!limiter.release("b", HoldId::from_bytes(other)).await.unwrap());
    assert_eq!(limiter.held("b").await.unwrap(), 60);
    // After the end, a commit charges the actual cost.
    clock.advance(seconds(60));
    assert_eq!(limiter.held("b").await.unwrap(), 0);
    assert_eq!(limiter.commit("b", id, 30).await.unwrap().remaining(), 70);
}

/// A denial tells when the limit has room or the first hold ends, and before that nothing is admitted.
// G137
#[tokio::test]
async fn denial_beside_shared_holds_tells_when_to_retry() {
    let (limiter, clock) = tokens();
    let early = |wait: Duration| clock.advance(wait.checked_sub(Duration::from_micros(1)).unwrap());
    let last = Duration::from_micros(1);
    let _ = limiter.hold("a", 60, seconds(600)).await.unwrap().detach();
    let denied = limiter.hold("a", 50, seconds(1)).await.unwrap_err();
    assert_eq!((denied.decision().remaining(), denied.retry_after()), (40, Some(seconds(600))));
    early(seconds(600));
    assert!(limiter.check_n("a", 50).await.is_denied());
    clock.advance(last);
    assert!(limiter.check_n("a", 100).await.is_allowed());
    // Two units return before the hold ends.
    let _ = limiter.hold("b", 60, seconds(600)).await.unwrap().detach();
    assert!(limiter.check_n("b", 40).await.is_allowed());
    let denied = limiter.check_n("b", 2).await;
    assert_eq!(denied.retry_after(), Some(seconds(72)));
    early(seconds(72));
    assert!(limiter.check_n("b", 2).await.is_denied());
    clock.advance(last);
    assert!(limiter.check_n("b", 2).await.is_allowed());
    assert!(limiter.check_n("b", 101).await.decision().is_never());
    assert!(limiter.hold("b", 101, seconds(1)).await.unwrap_err().decision().is_never());
}

// G137
#[tokio::test]
async fn several_limits_share_a_hold() {
    let builder = InProcess::new(start()).limiter("tokens", Limit::gcra(Quota::per_hour(100)));
    let limiter = builder.and(Limit::fixed_window(Quota::per_day(120))).holding().unwrap();
    let hold = limiter.hold("a", 80, seconds(60)).await.unwrap();
    assert!(limiter.check_n("a", 21).await.is_denied() && limiter.check_n("a", 20).await.is_allowed());
    let id = hold.detach();
    assert_eq!(limiter.commit("a", id, 50).await.unwrap().remaining(), 30);
}

// G137
#[test]
fn limits_without_free_units_cannot_hold() {
    let server = InProcess::default();
    let quota = Quota::per_second(10);
    let limits: [Limit; 4] = [
        Limit::gcra(quota).with_block(tollgate::Block::of(seconds(600))).unwrap(),
        LeakyBucketQueue::new(quota).into(),
        MinimumSpacing::new(seconds(1)).into(),
        TokenBucket::aligned_adaptive(quota, Timestamp::from_secs(7)).into(),
    ];
    for limit in limits {
        let error = server.limiter("api", limit).holding().unwrap_err().to_string();
        assert!(error.contains("cannot be held, because") && error.contains("use atomic()"), "{error}");
    }
    let error = server.in_progress("api", 1).life(Duration::ZERO).build().unwrap_err().to_string();
    assert!(error.contains("no request would count"), "{error}");
}

// G136
#[tokio::test]
async fn dropped_permits_and_holds_are_released() {
    let server = InProcess::new(start());
    let exports = server.in_progress("exports", 2).build().unwrap();
    let tokens = server.limiter("tokens", Limit::gcra(Quota::per_hour(100))).holding().unwrap();
    let first = exports.try_enter("a", 1).await.unwrap();
    let second = exports.try_enter("a", 1).await.unwrap();
    assert_eq!((first.by(), first.answer().decision().remaining()), (DecidedBy::Server, 1));
    assert!(exports.try_enter("a", 1).await.is_err() && exports.try_enter("b", 2).await.is_ok());
    drop(first);
    let hold = tokens.hold("a", 100, seconds(60)).await.unwrap();
    assert!(tokens.check("a").await.is_denied());
    drop(hold);
    tokio::task::yield_now().await;
    assert_eq!((exports.current("a").await.unwrap(), tokens.held("a").await.unwrap()), (1, 0));
    assert!(second.release().await.unwrap());
    assert_eq!(exports.current("a").await.unwrap(), 0);
    // A task that panics.
    let limiter = exports.clone();
    let task = tokio::spawn(async move {
        let _permit = limiter.try_enter("a", 2).await.unwrap();
        panic!("the work failed");
    });
    assert!(task.await.is_err());
    tokio::task::yield_now().await;
    assert_eq!(exports.current("a").await.unwrap(), 0);
    assert!(tokens.hold("a", 40, seconds(60)).await.unwrap().release().await.unwrap());
    assert_eq!(tokens.peek("a").await.decision().remaining(), 100);
}

// G136
#[tokio::test]
async fn renewed_permit_ends_later() {
    let clock = start();
    let exports = InProcess::new(clock.clone()).in_progress("exports", 1).life(seconds(10)).build().unwrap();
    let mut stream = exports.try_enter("a", 1).await.unwrap();
    for _ in 0..5 {
        clock.advance(seconds(9));
        assert!(stream.renew().await.unwrap());
        assert_eq!(stream.id().end(), server_time(&clock) + seconds(10));
        assert!(exports.try_enter("a", 1).await.is_err());
    }
    clock.advance(seconds(10));
    assert!(!stream.renew().await.unwrap() && exports.try_enter("a", 1).await.is_ok());
}

// G136
#[test]
fn requests_in_progress_without_a_server_follow_on_failure() {
    let without_server =
        |policy| absent().blocking().in_progress("exports", 4).on_failure(policy).build().unwrap();
    let enter = |of: &Blocking<InProgressLimiter>, units| of.block_on(|l| l.try_enter("a", units));
    let closed = without_server(OnFailure::Closed);
    assert_eq!(enter(&closed, 1).unwrap_err().by(), DecidedBy::Closed);
    assert_eq!(enter(&closed, 5).unwrap_err().retry_after(), None);
    assert!(closed.block_on(|l| l.current("a")).is_err());
    let open = without_server(OnFailure::Open);
    assert_eq!([(); 9].map(|()| enter(&open, 1).unwrap().by()), [DecidedBy::Open; 9]);
    let local = without_server(OnFailure::Local { processes: 2 });
    let (first, second) = (enter(&local, 1).unwrap(), enter(&local, 1).unwrap());
    assert_eq!([first.by(), enter(&local, 1).unwrap_err().by()], [DecidedBy::Local; 2]);
    assert!(local.block_on(|l| l.leave("a", first.id())).unwrap(), "a call to the server is not needed");
    drop((first, second));
    assert!(enter(&local, 2).is_ok());
}

// G137
#[test]
fn holds_without_a_server_follow_on_failure() {
    let without_server = |policy| {
        let builder = absent().blocking().limiter("tokens", Limit::gcra(Quota::per_hour(100)));
        builder.on_failure(policy).holding().unwrap()
    };
    let hold = |of: &Blocking<HoldingLimiter>, units| of.block_on(|l| l.hold("a", units, seconds(60)));
    let closed = without_server(OnFailure::Closed);
    assert_eq!([hold(&closed, 1).unwrap_err().by(), closed.check("a").by()], [DecidedBy::Closed; 2]);
    let local = without_server(OnFailure::Local { processes: 2 });
    let held = hold(&local, 30).unwrap();
    assert_eq!([held.by(), hold(&local, 30).unwrap_err().by()], [DecidedBy::Local; 2]);
    assert_eq!(local.block_on(|_| held.commit(10)).unwrap().remaining(), 40);
    drop(hold(&local, 40).unwrap());
    assert!(local.check_n("a", 40).is_allowed());
    // A commit of work that was admitted without a count needs the server.
    let open = without_server(OnFailure::Open);
    let id = open.block_on(|l| l.hold("a", 1_000, seconds(60))).unwrap().detach();
    assert!(open.block_on(|l| l.commit("a", id, 1_000)).is_err());
}

/// Builders for a real server, whose calls wait long enough for a busy machine.
fn of_server(url: &str) -> (InProgressLimiter, HoldingLimiter) {
    let client = Client::open(url).unwrap();
    let exports = client.in_progress("exports", 3).life(seconds(2)).timeout(PATIENCE);
    let tokens = strict(client.limiter("tokens", Limit::fixed_window(Quota::new(100, NO_END))), &[]);
    (exports.on_failure(OnFailure::Closed).build().unwrap(), tokens.holding().unwrap())
}

// G136, G137
#[tokio::test(flavor = "multi_thread")]
async fn two_clients_share_holds() {
    let Some(server) = Server::start() else { return };
    let clients = [of_server(&server.url()), of_server(&server.url())];
    let most = in_tasks(16, |task| {
        let exports = clients[task % 2].0.clone();
        async move {
            let mut most = 0;
            for _ in 0..50 {
                if let Ok(permit) = exports.try_enter("a", 1).await {
                    most = most.max(exports.current("a").await.unwrap());
                    permit.release().await.unwrap();
                }
            }
            most
        }
    });
    assert!(most.await.into_iter().all(|most| most <= 3));
    let [(exports, tokens), (_, others)] = &clients;
    assert_eq!(exports.current("a").await.unwrap(), 0);
    // Of 16 tasks that hold 30 of 100 units, three can; all of them commit ten.
    let ids = in_tasks(16, |task| {
        let tokens = clients[task % 2].1.clone();
        async move { tokens.hold("a", 30, seconds(60)).await.map(SharedHold::detach).ok() }
    });
    let ids: Vec<HoldId> = ids.await.into_iter().flatten().collect();
    assert_eq!((ids.len(), tokens.held("a").await.unwrap()), (3, 90));
    for id in ids {
        // Both processes commit the hold, and one of them settles it.
        let (one, two) = tokio::join!(tokens.commit("a", id, 10), others.commit("a", id, 10));
        assert!(one.is_ok() && two.is_ok());
    }
    assert_eq!((tokens.held("a").await.unwrap(), tokens.peek("a").await.decision().remaining()), (0, 70));
}

/// The environment variable that makes this process a child: the address of the server.
const CHILD: &str = "TOLLGATE_TEST_HOLDER";

/// The work of a child process, which is killed. This is not a test by itself.
#[test]
fn holder() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (exports, tokens) = of_server(&url);
        let _permits = [exports.try_enter("a", 2).await.unwrap(), exports.try_enter("a", 1).await.unwrap()];
        let _lost = tokens.hold("a", 40, seconds(2)).await.unwrap();
        let told = tokens.hold("a", 60, seconds(600)).await.unwrap();
        println!("id {}", told.id().to_bytes().map(|byte| format!("{byte:02x}")).concat());
        std::future::pending::<()>().await;
    });
}

fn start_holder(server: &Server) -> (Child, HoldId) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "holds::holder", "--nocapture", "--test-threads=1"]).env(CHILD, server.url());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line =
        lines.map_while(Result::ok).find_map(|line| line.split_once("id ").map(|(_, id)| id.to_owned()));
    let line = line.expect("the child tells the identity");
    let byte = |at: usize| u8::from_str_radix(&line[2 * at..2 * at + 2], 16).unwrap();
    (child, HoldId::from_bytes(std::array::from_fn(byte)))
}

// G136, G137
#[tokio::test]
async fn killed_holder_counts_until_its_life_ends() {
    let Some(server) = Server::start() else { return };
    let before = Instant::now();
    let (mut child, id) = start_holder(&server);
    let (exports, tokens) = of_server(&server.url());
    let is_full = exports.try_enter("a", 1).await.is_err() && tokens.check("a").await.is_denied();
    assert!(is_full || before.elapsed() > seconds(2), "the lives have not ended");
    child.kill().unwrap();
    child.wait().unwrap();
    until("the lives end", async || {
        exports.try_enter("a", 3).await.is_ok() && tokens.held("a").await.unwrap() <= 60
    })
    .await;
    // Another process settles the hold of the dead one, by its identity.
    assert_eq!(tokens.held("a").await.unwrap(), 60);
    for _ in 0..2 {
        assert_eq!(tokens.commit("a", id, 25).await.unwrap().remaining(), 75);
    }
    assert!(tokens.check_n("a", 75).await.is_allowed());
}

/// Without its data, the server forgets the holds. Commits before their ends charge nothing.
// G137
#[tokio::test]
async fn server_that_dies_loses_holds() {
    let Some(mut server) = Server::start() else { return };
    let builder = client(&server).limiter("tokens", Limit::gcra(Quota::per_hour(100)));
    let builder = builder.breaker(Breaker::new(u32::MAX, Duration::ZERO)).timeout(Duration::from_secs(1));
    let limiter = builder.on_failure(OnFailure::Closed).holding().unwrap();
    let mut hold = None;
    until("the server holds units", async || {
        hold = limiter.hold("a", 80, seconds(600)).await.ok();
        hold.is_some()
    })
    .await;
    let hold = hold.unwrap();
    server.kill();
    let id = hold.id();
    assert!(hold.commit(50).await.is_err());
    assert_eq!(limiter.hold("a", 1, seconds(60)).await.unwrap_err().by(), DecidedBy::Closed);
    server.restart();
    until("the server answers", async || {
        limiter.commit("a", id, 50).await.is_ok_and(|after| after.remaining() == 100)
    })
    .await;
    assert_eq!(limiter.held("a").await.unwrap(), 0);
}

/// A Cluster refuses a script whose keys are in several slots.
// G137
#[tokio::test]
async fn holds_of_a_key_are_in_one_slot() {
    let Some(cluster) = Cluster::start() else { return };
    let client = client_of(&cluster);
    let limiter = client.limiter("tokens", Limit::gcra(Quota::per_hour(10)));
    let tokens = strict(limiter, &[Limit::sliding_window(Quota::per_day(20))]).holding().unwrap();
    let exports = client.in_progress("exports", 2).timeout(PATIENCE).on_failure(OnFailure::Closed);
    let exports = exports.build().unwrap();
    for key in 0..60_u64 {
        let id = tokens.hold(&key, 6, seconds(60)).await.unwrap().detach();
        assert_eq!(tokens.check_n(&key, 5).await.by(), DecidedBy::Server);
        assert_eq!(tokens.commit(&key, id, 1).await.unwrap().remaining(), 9);
        let permit = exports.try_enter(&key, 2).await.unwrap();
        assert_eq!(exports.try_enter(&key, 1).await.unwrap_err().by(), DecidedBy::Server);
        assert!(exports.leave(&key, permit.id()).await.unwrap());
    }
    let by_node: Vec<u64> = cluster.nodes.iter().map(|node| node.command(&["DBSIZE"])).collect();
    assert!(by_node.iter().all(|keys| *keys > 0), "{by_node:?}");
}

/// The keys of holds expire with their last hold, and an empty key is removed at once.
// G136
#[tokio::test]
async fn keys_of_holds_expire() {
    let Some(server) = Server::start() else { return };
    let exports = client(&server).in_progress("exports", 4).life(seconds(600));
    let exports = exports.timeout(PATIENCE).build().unwrap();
    let permit = exports.try_enter("s", 1).await.unwrap();
    let name = "tollgate:v1:{exports|s}:n";
    let left: i64 = server.command(&["PTTL", name]);
    assert!((500_000..=601_000).contains(&left), "{left}");
    assert!(exports.leave("s", permit.id()).await.unwrap());
    assert_eq!(server.command::<u64>(&["EXISTS", name]), 0);
    // A value that is not ours is an error of this key.
    server.command::<()>(&["SET", name, "x"]);
    assert!(exports.current("s").await.unwrap_err().to_string().contains("did not write"));
    assert_eq!(exports.health().opened, 0);
}

/// A limit keeps its counts when a key moves to another server. The holds stay behind, and count nowhere.
// G136
#[tokio::test]
async fn holds_of_a_moved_key_stay_behind() {
    let (old, new) = (InProcess::new(start()), InProcess::new(start()));
    let build = |servers: Shards<InProcess>| {
        let client = InProcess::sharded(servers).unwrap();
        let tokens = client.limiter("tokens", Limit::gcra(Quota::per_hour(100))).holding().unwrap();
        (tokens, client.in_progress("exports", 1).build().unwrap())
    };
    let (tokens, exports) = build([Shard::new("old", old.clone())].into());
    let id = tokens.hold("a", 60, seconds(60)).await.unwrap().detach();
    assert!(tokens.check_n("a", 10).await.is_allowed());
    assert!(exports.try_enter("a", 1).await.map(SharedHold::detach).is_ok());
    let moved = Shards::new([Shard::new("new", new)]).previous([Shard::new("old", old)], seconds(3_600));
    let (tokens, exports) = build(moved);
    assert_eq!((tokens.held("a").await.unwrap(), tokens.peek("a").await.decision().remaining()), (0, 90));
    assert_eq!(tokens.commit("a", id, 60).await.unwrap().remaining(), 90);
    assert!(exports.try_enter("a", 1).await.is_ok());
}

/// A denial because of 4,096 holds tells when to retry, also if they hold no units.
#[tokio::test]
async fn full_key_without_units_tells_when_to_retry() {
    let (limiter, _clock) = tokens();
    for _ in 0..4_096 {
        let _ = limiter.hold("a", 0, seconds(60)).await.unwrap().detach();
    }
    let denied = limiter.hold("a", 1, seconds(60)).await.unwrap_err();
    assert_eq!(denied.retry_after(), Some(seconds(60)));
}

/// The holds of a key expire with the last of them, also if a longer one was released.
#[tokio::test]
async fn released_hold_does_not_keep_the_key_for_its_life() {
    let Some(server) = Server::start() else { return };
    let builder = client(&server).limiter("tokens", Limit::gcra(Quota::per_hour(100)));
    let limiter = strict(builder, &[]).holding().unwrap();
    let long = limiter.hold("a", 1, seconds(30 * 86_400)).await.unwrap().detach();
    let _ = limiter.hold("a", 1, seconds(600)).await.unwrap().detach();
    assert!(limiter.release("a", long).await.unwrap());
    let left: i64 = server.command(&["PTTL", "tollgate:v1:{tokens|a}:h"]);
    assert!((500_000..=661_000).contains(&left), "{left} ms for a hold of 600 s");
}

/// A renewal of a request that this process admitted alone lets it end later.
#[test]
fn renewed_permit_without_a_server_ends_later() {
    let limiter = absent().blocking().in_progress("exports", 1).build().unwrap();
    let mut permit = limiter.block_on(|l| l.try_enter("a", 1)).unwrap();
    let first = permit.id();
    wait_until("the request ends later", || {
        let renewed = permit.renew();
        assert!(limiter.block_on(|_| renewed).unwrap());
        permit.id().end() > first.end()
    });
    assert!(limiter.block_on(|l| l.try_enter("a", 1)).is_err(), "the renewed request is in progress");
    assert!(limiter.block_on(|l| l.leave("a", permit.id())).unwrap(), "it has the later end");
}
