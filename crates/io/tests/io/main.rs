//! Limited readers, writers, streams, sinks and bodies, in tokio's paused time: nothing depends on the scheduler.
//!
//! - The pace is the rate of the limit, within 0.1 %, for each trait, any size of the buffer and any number of users.
//! - In no interval does more pass than the burst, the rate times the interval, and one call of each user.
//! - A call that is dropped charges nothing twice, and loses nothing.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt, sink, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, repeat, split};
use tokio::time::{Instant, timeout};
use tollgate::{
    Carry, Direct, FixedWindow, Gcra, Quota, RateLimiter, SlidingLog, Timestamp, TokioClock, WhenFull,
};
use tollgate_io::{ByteLimit, Limited};
use tollgate_testing::operations::config;

const MB: u64 = 1_000_000;
const RATE: u64 = 50 * MB;
/// Refills in 20 ms, which is far above the millisecond of tokio's timer.
const BURST: u64 = MB;
const CHUNK: usize = 65_536;

type Limiter = RateLimiter<Direct, TokioClock>;

fn limit(rate: u64, burst: u64) -> Arc<Limiter> {
    let quota = Gcra::new(Quota::per_second(rate).burst(burst));
    Arc::new(RateLimiter::builder(quota).clock(TokioClock::starting_at(Timestamp::ZERO)).direct())
}

/// Runs `work` in paused time: the time goes on only while every task waits.
fn paused<F: Future>(work: impl FnOnce() -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async { work().await })
}

/// Counts what passes in ten seconds.
struct Pace {
    start: Instant,
    passed: u64,
}

impl Pace {
    fn begin() -> Self {
        Self { start: Instant::now(), passed: 0 }
    }

    fn goes_on(&self) -> bool {
        self.start.elapsed() < Duration::from_secs(10)
    }

    fn is(&self, rate: u64) {
        let ratio = (self.passed - BURST) as f64 / (rate as f64 * self.start.elapsed().as_secs_f64());
        assert!((0.999..=1.001).contains(&ratio), "{ratio} of {rate} bytes a second");
    }
}

// G151
#[test]
fn reader_has_the_pace() {
    for size in [1_500, CHUNK, 4 * CHUNK] {
        paused(|| async {
            let mut reader = Limited::new(repeat(7), limit(RATE, BURST));
            let (mut pace, mut buffer) = (Pace::begin(), vec![0; size]);
            while pace.goes_on() {
                pace.passed += reader.read(&mut buffer).await.unwrap() as u64;
            }
            pace.is(RATE);
        });
    }
}

// G151
#[test]
fn writer_has_the_pace() {
    paused(|| async {
        let mut writer = Limited::new(tokio::io::sink(), limit(RATE, BURST));
        let (mut pace, buffer) = (Pace::begin(), vec![0; CHUNK]);
        while pace.goes_on() {
            let slices = [std::io::IoSlice::new(&buffer[..1_000]), std::io::IoSlice::new(&buffer)];
            pace.passed += writer.write(&buffer).await.unwrap() as u64;
            pace.passed += writer.write_vectored(&slices).await.unwrap() as u64;
        }
        pace.is(RATE);
    });
}

// G151
#[test]
fn stream_and_sink_have_the_pace() {
    paused(|| async {
        let block = Bytes::from(vec![0; CHUNK]);
        let cost = |block: &Bytes| block.len() as u64;
        let mut stream = Limited::items(stream::repeat(block.clone()), limit(RATE, BURST), cost);
        let mut pace = Pace::begin();
        while pace.goes_on() {
            pace.passed += stream.next().await.unwrap().len() as u64;
        }
        pace.is(RATE);

        let mut sink = Limited::items(sink::drain(), limit(RATE, BURST), cost);
        let mut pace = Pace::begin();
        while pace.goes_on() {
            sink.send(block.clone()).await.unwrap();
            pace.passed += CHUNK as u64;
        }
        pace.is(RATE);
    });
}

// G151
#[test]
fn body_has_the_pace_and_its_trailers_cost_nothing() {
    paused(|| async {
        let block = Bytes::from(vec![0; CHUNK]);
        let frames = stream::repeat_with(|| Ok::<_, std::io::Error>(Frame::data(block.clone())))
            .take(8_000)
            .chain(stream::iter([Ok(Frame::trailers(http::HeaderMap::new()))]));
        let mut body = Limited::new(StreamBody::new(Box::pin(frames)), limit(RATE, BURST));
        let (mut pace, mut trailers) = (Pace::begin(), 0);
        while let Some(frame) = body.frame().await {
            match frame.unwrap().into_data() {
                Ok(data) => pace.passed += data.len() as u64,
                Err(_) => trailers += 1,
            }
        }
        assert_eq!((pace.passed, trailers), (8_000 * CHUNK as u64, 1));
        pace.is(RATE);
    });
}

