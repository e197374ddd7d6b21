//! A control plane: it sends the bytes of the test, and keeps the requests.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::poll_fn;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use prost_types::Any;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tollgate_serve::proto::{
    DiscoveryRequest, DiscoveryResponse, RateLimitConfig, RateLimitPolicy, RuleDescriptor, Unit,
};
use tollgate_serve::xds::take::TYPE_URL;

use crate::server::PATIENCE;

/// What the control plane does.
#[derive(Clone, Default)]
pub(crate) struct Behaviour {
    /// What it sends, if anything: an encoded message.
    pub(crate) sends: Option<Bytes>,
    /// How many bytes it writes at once.
    pub(crate) piece: Option<usize>,
    /// It sends a refused set again at once, as go-control-plane does.
    pub(crate) repeats: bool,
    /// It ends each stream: with this code.
    pub(crate) ends: Option<u32>,
    /// It ignores all connections.
    pub(crate) ignores: bool,
}

/// A control plane that runs.
pub(crate) struct Plane {
    pub(crate) address: String,
    behaviour: watch::Sender<Behaviour>,
    seen: Arc<Mutex<Vec<DiscoveryRequest>>>,
    pub(crate) heads: Arc<Mutex<Vec<HeaderMap>>>,
    accepts: JoinHandle<()>,
    streams: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.accepts.abort();
        self.streams.lock().unwrap().iter().for_each(JoinHandle::abort);
    }
}

impl Plane {
    pub(crate) async fn start(address: &str, tls: Option<ServerConfig>, first: Behaviour) -> Self {
        let listener = listen(address).await;
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let (behaviour, watched) = watch::channel(first);
        let (seen, heads, streams) = (
            Arc::<Mutex<Vec<_>>>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        let (told, kept, open) = (Arc::clone(&seen), Arc::clone(&heads), Arc::clone(&streams));
        let accepts = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, watched) = (tls.clone(), watched.clone());
                let (told, kept) = (Arc::clone(&told), Arc::clone(&kept));
                let task = tokio::spawn(async move {
                    let ignores = watched.borrow().ignores;
                    match tls {
                        _ if ignores => std::future::pending().await,
                        None => serve(stream, watched, told, kept).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, watched, told, kept).await;
                            }
                        }
                    }
                });
                open.lock().unwrap().push(task);
            }
        });
        Self { address, behaviour, seen, heads, accepts, streams }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        self.behaviour.send_modify(change);
    }

    pub(crate) fn send(&self, message: &DiscoveryResponse) {
        self.set(|behaviour| behaviour.sends = Some(message.encode_to_vec().into()));
    }

    pub(crate) fn seen(&self) -> Vec<DiscoveryRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits for a request that is the answer to a version.
    pub(crate) async fn answer_to(&self, version: &str) -> DiscoveryRequest {
        let nonce = nonce_of(version);
        self.wait(|seen| seen.iter().find(|request| request.response_nonce == nonce).cloned()).await
    }

    pub(crate) async fn wait<T>(&self, found: impl Fn(&[DiscoveryRequest]) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(found) = found(&self.seen()) {
                return found;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?}", self.seen());
    }

    /// Waits for this many first requests of streams, and returns them.
    pub(crate) async fn streams(&self, count: usize) -> Vec<DiscoveryRequest> {
        let firsts = |seen: &[DiscoveryRequest]| -> Vec<DiscoveryRequest> {
            seen.iter().filter(|request| request.node.is_some()).cloned().collect()
        };
        self.wait(|seen| Some(firsts(seen)).filter(|all| all.len() >= count)).await
    }
}

/// Listens. The port of an earlier control plane may be in use for a moment.
async fn listen(address: &str) -> TcpListener {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{address} stays in use");
}

