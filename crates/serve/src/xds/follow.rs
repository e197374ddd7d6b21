//! The stream of the control plane, and the pauses between two of them.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::poll_fn;
use http::uri::PathAndQuery;
use prost_types::Struct;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tollgate_rules::{Followed, RulesError};
use tonic::client::Grpc;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::XdsStart;
use super::connect::Connector;
use super::take::{TYPE_URL, Taken, Taker};
use crate::connections::jittered;
use crate::load::NoteLoad;
use crate::log;
use crate::proto::{DiscoveryRequest, DiscoveryResponse, Node};
use crate::stats::{Stats, XdsStats};
use crate::xds::flags::{HeaderField, XdsArgs};

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// How long the control plane may be silent at the start of a stream, before the log names the silence. The start waits
/// longer, so its error says this, too.
const SILENT: Duration = Duration::from_secs(15);

/// The waits before a refused set is refused again: the first, and the longest. Some servers send it again at once.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The shortest pause between two connections.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// Follows the control plane.
pub struct Stream {
    taker: Taker,
    connector: Connector,
    name: String,
    note: NoteLoad,
    stats: Arc<Stats>,
    pauses: Pauses,
    node: Node,
    headers: Vec<HeaderField>,
    max_message: usize,
}

/// Why a stream ended.
struct Ended {
    /// Whether there was a connection.
    was_connected: bool,
    why: String,
}

impl Stream {
    /// Prepares the stream.
    pub fn new(args: &XdsArgs, start: XdsStart, note: NoteLoad, stats: Arc<Stats>) -> Self {
        let XdsStart { taker, connector, name, headers } = start;
        let fields = args.xds_node_metadata.iter().map(|(key, value)| (key.clone(), value.clone().into()));
        let metadata = Some(Struct { fields: fields.collect() }).filter(|all| !all.fields.is_empty());
        let node = Node { id: args.xds_node_id.clone(), cluster: String::new(), metadata };
        let pauses = Pauses {
            retry: args.xds_retry,
            pause: args.xds_pause,
            most: args.xds_max_pause,
            spread: args.xds_spread,
            failures: 0,
        };
        let max_message = args.xds_max_message;
        Self { taker, connector, name, note, stats, pauses, node, headers, max_message }
    }

    /// Loads the last good copy, and follows the control plane, one stream after another.
    pub async fn run(mut self) -> Infallible {
        match self.taker.pushed.load_copy(&format!("{} has not sent rules yet", self.name)) {
            Ok(copied) => self.tell(copied.map(Ok)),
            // The control plane sends newer rules anyway.
            Err(error) => log::warn(error),
        }
        loop {
            let Ended { was_connected, why } = self.stream().await;
            self.count(|stats| {
                stats.connected.set(0);
                stats.ended.add();
            });
            self.tell_away(&why);
            sleep(self.pauses.next(was_connected)).await;
        }
    }

    fn count(&self, count: impl FnOnce(&XdsStats)) {
        self.stats.xds.get().map(count);
    }

    /// Says why there are no new rules.
    fn tell_away(&mut self, why: &str) {
        let loaded = self.taker.pushed.push(Err(format!("{}: {why}", self.name).into()));
        self.tell(loaded);
    }

    fn tell(&self, loaded: Option<Result<Followed, RulesError>>) {
        if let Some(loaded) = loaded {
            loaded.iter().flat_map(Followed::warnings).for_each(log::warn);
            (self.note)(&loaded.map(|followed| followed.report().clone()));
        }
    }

    /// Connects, and takes messages until the end of the stream.
    async fn stream(&mut self) -> Ended {
        self.taker.begin();
        let (channel, mut driver) = match self.connector.connect().await {
            Ok(connected) => connected,
            Err(why) => return Ended { was_connected: false, why },
        };
        let why = match self.open(channel).await {
            Ok(why) => why,
            Err(status) => driver.failure().await.unwrap_or_else(|| shown(&status)),
        };
        Ended { was_connected: true, why }
    }