// G151
#[test]
fn many_readers_share_one_limit() {
    paused(|| async {
        let (all, start) = (limit(RATE, BURST), Instant::now());
        let readers = (0..10).map(|_| async {
            let mut reader = Limited::new(repeat(7), all.clone());
            let (mut passed, mut buffer) = (0, vec![0; 16_384]);
            while start.elapsed() < Duration::from_secs(10) {
                passed += reader.read(&mut buffer).await.unwrap() as u64;
            }
            passed
        });
        let passed = join_all(readers).await;
        Pace { start, passed: passed.iter().sum() }.is(RATE);
        let (least, most) = (passed.iter().min().unwrap(), passed.iter().max().unwrap());
        assert!(2 * least > *most, "no reader waits for the others: {passed:?}");
    });
}

/// A limit for each connection and one for all: the slower one decides, and both are charged what has passed.
// G151
#[test]
fn limits_of_a_connection_and_of_all_apply_together() {
    for (connections, wanted) in [(2, 20 * MB), (10, RATE)] {
        paused(|| async {
            let (all, start) = (limit(RATE, BURST), Instant::now());
            let readers = (0..connections).map(|_| async {
                let one = limit(10 * MB, BURST / connections);
                let mut reader = Limited::new(repeat(7), (one, all.clone()));
                let (mut passed, mut buffer) = (0, vec![0; 16_384]);
                while start.elapsed() < Duration::from_secs(10) {
                    passed += reader.read(&mut buffer).await.unwrap() as u64;
                }
                passed
            });
            Pace { start, passed: join_all(readers).await.iter().sum() }.is(wanted);
        });
    }
}

/// Each read is dropped many times before it returns.
// G151
#[test]
fn dropped_reads_charge_nothing_twice() {
    paused(|| async {
        let mut reader = Limited::new(repeat(7), limit(RATE, BURST));
        let (mut pace, mut buffer) = (Pace::begin(), vec![0; 4 * CHUNK]);
        let mut dropped = 0;
        while pace.goes_on() {
            match timeout(Duration::from_millis(1), reader.read(&mut buffer)).await {
                Ok(read) => pace.passed += read.unwrap() as u64,
                Err(_) => dropped += 1,
            }
        }
        assert!(dropped > 1_000, "{dropped}");
        pace.is(RATE);
    });
}

/// Two tasks own the halves. The writer is a minute ahead. Both wait for one limit, and each of them is woken.
// G151
#[test]
fn directions_share_a_limit_and_wait_on_their_own() {
    paused(|| async {
        let (near, far) = duplex(1 << 20);
        let (mut reader, mut writer) = split(Limited::new(near, limit(1_000, 1_000)));
        let (_, mut feeder) = split(far);
        feeder.write_all(&[1; 500]).await.unwrap();
        let start = Instant::now();
        let write = async {
            writer.write_all(&[0; 61_000]).await.unwrap();
            writer.write_all(&[0]).await.unwrap();
            start.elapsed().as_secs()
        };
        let read = async {
            let mut buffer = [0; 500];
            reader.read_exact(&mut buffer).await.unwrap();
            let first = start.elapsed();
            // The debt of both directions is paid before this direction goes on.
            feeder.write_all(&[1; 1]).await.unwrap();
            reader.read_exact(&mut buffer[..1]).await.unwrap();
            (first, start.elapsed().as_secs())
        };
        let (written, (first, second)) = tokio::join!(write, read);
        assert_eq!(first.as_secs(), 60, "the limit counts both directions");
        assert_eq!((written, second), (60, 60), "60,000 bytes beyond the burst");
    });
}

// G151
#[test]
fn changed_quota_applies_to_what_passes_next() {
    paused(|| async {
        let quota = |rate| Quota::per_second(rate).burst(BURST);
        let clock = TokioClock::starting_at(Timestamp::ZERO);
        let limiter = RateLimiter::builder(Gcra::new(quota(RATE))).clock(clock).direct().adjustable();
        let mut reader = Limited::new(repeat(7), &limiter);
        let mut buffer = vec![0; CHUNK];
        let mut pace = Pace::begin();
        while pace.goes_on() {
            pace.passed += reader.read(&mut buffer).await.unwrap() as u64;
        }
        pace.is(RATE);
        limiter.set_quota(&quota(2 * RATE), Carry::Used).unwrap();
        // The burst is in use already.
        let mut pace = Pace { passed: BURST, ..Pace::begin() };
        while pace.goes_on() {
            pace.passed += reader.read(&mut buffer).await.unwrap() as u64;
        }
        pace.is(2 * RATE);
    });
}

/// Cause: only a call that had charged something waited. Trigger: clients that connect again and again, or answers of one frame.
/// Symptom: a limit for all of them had no effect.
// G151
#[test]
fn new_users_wait_for_what_others_owe() {
    paused(|| async {
        let limiter = limit(1_000, 1_000);
        let start = tokio::time::Instant::now();
        for _ in 0..20 {
            let read = Limited::new(repeat(7), limiter.clone()).read(&mut [0; 1_000]).await.unwrap();
            assert_eq!(read, 1_000);
        }
        // A new user waits until one unit is free: then all that passed before, less the burst, is paid.
        assert_eq!(start.elapsed().as_secs(), 18);
    });
}

