//! Tests of the guard with fake servers, in paused time.

use std::future::pending;
use std::sync::{Arc, Mutex};

use super::*;
use crate::base::quota::Quota;
use crate::edge::redis::client::{Breaker, InProcess, RuntimeThread, Shard, Shards};
use crate::edge::redis::guard::BreakerState;
use crate::edge::redis::protocol::{LimitState, Place, Plan, Question};

const TIMEOUT: Duration = Duration::from_millis(40);
const SECOND: Duration = Duration::from_secs(1);

/// What the server does with a call.
#[derive(Copy, Clone, Debug)]
enum Does {
    Answer,
    /// Answers after this delay.
    Late(Duration),
    Hang,
    Fail(ErrorKind),
}

#[derive(Debug)]
struct Fake {
    does: Mutex<Does>,
    /// A different behaviour for one part.
    elsewhere: Mutex<Option<(usize, Does)>>,
    asked: Mutex<u64>,
}

impl Fake {
    fn new(does: Does) -> Self {
        Self { does: Mutex::new(does), elsewhere: Mutex::default(), asked: Mutex::default() }
    }

    fn now_does(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    /// The number of calls since the last call of this method.
    fn asked(&self) -> u64 {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn does(&self, call: &Call) -> Does {
        *self.asked.lock().unwrap() += 1;
        match *self.elsewhere.lock().unwrap() {
            Some((part, does)) if usize::from(call.tag[0]) == part => does,
            _ => *self.does.lock().unwrap(),
        }
    }
}

fn reply() -> Reply {
    Reply { granted: 1, now_us: 0, limits: [LimitState::Pace { ahead: 0 }].into_iter().collect() }
}

impl Transport for Fake {
    type States = ();

    async fn call(&self, call: &Call) -> Result<Reply, Error> {
        match self.does(call) {
            Does::Answer => Ok(reply()),
            Does::Late(after) => {
                tokio::time::sleep(after).await;
                Ok(reply())
            }
            Does::Hang => pending().await,
            Does::Fail(kind) => Err(Error::new(kind, "simulated failure")),
        }
    }

    fn part(&self, call: &Call) -> usize {
        call.tag[0].into()
    }
}

fn limits() -> [Limit; 2] {
    [Limit::gcra(Quota::per_second(10)), Limit::fixed_window(Quota::per_hour(8))]
}

fn settings(on_failure: OnFailure) -> Settings {
    Settings {
        places: KeyPlaces::new(b"x", &Arc::default()),
        limits: limits().into(),
        timeout: TIMEOUT,
        breaker: Breaker::new(3, SECOND),
        on_failure,
        max_keys: 100,
        name: "api".into(),
    }
}

fn guard(on_failure: OnFailure) -> Guard {
    Guard::new(&settings(on_failure))
}

fn call_of(part: u8) -> Call {
    let plan = Plan::new(&limits()).unwrap().into();
    Call { tag: vec![part], plan, ask: Question::Check { cost: 1 }, now: None, place: Place::default() }
}

async fn ask(guard: &Guard, server: &Fake) -> Result<(), ErrorKind> {
    guard.ask(server, &call_of(0)).await.map(drop).map_err(|error| error.kind())
}

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

#[tokio::test(start_paused = true)]
async fn timeout_noticed_late_does_not_count() {
    let (guard, server) = (guard(OnFailure::Open), Fake::new(Does::Hang));
    let late = |lateness: Duration| {
        let (guard, server) = (&guard, &server);
        async move {
            let stalls = async {
                tokio::task::yield_now().await;
                tokio::time::advance(TIMEOUT + lateness).await;
            };
            tokio::join!(ask(guard, server), stalls).0
        }
    };
    for _ in 0..10 {
        assert_eq!(late(TIMEOUT).await, Err(ErrorKind::Timeout));
    }
    let health = guard.health();
    assert_eq!((health.errors(ErrorKind::Timeout), health.opened), (10, 0));
    for _ in 0..3 {
        assert_eq!(late(TIMEOUT / 4).await, Err(ErrorKind::Timeout));
    }
    assert_eq!(guard.health().opened, 1, "a time-out noticed nearly in time counts as a failure");
    // A probe that learns nothing keeps the breaker open.
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(late(TIMEOUT).await, Err(ErrorKind::Timeout));
    assert_eq!(guard.health().opened, 2);
    assert_eq!(ask(&guard, &server).await, Err(ErrorKind::Breaker));
}

/// The server of index 0 hangs. Its breaker opens, and the other server is not affected.
#[tokio::test(start_paused = true)]
async fn each_server_has_its_own_breaker_and_counts() {
    let set = ["a", "b"].map(|name| Shard::new(name, InProcess::default()));
    let set = InProcess::sharded(set).expect("the set is valid");
    let routes = set.limiter("api", limits()[0]).settings().places.routes;
    let places = KeyPlaces::new(b"x", &routes);
    let guard = Guard::new(&Settings { places: places.clone(), ..settings(OnFailure::Closed) });
    let server = Fake::new(Does::Answer);
    *server.elsewhere.lock().unwrap() = Some((0, Does::Hang));
    // Both calls are about the same part, so only the server differs.
    let call =
        |server: u8| Call { place: Place { server: server.into(), before: None }, ..call_of(16 * server) };
    for _ in 0..10 {
        assert!(guard.ask(&server, &call(0)).await.is_err());
        assert!(guard.ask(&server, &call(1)).await.is_ok());
    }
    let places = &places;
    let keys = |at| (0..100_u8).map(|key| [key]).filter(move |key| places.server(key) == at).take(5);
    let waits: Vec<_> = [0, 1]
        .into_iter()
        .map(|at| {
            let answers: Vec<_> = keys(at).map(|key| guard.fallback(&key, 1, NOW)).collect();
            answers[0].retry_after().expect("the request can be admitted later")
        })
        .collect();
    assert!(
        waits[0] < SECOND && waits[1] == SECOND,
        "each answer has the pause of its own server: {waits:?}"
    );
    let health = guard.health_by_server();
    let [(a, down), (b, up)] = &health[..] else { panic!("there are two servers") };
    assert_eq!((&**a, &**b), ("a", "b"));
    assert_eq!((down.asked, down.failed(), down.opened, down.errors(ErrorKind::Breaker)), (3, 3, 1, 7));
    assert_eq!((down.breaker, down.is_partitioned(), down.closed), (BreakerState::Open, true, 5));
    assert_eq!((up.asked, up.answered, up.failed(), up.opened), (10, 10, 0, 0));
    assert_eq!((up.breaker, up.is_partitioned(), up.closed), (BreakerState::Closed, false, 5));
    let sum = guard.health();
    assert_eq!((sum.asked, sum.answered, sum.closed, sum.breaker), (13, 10, 10, BreakerState::Open));
    assert!(sum.is_partitioned());
}

/// The server with this index hangs. The others hold no key.
struct HungServer(usize);

impl HungServer {
    async fn answer<R>(&self, call: &Call, answer: R) -> Result<R, Error> {
        if call.place.server == self.0 { pending().await } else { Ok(answer) }
    }
}

impl Transport for HungServer {
    type States = ();

    async fn call(&self, call: &Call) -> Result<Reply, Error> {
        self.answer(call, reply()).await
    }

    async fn has_states(&self, call: &Call) -> Result<bool, Error> {
        self.answer(call, false).await
    }

    async fn read_states(&self, call: &Call) -> Result<(), Error> {
        self.answer(call, ()).await
    }

    async fn write_states(&self, call: &Call, (): &()) -> Result<(), Error> {
        self.answer(call, ()).await
    }
}

#[tokio::test(start_paused = true)]
async fn hung_previous_server_delays_a_call_by_half_a_timeout() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let shard = |name| Shard::new(name, InProcess::default());
    let set = Shards::new([shard("a"), shard("b")]).previous([shard("a"), shard("c")], HOUR);
    let places =
        InProcess::sharded(set).expect("the set is valid").limiter("api", limits()[0]).settings().places;
    let guard = Guard::new(&Settings { places, ..settings(OnFailure::Closed) });
    let call = |server, before| Call { place: Place { server, before: Some(before) }, ..call_of(0) };
    let took = async |hung, server, before| {
        let began = tokio::time::Instant::now();
        let result = guard.ask(&HungServer(hung), &call(server, before)).await.map(drop);
        (result.is_ok(), began.elapsed().as_millis() / 2 * 2)
    };
    let half = TIMEOUT.as_millis() / 2;
    for _ in 0..3 {
        assert_eq!(took(2, 0, 2).await, (true, half), "the key begins with an empty state");
    }
    assert_eq!(took(2, 0, 2).await, (true, 0), "the breaker of the previous server is open");
    let health = guard.health_by_server();
    assert_eq!((health[2].1.uncopied, health[2].1.asked, health[0].1.uncopied), (4, 3, 0));
    // Nothing is copied to a server that does not answer, and the previous server does not decide.
    assert_eq!(took(1, 1, 0).await, (false, half));
    tokio::time::advance(HOUR).await;
    assert_eq!(took(2, 0, 2).await, (true, 0));
    let previous = guard.health_by_server()[2].1;
    assert_eq!((previous.uncopied, previous.asked), (4, 3), "the previous server is not asked any more");
}

#[tokio::test(start_paused = true)]
async fn hung_server_opens_the_breaker() {
    let (guard, server) = (guard(OnFailure::Open), Fake::new(Does::Hang));
    for _ in 0..3 {
        let began = tokio::time::Instant::now();
        assert_eq!(ask(&guard, &server).await, Err(ErrorKind::Timeout));
        assert!((TIMEOUT..=TIMEOUT + Duration::from_millis(1)).contains(&began.elapsed()));
    }
    assert_eq!(server.asked(), 3);
    let began = tokio::time::Instant::now();
    for _ in 0..1_000 {
        assert_eq!(ask(&guard, &server).await, Err(ErrorKind::Breaker));
    }
    assert_eq!(
        (began.elapsed(), server.asked()),
        (Duration::ZERO, 0),
        "an open breaker answers at once, without a call"
    );
    // Ten minutes of requests, with pauses of half to all of a second.
    for _ in 0..60_000 {
        tokio::time::advance(Duration::from_millis(10)).await;
        let _ = ask(&guard, &server).await;
    }
    let probes = server.asked();
    assert!((560..=1_200).contains(&probes), "{probes}");
    let health = guard.health();
    assert_eq!((health.asked, health.probes, health.opened), (3 + probes, probes, 1 + probes));
    assert_eq!(health.errors(ErrorKind::Timeout), 3 + probes);
    assert_eq!(health.errors(ErrorKind::Breaker), 61_000 - probes);
    assert_eq!((health.answered, health.failed()), (0, 3 + probes));
    assert!(health.is_partitioned());

    server.now_does(Does::Answer);
    tokio::time::advance(SECOND + TIMEOUT).await;
    for _ in 0..10 {
        assert_eq!(ask(&guard, &server).await, Ok(()));
    }
    let health = guard.health();
    assert_eq!((health.answered, health.probes), (10, probes + 1));
    assert_eq!((health.breaker, health.is_partitioned()), (BreakerState::Closed, false));
}

#[tokio::test(start_paused = true)]
async fn one_of_many_calls_probes_after_the_pause() {
    let (guard, server) =
        (Arc::new(guard(OnFailure::Open)), Arc::new(Fake::new(Does::Fail(ErrorKind::Unreachable))));
    for _ in 0..3 {
        assert_eq!(ask(&guard, &server).await, Err(ErrorKind::Unreachable));
    }
    server.now_does(Does::Late(TIMEOUT / 2));
    server.asked();
    tokio::time::advance(SECOND + TIMEOUT).await;
    let tasks = (0..100).map(|_| {
        let (guard, server) = (Arc::clone(&guard), Arc::clone(&server));
        tokio::spawn(async move { ask(&guard, &server).await })
    });
    let mut answers = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        answers.push(task.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == Err(ErrorKind::Breaker)).count(), 99);
    assert_eq!(server.asked(), 1);
    assert_eq!(ask(&guard, &server).await, Ok(()), "after a successful probe, all calls are sent");
}