type Kept<T> = Arc<Mutex<Vec<T>>>;

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    behaviour: watch::Receiver<Behaviour>,
    seen: Kept<DiscoveryRequest>,
    heads: Kept<HeaderMap>,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (behaviour, seen) = (behaviour.clone(), Arc::clone(&seen));
        assert_eq!(
            request.uri().path(),
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
        );
        heads.lock().unwrap().push(request.headers().clone());
        let (frames, mut sent) = mpsc::channel(1);
        tokio::spawn(talk(request.into_body(), frames, behaviour, seen));
        let body = StreamBody::new(poll_fn(move |cx| sent.poll_recv(cx)));
        let response = Response::builder().header("content-type", "application/grpc").body(body);
        async move { Ok::<_, Infallible>(response.unwrap()) }
    });
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
}

type Sent = Result<Frame<Bytes>, io::Error>;

async fn talk(
    mut body: Incoming,
    frames: mpsc::Sender<Sent>,
    mut behaviour: watch::Receiver<Behaviour>,
    seen: Kept<DiscoveryRequest>,
) {
    let mut read = BytesMut::new();
    loop {
        tokio::select! {
            () = frames.closed() => return,
            request = next(&mut body, &mut read) => {
                let Some(request) = request else { return };
                let (is_first, is_refused) = (request.node.is_some(), request.error_detail.is_some());
                seen.lock().unwrap().push(request);
                if !(is_first || is_refused && behaviour.borrow().repeats) {
                    continue;
                }
                behaviour.mark_unchanged();
            }
            changed = behaviour.changed() => {
                if changed.is_err() { return }
            }
        }
        let Behaviour { sends, piece, ends, .. } = behaviour.borrow().clone();
        if let Some(message) = sends {
            let mut framed = BytesMut::new();
            framed.put_u8(0);
            framed.put_u32(u32::try_from(message.len()).unwrap());
            framed.put_slice(&message);
            let framed = framed.freeze();
            for piece in framed.chunks(piece.unwrap_or(framed.len())) {
                if frames.send(Ok(Frame::data(Bytes::copy_from_slice(piece)))).await.is_err() {
                    return;
                }
            }
        }
        if let Some(code) = ends {
            let trailers = HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                HeaderValue::from(code),
            )]);
            let _ = frames.send(Ok(Frame::trailers(trailers))).await;
            return;
        }
    }
}

/// Reads a message.
async fn next(body: &mut Incoming, read: &mut BytesMut) -> Option<DiscoveryRequest> {
    loop {
        if let Some(length) = read.get(1..5) {
            let length = usize::try_from(u32::from_be_bytes(length.try_into().unwrap())).unwrap();
            if read.len() >= 5 + length {
                let message = read.split_to(5 + length).split_off(5);
                return Some(DiscoveryRequest::decode(message).unwrap());
            }
        }
        read.extend_from_slice(&body.frame().await?.ok()?.into_data().ok()?);
    }
}

pub(crate) fn nonce_of(version: &str) -> String {
    format!("nonce of {version}")
}

/// A set with the domain `rl`: one request a year for each value of `once`, and more domains.
pub(crate) fn set(version: &str, others: &[&str]) -> DiscoveryResponse {
    let policy = |requests_per_unit| {
        Some(RateLimitPolicy { unit: Unit::Year as i32, requests_per_unit, ..RateLimitPolicy::default() })
    };
    let config = |domain: &str| RateLimitConfig {
        name: domain.to_owned(),
        domain: domain.to_owned(),
        descriptors: vec![RuleDescriptor {
            key: "once".to_owned(),
            rate_limit: policy(1),
            ..RuleDescriptor::default()
        }],
    };
    let any = |domain: &&str| Any { type_url: TYPE_URL.to_owned(), value: config(domain).encode_to_vec() };
    DiscoveryResponse {
        version_info: version.to_owned(),
        resources: ["rl"].iter().chain(others).map(any).collect(),
        type_url: TYPE_URL.to_owned(),
        nonce: nonce_of(version),
        ..DiscoveryResponse::default()
    }
}
