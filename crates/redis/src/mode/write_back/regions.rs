//! Several regions: the calls to the own server, and the task that exchanges totals.
//!
//! 1. A post goes to the own server. Its reply may contain a claim, which is put into a queue.
//! 2. A task takes claims from the queue. It sends the own totals to all other regions at the same time.
//! 3. Each reply is reported to the own server.
//! 4. Once in each exchange interval, another task reports to the own server which calls to the other regions were
//!    answered, and learns what all processes of this region know.
//!
//! A claim that is lost (a full queue, a process that stops, a call without an answer) delays the exchange of its key by
//! one interval. So nothing here is retried.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate::internals::saturating_nanos;
use tollgate::internals::sync::{AtomicU64, Ordering};
use tollgate::telemetry::{Reading, Readings};
use tollgate::{Clock, TokioClock};
use tollgate_protocol::region::{Claim, RegionLink, pause};
use tollgate_protocol::{
    Call, EXACT, Error, ErrorKind, LinkReport, Plan, PlannedLimit, Portion, Question, RegionScope,
    RegionTerms, Reply, Scope, Transport, Windows,
};

use super::options::WriteBackOptions;
use crate::client::{BuildError, Settings};
use crate::telemetry::{REGION_CUT_OFF, REGION_LAST_ANSWER};

/// The maximum number of claims that wait, and of claims that are carried out at the same time.
const CLAIMS: [usize; 2] = [4_096, 256];
/// The maximum number of regions. A post reads the totals of all regions.
const MOST_REGIONS: usize = 32;
/// How long a call to another region may take, unless the exchange interval is shorter.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The bounds of the time between two reports of the calls to other regions. Otherwise it is the exchange interval.
const REPORT: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// How many exchange intervals the own server remembers a report.
const REMEMBERED: u64 = 20;
/// A window contains at least this many exchange intervals.
const EXCHANGES: u32 = 10;

/// What this region knows of another region. All processes of this region report to its server which calls to the other
/// regions were answered. Each process reads the result once in each exchange interval, but at most ten times a second and
/// at least every ten seconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RegionHealth {
    /// Whether no process of this region got an answer although calls were sent over three exchange intervals. While no
    /// key is exchanged, no call is sent, and the value does not change.
    pub is_cut_off: bool,
    /// The time since the last answer to any process of this region, or `None` if there was none.
    pub last_answer: Option<Duration>,
}

/// The gauges `tollgate_region_cut_off` (0 or 1) and `tollgate_region_last_answer_seconds`, if there was an answer.
impl Readings for RegionHealth {
    fn readings(&self) -> Vec<Reading> {
        let mut readings = vec![Reading::Gauge(REGION_CUT_OFF, f64::from(u8::from(self.is_cut_off)))];
        readings.extend(self.last_answer.map(|age| Reading::Gauge(REGION_LAST_ANSWER, age.as_secs_f64())));
        readings
    }
}

/// The regions of a limiter.
pub(super) struct Regions {
    pub(super) portion: Portion,
    peers: Arc<[Peer]>,
    interval_ns: u64,
    clock: TokioClock,
}

struct Peer {
    name: Arc<str>,
    link: RegionLink,
    in_flight: AtomicU64,
}

impl Regions {
    /// What this region knows of the other regions.
    pub(super) fn health(&self) -> Vec<(Arc<str>, RegionHealth)> {
        let now_ns = self.clock.now().as_nanos();
        let health = |peer: &Peer| RegionHealth {
            is_cut_off: peer.link.is_cut_off(self.interval_ns),
            last_answer: peer.link.age_ns(now_ns).map(Duration::from_nanos),
        };
        self.peers.iter().map(|peer| (Arc::clone(&peer.name), health(peer))).collect()
    }
}

/// The server of this region, which answers the questions of a mode.
pub(super) struct OwnServer<T> {
    server: T,
    /// What each limit needs, by its index.
    terms: Box<[Arc<RegionTerms>]>,
    interval_us: u64,
    claims: mpsc::Sender<Claim>,
    random: ahash::RandomState,
    /// The number of calls.
    calls: AtomicU64,
}

/// What the tasks of a limiter share.
struct Exchange<T> {
    own: Box<str>,
    server: T,
    /// The servers of the peers.
    others: Vec<T>,
    peers: Arc<[Peer]>,
    interval: Duration,
    timeout: Duration,
    clock: TokioClock,
}

