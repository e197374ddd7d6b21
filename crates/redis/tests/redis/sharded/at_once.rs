//! Several servers answer at the same time: the calls to one do not wait for those to another.
//!
//! The servers answer when the test says, so no result depends on the speed of the machine.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate::Quota;
use tollgate_redis::{AtomicLimiter, Breaker, Client, DecidedBy, Limit, Shards};

use super::named;
use crate::fake::Fake;
use crate::{PATIENCE, one_thread, runtime, strict, until};

/// The callers, each with one call under way.
const CALLERS: u32 = 96;
/// The rounds in which each server answers one call.
const ROUNDS: usize = 200;

/// The reply of the script of GCRA: one unit is granted, a microsecond after the epoch, and the arrival time is a tick ahead.
const GRANTED: &str = "$24\r\n\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\r\n";

/// Servers that hold all calls, and a limiter that is connected to them.
struct Slow {
    servers: Vec<Fake>,
    limiter: Arc<AtomicLimiter>,
    arrived: Arc<Notify>,
}

impl Slow {
    async fn start(count: usize, choose: fn(Shards<Client>) -> Shards<Client>) -> Self {
        let arrived = Arc::new(Notify::new());
        let start = |_| Fake::start_slow("EVALSHA", GRANTED, Arc::clone(&arrived));
        let servers: Vec<Fake> = (0..count).map(start).collect();
        servers.iter().for_each(|server| server.answer(usize::MAX));
        let clients = servers.iter().map(|server| Client::open(&server.url()).unwrap());
        let client = Client::sharded(choose(named(&clients.collect::<Vec<_>>()).into())).unwrap();
        let builder = strict(client.limiter("at-once", Limit::gcra(Quota::per_hour(1_000_000))), &[]);
        let limiter = builder.breaker(Breaker::new(u32::MAX, Duration::ZERO)).atomic().unwrap();
        let mut last = 0_u32;
        // On a busy machine, the first attempt to connect may take too long.
        until("each server with keys is connected", async || {
            last += 64;
            let keys: Vec<u32> = (last - 64..last).collect();
            let answers = join_all(keys.iter().map(|key| limiter.check(key))).await;
            answers.iter().all(|answer| answer.by() == DecidedBy::Server)
        })
        .await;
        servers.iter().for_each(Fake::hold);
        Self { servers, limiter: Arc::new(limiter), arrived }
    }

    /// Waits until each caller has a call at a server that has not answered it.
    async fn all_wait(&self) {
        let waiting = || self.servers.iter().map(Fake::waiting).sum::<usize>();
        let arrive = async {
            while waiting() < CALLERS as usize {
                self.arrived.notified().await;
            }
        };
        timeout(PATIENCE, arrive).await.expect("a call does not wait for the answer to another");
    }

    /// Returns how many calls are answered in all rounds, if each caller makes one call after the other.
    async fn answered(&self) -> usize {
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let limiter = Arc::clone(&self.limiter);
            callers.spawn(async move {
                for key in caller * 1_000_000.. {
                    assert_eq!(limiter.check(&key).await.by(), DecidedBy::Server);
                }
            });
        }
        let mut answered = 0;
        for _ in 0..ROUNDS {
            self.all_wait().await;
            let asked = self.servers.iter().filter(|server| server.waiting() > 0);
            answered += asked.map(|server| server.answer(1)).count();
        }
        answered
    }
}

// G96
#[test]
fn slow_server_holds_only_its_own_calls() {
    for runtime in [one_thread(), runtime()] {
        runtime.block_on(async {
            let slow = Slow::start(3, |set| set).await;
            let mut checks = JoinSet::new();
            for key in 0..CALLERS {
                let limiter = Arc::clone(&slow.limiter);
                checks.spawn(async move { limiter.check(&key).await.by() });
            }
            slow.all_wait().await;
            let waiting: Vec<usize> = slow.servers.iter().map(Fake::waiting).collect();
            assert!(
                waiting.iter().all(|calls| *calls > 1),
                "each server has several calls at once: {waiting:?}"
            );
            slow.servers[1..].iter().for_each(|server| server.answer(usize::MAX));
            for _ in 0..waiting[1] + waiting[2] {
                assert_eq!(checks.join_next().await.unwrap().unwrap(), DecidedBy::Server);
            }
            assert_eq!(
                [slow.servers[0].waiting(), checks.len()],
                [waiting[0]; 2],
                "the others have their answers"
            );
            slow.servers[0].answer(usize::MAX);
            assert!(checks.join_all().await.iter().all(|by| *by == DecidedBy::Server));
        });
    }
}

/// If servers are the bottleneck, three of them decide nearly three times as many requests. The callers have calls at all of them in most
/// rounds, because keys are spread evenly.
#[test]
fn three_servers_answer_three_calls_in_the_time_of_one() {
    fn none(_: &[u8]) -> &[u8] {
        &[]
    }
    let answered = |servers, choose: fn(Shards<Client>) -> Shards<Client>| {
        one_thread().block_on(async { Slow::start(servers, choose).await.answered().await })
    };
    assert_eq!(answered(1, |set| set), ROUNDS);
    let three = answered(3, |set| set);
    assert!(2 * three >= 5 * ROUNDS, "{three} calls in {ROUNDS} rounds");
    assert_eq!(answered(3, |set| set.by("none", none)), ROUNDS, "one server has all keys");
}