    async fn open(&mut self, channel: super::connect::Channel) -> Result<String, Status> {
        let (answers, mut queue) = mpsc::channel(1);
        let node = Some(self.node.clone());
        let first = DiscoveryRequest { node, type_url: TYPE_URL.to_owned(), ..DiscoveryRequest::default() };
        let _ = answers.send(first).await;
        let mut request = tonic::Request::new(poll_fn(move |cx| queue.poll_recv(cx)));
        for (name, value) in &self.headers {
            request.metadata_mut().append(name.clone(), value.clone());
        }
        let mut grpc =
            Grpc::with_origin(channel, self.connector.origin()).max_decoding_message_size(self.max_message);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        let mut first = pin!(async {
            let opened = grpc.streaming(request, PathAndQuery::from_static(METHOD), codec).await?;
            let mut messages = opened.into_inner();
            let first = messages.message().await?;
            Ok::<_, Status>((messages, first))
        });
        let opened = if let Ok(opened) = timeout(SILENT, &mut first).await {
            opened
        } else {
            self.tell_away(&format!(
                "it sends no rules for the node {:?}; check --xds-node-id, and whether it has rules",
                self.node.id
            ));
            first.await
        };
        let (messages, first) = opened?;
        self.take_all(messages, first, &answers).await
    }

    /// Takes all messages. Returns why there are no more.
    async fn take_all(
        &mut self,
        mut messages: Streaming<DiscoveryResponse>,
        mut next: Option<DiscoveryResponse>,
        answers: &mpsc::Sender<DiscoveryRequest>,
    ) -> Result<String, Status> {
        let mut wait = AGAIN.0;
        while let Some(message) = next {
            let Taken { answer, loaded, is_again } = self.taker.take(message);
            self.note_answer(&answer);
            self.tell(loaded);
            if is_again {
                // A later message makes this answer worthless.
                let due = Instant::now() + wait;
                wait = (wait * 2).min(AGAIN.1);
                if let Ok(early) = timeout_at(due, messages.message()).await {
                    next = early?;
                    continue;
                }
            } else {
                wait = AGAIN.0;
            }
            let _ = answers.send(answer).await;
            next = messages.message().await?;
        }
        Ok("it ended the stream".to_owned())
    }

    fn note_answer(&mut self, answer: &DiscoveryRequest) {
        let is_refused = answer.error_detail.is_some();
        self.count(|stats| {
            if stats.connected.get() == 0 {
                log::info(format_args!("{} sends rules", stats.name));
            }
            stats.connected.set(1);
            stats.nack.set(u64::from(is_refused));
            if is_refused { stats.nacks.add() } else { stats.acks.add() }
        });
        if !is_refused {
            self.pauses.failures = 0;
        }
    }
}

/// Returns the reason of an error, with a remedy if there is one.
fn shown(status: &Status) -> String {
    let remedy = match status.code() {
        Code::OutOfRange => "; raise --xds-max-message",
        Code::Unimplemented => "; check whether --xds is the address of the rate limit configuration",
        _ => "",
    };
    format!("{:?}: {}{remedy}", status.code(), status.message())
}

/// The pauses between two connections.
#[derive(Debug)]
struct Pauses {
    /// After a connection that failed.
    retry: Duration,
    /// After a stream that ended.
    pause: Duration,
    most: Duration,
    spread: f64,
    /// The failures since the last rules.
    failures: u32,
}

impl Pauses {
    fn next(&mut self, was_connected: bool) -> Duration {
        let first = if was_connected { self.pause } else { self.retry };
        let grown = first.saturating_mul(1 << self.failures.min(16)).min(self.most);
        self.failures = self.failures.saturating_add(1);
        jittered(grown, self.spread).max(LEAST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // G139
    #[test]
    fn pauses_grow_and_differ() {
        let seconds = Duration::from_secs;
        let new =
            |spread| Pauses { retry: seconds(3), pause: seconds(10), most: seconds(60), spread, failures: 0 };
        let mut exact = new(0.0);
        let pauses: Vec<u64> = (0..6).map(|_| exact.next(true).as_secs()).collect();
        assert_eq!(pauses, [10, 20, 40, 60, 60, 60]);
        assert_eq!(new(0.0).next(false), seconds(3));
        let all: Vec<Duration> = (0..1_000).map(|_| new(0.5).next(true)).collect();
        assert!(all.iter().all(|pause| (5_000..=15_000).contains(&pause.as_millis())));
        assert!(all.iter().any(|pause| pause.as_secs() < 7) && all.iter().any(|pause| pause.as_secs() > 12));
        let mut least = Pauses { retry: Duration::ZERO, failures: u32::MAX, ..new(1.0) };
        assert!(least.next(false) >= LEAST_PAUSE);
    }
}