fn refused<T>(why: String) -> Result<T, BuildError> {
    Err(BuildError::Regions(why.into()))
}

/// Returns this region's part of the limits. Returns an error if the regions cannot share a limit.
fn check_regions<T: Transport>(options: &WriteBackOptions<T>, server: &T) -> Result<Portion, BuildError> {
    let WriteBackOptions { own, others, .. } = options;
    let mut all: Vec<&str> = others.iter().map(|(name, _)| &**name).chain([&**own]).collect();
    all.sort_unstable();
    let regions = all.len();
    if regions > MOST_REGIONS {
        return refused(format!("regions: there are {regions} regions, and the maximum is {MOST_REGIONS}"));
    }
    if all.contains(&"") {
        return refused("regions: the name of a region is empty; give each region a name".to_owned());
    }
    if let Some(pair) = all.windows(2).find(|pair| pair[0] == pair[1]) {
        let name = pair[0];
        return refused(format!(
            "regions: two regions have the name {name:?}; give each region, also this process's own, a different name"
        ));
    }
    for (name, server) in std::iter::once((own, server)).chain(others.iter().map(|(name, to)| (name, to))) {
        if !server.is_one_server() {
            return refused(format!(
                "regions: region {name:?} has a Cluster or a set of servers; use one server in each region"
            ));
        }
    }
    let place = all.iter().position(|name| *name == &**own).unwrap_or(0) as u64;
    Ok(Portion { from: place, to: place + 1, of: regions as u64 })
}

/// Returns the windows of a limit. Returns an error if the regions cannot share it.
fn shared_windows(part: &PlannedLimit, interval: Duration, regions: u64) -> Result<Windows, BuildError> {
    let quota = part.limit.quota();
    let Some(windows) = part.windows() else {
        return refused(format!(
            "regions: the algorithm of {quota} has no windows whose totals can be compared; use a fixed window, a sliding \
             window, or a part of the limit in each region"
        ));
    };
    let shortest = interval.saturating_mul(EXCHANGES);
    if quota.period() < shortest {
        return refused(format!(
            "regions: the window of {quota} is shorter than {EXCHANGES} exchange intervals ({shortest:?}); use a shorter \
             exchange interval, or a part of the limit in each region"
        ));
    }
    if windows.limit < regions {
        return refused(format!(
            "regions: {quota} is too small for {regions} regions; use a limit of at least {regions}, one unit for each"
        ));
    }
    let most = EXACT / regions;
    if windows.limit > most {
        return refused(format!(
            "regions: {quota} is too large for {regions} regions; use a limit of at most {most}"
        ));
    }
    Ok(windows)
}

/// Starts the tasks of a limiter of several regions.
pub(super) fn start<T: Transport + Clone>(
    options: WriteBackOptions<T>,
    server: T,
    settings: &Settings,
    runtime: &Handle,
) -> Result<(Regions, OwnServer<T>), BuildError> {
    let portion = check_regions(&options, &server)?;
    let WriteBackOptions { own, others, policy, exchange_interval: interval, .. } = options;
    let (names, others): (Vec<Box<str>>, Vec<T>) = others.into_iter().unzip();
    let plan = Plan::new(&settings.limits)?;
    let terms = plan.parts().iter().map(|part| {
        let windows = shared_windows(part, interval, portion.of)?;
        Ok(Arc::new(RegionTerms { windows, policy, portion, others: names.clone().into() }))
    });
    let terms = terms.collect::<Result<Box<[_]>, BuildError>>()?;
    let (sender, claims) = mpsc::channel(CLAIMS[0]);
    let peer =
        |name: &str| Peer { name: name.into(), link: RegionLink::default(), in_flight: AtomicU64::new(0) };
    let peers: Arc<[Peer]> = names.iter().map(|name| peer(name)).collect();
    let (interval_ns, clock) = (saturating_nanos(interval), TokioClock::new());
    let regions = Regions { portion, peers: Arc::clone(&peers), interval_ns, clock: clock.clone() };
    let timeout = settings.timeout;
    let exchange =
        Arc::new(Exchange { own, server: server.clone(), others, peers, interval, timeout, clock });
    let name = [&*settings.places.tag(b""), b":links"].concat();
    runtime.spawn(report(Arc::downgrade(&exchange), name, interval));
    runtime.spawn(exchange.run(claims));
    let own_server = OwnServer {
        server,
        terms,
        interval_us: interval_ns / 1_000,
        claims: sender,
        random: ahash::RandomState::new(),
        calls: AtomicU64::new(0),
    };
    Ok((regions, own_server))
}