#[tokio::test(start_paused = true)]
async fn only_server_errors_open_the_breaker() {
    for (kind, opens) in [
        (ErrorKind::Timeout, true),
        (ErrorKind::Unreachable, true),
        (ErrorKind::Refused, true),
        (ErrorKind::Reply, false),
        (ErrorKind::Address, false),
    ] {
        let (guard, server) = (guard(OnFailure::Open), Fake::new(Does::Fail(kind)));
        for _ in 0..10 {
            let _ = ask(&guard, &server).await;
        }
        assert_eq!(server.asked(), if opens { 3 } else { 10 }, "{kind:?}");
        assert_eq!(guard.health().errors(kind), if opens { 3 } else { 10 });
        assert_eq!(guard.health().is_partitioned(), opens);
    }
}

#[tokio::test(start_paused = true)]
async fn call_dropped_late_counts_as_failure() {
    // Futures that are dropped immediately: clients that hang up cannot open the breaker.
    let (guard, server) = (guard(OnFailure::Open), Fake::new(Does::Hang));
    for _ in 0..50 {
        let _ = tokio::time::timeout(Duration::from_millis(2), ask(&guard, &server)).await.unwrap_err();
    }
    assert_eq!((guard.health().abandoned, guard.health().is_partitioned()), (50, false));
    // Futures that are dropped after more than a quarter of the time-out.
    for _ in 0..3 {
        let _ = tokio::time::timeout(Duration::from_millis(15), ask(&guard, &server)).await.unwrap_err();
    }
    assert!(guard.health().is_partitioned());
    // A probe whose caller disappears does not block the breaker: another probe follows after a pause.
    tokio::time::advance(2 * SECOND).await;
    server.asked();
    let _ = tokio::time::timeout(Duration::from_millis(2), ask(&guard, &server)).await.unwrap_err();
    assert_eq!((server.asked(), guard.health().breaker), (1, BreakerState::Open));
    assert_eq!(ask(&guard, &server).await, Err(ErrorKind::Breaker));
    server.now_does(Does::Answer);
    tokio::time::advance(SECOND + TIMEOUT).await;
    assert_eq!(ask(&guard, &server).await, Ok(()));
    assert_eq!(guard.health().breaker, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn partitioned_ends_with_the_pause() {
    let (guard, server) = (guard(OnFailure::Open), Fake::new(Does::Fail(ErrorKind::Unreachable)));
    for _ in 0..3 {
        let _ = ask(&guard, &server).await;
    }
    assert_eq!((guard.health().breaker, guard.health().is_partitioned()), (BreakerState::Open, true));
    // Without traffic, no call can find out whether the server is back. The gauge must still return to 0, so
    // that an alarm ends.
    tokio::time::advance(2 * SECOND).await;
    assert_eq!((guard.health().breaker, guard.health().is_partitioned()), (BreakerState::HalfOpen, false));
    // While the probe is in flight, other calls are denied.
    server.now_does(Does::Hang);
    let probe = tokio::time::timeout(TIMEOUT / 2, ask(&guard, &server));
    let health = async {
        tokio::time::sleep(TIMEOUT / 4).await;
        guard.health()
    };
    let (_, health) = tokio::join!(probe, health);
    assert_eq!((health.breaker, health.is_partitioned()), (BreakerState::HalfOpen, true));
}

#[tokio::test(start_paused = true)]
async fn each_part_has_its_own_breaker() {
    let (guard, server) = (guard(OnFailure::Open), Fake::new(Does::Answer));
    *server.elsewhere.lock().unwrap() = Some((2, Does::Hang));
    let mut answered = [0; 4];
    for _ in 0..20 {
        for (part, answered) in (0..).zip(&mut answered) {
            *answered += u32::from(guard.ask(&server, &call_of(part)).await.is_ok());
        }
    }
    assert_eq!(answered, [20, 20, 0, 20]);
    assert_eq!(server.asked(), 63);
    assert!(guard.health().is_partitioned(), "one open breaker is enough");
}

#[test]
fn missing_runtime_does_not_panic() {
    use futures_util::FutureExt as _;

    let (guard, server) = (guard(OnFailure::Open), Fake::new(Does::Answer));
    assert_eq!(ask(&guard, &server).now_or_never(), Some(Ok(())));
    let client = crate::edge::redis::Client::open("redis://127.0.0.1:1").unwrap();
    let answer = guard.ask(&client, &call_of(0)).now_or_never().expect("at once");
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unreachable);
}

#[test]
fn blocking_calls_use_the_breaker() {
    let (guard, server) = (guard(OnFailure::Closed), Fake::new(Does::Fail(ErrorKind::Timeout)));
    let thread = RuntimeThread::default();
    let ask = || thread.block_on(guard.ask(&server, &call_of(0))).map(drop).map_err(|error| error.kind());
    for _ in 0..3 {
        assert_eq!(ask(), Err(ErrorKind::Timeout));
    }
    assert_eq!(ask(), Err(ErrorKind::Breaker));
    let error = thread.block_on(guard.ask(&server, &call_of(0))).unwrap_err();
    assert_eq!(error.to_string(), "the circuit breaker is open");
    assert_eq!(server.asked(), 3);
    assert_eq!(guard.health().errors(ErrorKind::Breaker), 2);
}

#[tokio::test(start_paused = true)]
async fn closed_denies_until_the_next_probe() {
    let (guard, server) = (guard(OnFailure::Closed), Fake::new(Does::Hang));
    let answer = guard.fallback(b"a", 1, NOW);
    assert_eq!(
        (answer.is_denied(), answer.by(), answer.retry_after()),
        (true, DecidedBy::Closed, Some(SECOND))
    );
    for _ in 0..3 {
        let _ = ask(&guard, &server).await;
    }
    let wait = guard.fallback(b"a", 1, NOW).retry_after().unwrap();
    assert!((SECOND / 2..SECOND + Duration::from_millis(2)).contains(&wait), "{wait:?}");
    server.now_does(Does::Answer);
    tokio::time::advance(wait - Duration::from_millis(1)).await;
    assert_eq!(ask(&guard, &server).await, Err(ErrorKind::Breaker));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(ask(&guard, &server).await, Ok(()), "the server is asked again when retry_after has passed");
    // The cost is more than the maximum of the tighter limit.
    assert!(guard.fallback(b"a", 9, NOW).decision().is_never());
    assert_eq!(guard.health().closed, 3);
}

/// Operators depend on the names of metrics.
#[cfg(feature = "metrics")]
#[test]
fn guard_reports_to_the_metrics_facade() {
    use std::collections::BTreeMap;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let (guard, server) = (guard(OnFailure::Local { processes: 1 }), Fake::new(Does::Answer));
        let thread = RuntimeThread::default();
        let ask = || drop(thread.block_on(guard.ask(&server, &call_of(0))));
        ask();
        server.now_does(Does::Fail(ErrorKind::Timeout));
        (0..5).for_each(|_| ask());
        let _ = guard.fallback(b"a", 1, NOW);
        crate::edge::telemetry::publish("api", &guard.health());
    });
    let values: BTreeMap<String, f64> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let key = key.key();
            let labels: Vec<String> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let value = match value {
                DebugValue::Counter(count) => f64::from(u32::try_from(count).unwrap()),
                DebugValue::Gauge(value) => value.into_inner(),
                DebugValue::Histogram(times) => f64::from(u32::try_from(times.len()).unwrap()),
            };
            (format!("{}{{{}}}", key.name(), labels.join(",")), value)
        })
        .filter(|(_, value)| *value > 0.0)
        .collect();
    let expected = [
        ("tollgate_breaker_state{limiter=api}", 2.0),
        ("tollgate_failure_decisions_total{limiter=api,decision=error_local}", 1.0),
        ("tollgate_partitioned{limiter=api}", 1.0),
        ("tollgate_sync_duration_seconds{limiter=api}", 4.0),
        ("tollgate_sync_errors_total{limiter=api,kind=breaker}", 2.0),
        ("tollgate_sync_errors_total{limiter=api,kind=timeout}", 3.0),
    ];
    assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)).into());
}