/// Cause: the wait after a charge that the store had no place for was zero. Symptom: a client beyond the cap had no limit.
// G151
#[test]
fn keys_without_a_place_do_not_pass() {
    paused(|| async {
        let clock = TokioClock::starting_at(Timestamp::ZERO);
        let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(1_000)))
            .clock(clock)
            .max_keys(1, WhenFull::Deny)
            .keyed::<String>();
        let of = |client| {
            let limiter = &limiter;
            move |bytes| {
                let charged = limiter.charge_unchecked(client, bytes);
                if charged.is_denied() { charged } else { limiter.peek(client) }
            }
        };
        let mut buffer = [0; 60_000];
        assert_eq!(Limited::new(repeat(7), of("alice")).read(&mut buffer).await.unwrap(), 60_000);
        let mut bob = Limited::new(repeat(7), of("bob"));
        let _ = bob.read(&mut [0; 10]).await;
        // Alice's place is free in a minute.
        assert!(timeout(Duration::from_secs(59), bob.read(&mut [0; 10])).await.is_err());
        assert!(timeout(Duration::from_secs(2), bob.read(&mut [0; 10])).await.is_ok());
    });
}

/// Cause: windows keep no debts, so the wait after a charge was zero. Symptom: a limit with a window never waited.
// G151
#[test]
fn windows_are_closed_until_they_have_a_free_unit() {
    paused(|| async {
        let quota = Quota::per_second(100);
        let clock = TokioClock::starting_at(Timestamp::ZERO);
        let fixed = RateLimiter::builder(FixedWindow::new(quota)).clock(clock.clone()).direct();
        let log = RateLimiter::builder(SlidingLog::new(quota)).clock(clock).direct();
        let start = tokio::time::Instant::now();
        let mut reader = Limited::new(repeat(7), (fixed, log));
        for _ in 0..6 {
            assert_eq!(reader.read(&mut [0; 100]).await.unwrap(), 100);
        }
        assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
    });
}

/// A limit whose next unit is never free.
struct Endless;

impl ByteLimit for Endless {
    fn charge(&self, units: u64) -> Duration {
        if units > 0 { Duration::MAX } else { Duration::ZERO }
    }
}

/// A limit whose next unit is never free does not overflow the timer.
#[test]
fn endless_wait_is_no_overflow() {
    paused(|| async {
        let mut reader = Limited::new(repeat(7), Endless);
        let mut buffer = [0; 10];
        assert_eq!(reader.read(&mut buffer).await.unwrap(), 10);
        assert!(timeout(Duration::from_secs(86_400), reader.read(&mut buffer)).await.is_err());
    });
}

#[test]
fn errors_and_ends_cost_nothing() {
    paused(|| async {
        let limiter = limit(1_000, 1_000);
        let failing = tokio_io_failure();
        let mut reader = Limited::new(failing, limiter.clone());
        assert!(reader.read(&mut [0; 100]).await.is_err());
        assert_eq!(Limited::new(&[][..], limiter.clone()).read(&mut [0; 100]).await.unwrap(), 0);
        assert_eq!(limiter.peek().remaining(), 1_000);
        assert_eq!(limiter.charge(400), Duration::ZERO);
        assert_eq!(limiter.peek().remaining(), 600);
    });
}

/// A reader of which every call fails.
fn tokio_io_failure() -> impl tokio::io::AsyncRead + Unpin {
    struct Failing;
    impl tokio::io::AsyncRead for Failing {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()))
        }
    }
    Failing
}

proptest! {
    #![proptest_config(config(128))]

    /// No interval between two calls has more than its bound.
    // G151
    #[test]
    fn no_interval_exceeds_its_bound(
        rate in 1_000_u64..=100_000_000,
        burst in 1_u64..=1_000_000,
        sizes in prop::collection::vec(1_usize..=200_000, 1..5),
        pauses in prop::collection::vec(0_u64..=30_000, 40),
    ) {
        paused(|| async {
            let (all, start) = (limit(rate, burst), Instant::now());
            let log = std::cell::RefCell::new(Vec::new());
            join_all(sizes.iter().map(|size| {
                let (all, log, pauses) = (all.clone(), &log, &pauses);
                async move {
                    let mut reader = Limited::new(repeat(7), all);
                    let mut buffer = vec![0; *size];
                    for pause in pauses {
                        let passed = reader.read(&mut buffer).await.unwrap();
                        log.borrow_mut().push((start.elapsed().as_nanos(), passed as u128));
                        tokio::time::sleep(Duration::from_micros(*pause)).await;
                    }
                }
            }))
            .await;
            let log = log.into_inner();
            // One call of each user may pass beyond the bound.
            let beyond: u128 = sizes.iter().map(|size| *size as u128).sum();
            for (at, &(from, _)) in log.iter().enumerate() {
                let mut sum = 0;
                for &(to, passed) in &log[at..] {
                    sum += passed;
                    let most = u128::from(burst) + u128::from(rate) * (to - from) / 1_000_000_000 + 1 + beyond;
                    assert!(sum <= most, "{sum} bytes from {from} to {to} ns, at most {most}");
                }
            }
        });
    }
}