impl<T: Transport> Transport for OwnServer<T> {
    type States = ();

    fn evicts(&self, server: usize) -> bool {
        self.server.evicts(server)
    }

    fn address(&self, server: usize) -> String {
        self.server.address(server)
    }

    async fn call(&self, call: &Call) -> Result<Reply, Error> {
        let unsupported =
            || Error::new(ErrorKind::Refused, "several regions cannot decide several limits in one call");
        let &[part] = call.plan.parts() else { return Err(unsupported()) };
        let terms = self.terms.get(part.index).ok_or_else(unsupported)?;
        if !matches!(call.ask, Question::Peek { .. } | Question::Check { .. } | Question::Post { .. }) {
            return Err(unsupported());
        }
        // Ordering: Relaxed. The number only makes the pauses differ.
        let random = self.random.hash_one(self.calls.fetch_add(1, Ordering::Relaxed));
        let pause_us = pause(self.interval_us, random);
        let scope = RegionScope { terms: Arc::clone(terms), pause_us, from: None };
        let call = Call { scope: Scope::Region(scope), ..call.clone() };
        let reply = self.server.call(&call).await?;
        if let Some(claim) = Claim::of(&call, &reply) {
            // If the queue is full, the key is exchanged one interval later.
            let _ = self.claims.try_send(claim);
        }
        Ok(reply)
    }
}

impl<T: Transport> Exchange<T> {
    /// Carries out claims until the limiter is dropped.
    async fn run(self: Arc<Self>, mut claims: mpsc::Receiver<Claim>) {
        let (mut exchanges, interval_ns) = (JoinSet::new(), saturating_nanos(self.interval));
        while let Some(claim) = claims.recv().await {
            while exchanges.len() >= CLAIMS[1] * self.peers.len().max(1) {
                let _ = exchanges.join_next().await;
            }
            while exchanges.try_join_next().is_some() {}
            let now_ns = self.clock.now().as_nanos();
            for (at, peer) in self.peers.iter().enumerate() {
                // Ordering: Relaxed, here and below. The number only limits how often a silent region is called.
                let is_busy = peer.in_flight.load(Ordering::Relaxed) > 0;
                if is_busy && peer.link.is_cut_off(interval_ns) {
                    continue;
                }
                peer.in_flight.fetch_add(1, Ordering::Relaxed);
                exchanges.spawn(Arc::clone(&self).carry_out(claim.clone(), at, now_ns));
            }
        }
    }

    /// Tells a peer of a claim, and tells the own server what the peer answers.
    async fn carry_out(self: Arc<Self>, claim: Claim, at: usize, now_ns: u64) {
        let peer = &self.peers[at];
        let tell = claim.tell(&self.own);
        let told = timeout(self.interval.min(TIMEOUT), self.others[at].call(&tell)).await;
        peer.in_flight.fetch_sub(1, Ordering::Relaxed);
        let Ok(Ok(Reply { region: Some(theirs), .. })) = told else {
            return peer.link.failed(now_ns);
        };
        peer.link.answered(self.clock.now().as_nanos());
        // If the own server does not answer, the next exchange reports again.
        let _ = timeout(self.timeout, self.server.call(&claim.hear(&peer.name, &theirs))).await;
    }
}

/// Reports the calls to other regions to the own server, under this key. Reports once in each interval, until the limiter is
/// dropped.
async fn report<T: Transport>(exchange: Weak<Exchange<T>>, name: Vec<u8>, interval: Duration) {
    loop {
        tokio::time::sleep(interval.clamp(REPORT[0], REPORT[1])).await;
        let Some(exchange) = exchange.upgrade() else { return };
        let Exchange { server, peers, timeout: most, clock, .. } = &*exchange;
        let sent_ns = clock.now().as_nanos();
        let links = peers.iter().map(|peer| (Box::from(&*peer.name), peer.link.report(sent_ns)));
        let life_us = saturating_nanos(interval) / 1_000 * REMEMBERED;
        let report = LinkReport { name: name.clone(), life_us, links: links.collect() };
        // If the own server does not answer, this process knows what it saw itself.
        if let Ok(Ok(known)) = timeout(*most, server.report_links(&report)).await {
            peers.iter().zip(known).for_each(|(peer, ages)| peer.link.learn(ages, sent_ns));
        }
    }
}
