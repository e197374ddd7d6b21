//! Asks a rate limit service at a fixed rate, and prints how late the answers are.
//!
//! ```text
//! tollgate-serve-load ADDRESS REQUEST RATE SECONDS BYTES
//! ```
//! ADDRESS is that of a TCP port, or the path of a Unix socket. REQUEST is a message in hexadecimal digits, and BYTES is the length of the expected answer. Each request has a time at which it is due.
//! Its latency begins then, also if the request before is late, so a pause of the server counts for all requests that it delays. `h2load`
//! sends a burst every 10 ms instead.
//!
//! This program never sleeps, so the server cannot stop it. If it did not run for a millisecond, the machine stopped it: the requests that were
//! due or on their way in such a pause are not counted.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

const METHOD: &str = "http://service/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CONNECTIONS: usize = 8;

/// The first requests, which are not counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// The shortest time between two readings of the clock that is a pause. The work between two readings takes at most a third of it.
const PAUSE: Duration = Duration::from_millis(1);

type Failure = Box<dyn Error + Send + Sync>;

fn bytes_of(digits: &str) -> Result<Vec<u8>, Failure> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| Ok(u8::from_str_radix(str::from_utf8(pair)?, 16)?));
    pairs.collect()
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn now() -> Instant {
    Instant::now()
}

async fn connect(address: &str) -> Result<SendRequest<Bytes>, Failure> {
    if let Ok(address) = address.parse::<SocketAddr>() {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        return handshake(stream).await;
    }
    handshake(UnixStream::connect(Path::new(address)).await?).await
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<Bytes>, Failure> {
    // Many small answers may wait here, if the server sends them together.
    let window = 16 << 20;
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(window).data_frame_budget(window as usize);
    let (sender, connection) = builder.handshake(stream).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Reads the clock again and again, and notes when this program did not run.
struct Watch {
    last: Instant,
    /// The longest time between two readings.
    longest: Duration,
    /// The pauses, in the order of time.
    pauses: Vec<(Instant, Instant)>,
}

impl Watch {
    fn read(&mut self) -> Instant {
        let read = now();
        let passed = read - self.last;
        self.longest = self.longest.max(passed);
        if passed >= PAUSE {
            self.pauses.push((self.last, read));
        }
        self.last = read;
        read
    }

    /// Whether some of this time was in a pause.
    fn paused(&self, from: Instant, to: Instant) -> bool {
        let first = self.pauses.partition_point(|&(_, end)| end <= from);
        self.pauses.get(first).is_some_and(|&(begin, _)| begin <= to)
    }
}

/// Asks once. Returns the time from `due` to the end of the answer.
async fn ask(
    sender: SendRequest<Bytes>,
    body: Bytes,
    due: Instant,
    expected: usize,
) -> Result<Duration, Failure> {
    let request =
        Request::post(METHOD).header("content-type", "application/grpc").header("te", "trailers").body(())?;
    let (response, mut stream) = sender.ready().await?.send_request(request, false)?;
    stream.send_data(body, true)?;
    let mut answer = response.await?.into_body();
    let mut length = 0;
    while let Some(data) = answer.data().await {
        let data = data?;
        length += data.len();
        answer.flow_control().release_capacity(data.len())?;
    }
    let trailers = answer.trailers().await?;
    let took = due.elapsed();
    match trailers.as_ref().and_then(|trailers| trailers.get("grpc-status")) {
        Some(status) if status == "0" && length == expected => Ok(took),
        status => {
            Err(format!("an answer has {length} bytes instead of {expected}, and the status {status:?}")
                .into())
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, request, rate, seconds, expected] = &args[..] else {
        return Err("usage: tollgate-serve-load ADDRESS REQUEST RATE SECONDS BYTES".into());
    };
    let message = bytes_of(request)?;
    let body = Bytes::from([&[0][..], &u32::try_from(message.len())?.to_be_bytes(), &message].concat());
    let (rate, seconds, expected) =
        (rate.parse::<u32>()?, seconds.parse::<u32>()?, 5 + expected.parse::<usize>()?);
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        senders.push(connect(address).await?);
    }
    let requests = u64::from(rate) * u64::from(seconds);
    let mut asked = Vec::new();
    let began = now();
    let mut watch = Watch { last: began, longest: Duration::ZERO, pauses: Vec::new() };
    for (number, sender) in (0..requests).zip(senders.iter().cycle()) {
        let due = began + Duration::from_nanos(number * 1_000_000_000 / u64::from(rate));
        // This core has nothing else to do, and a timer would be late.
        while watch.read() < due {
            tokio::task::yield_now().await;
        }
        // The requests of a pause would be a burst, which delays those after it.
        if !watch.paused(due, due) {
            asked.push((due, tokio::spawn(ask(sender.clone(), body.clone(), due, expected))));
        }
    }
    while asked.last().is_some_and(|(_, task)| !task.is_finished()) {
        watch.read();
        tokio::task::yield_now().await;
    }
    let mut times = Vec::new();
    for (due, task) in asked {
        let took = task.await??;
        if due >= began + WARM_UP && !watch.paused(due, due + took) {
            times.push(took.as_micros());
        }
    }
    times.sort_unstable();
    let at = |thousandth: usize| {
        times.get(times.len() * thousandth / 1_000).or(times.last()).copied().unwrap_or_default()
    };
    println!(
        r#"{{"requests": {}, "p50_us": {}, "p99_us": {}, "p99_9_us": {}, "worst_us": {}, "later_than_20_ms": {}, "pause_us": {}}}"#,
        times.len(),
        at(500),
        at(990),
        at(999),
        at(1_000),
        times.iter().filter(|&&took| took > 20_000).count(),
        watch.longest.as_micros(),
    );
    Ok(())
}
