//! A connection to the control plane: TCP, TLS if asked for, and HTTP/2. Certificates are read for each connection.

use std::io;
use std::iter::successors;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tower::Service;

use crate::listen::{Io, Probes, probe_silent_peer};
use crate::tls::{authorities, client_config};
use crate::xds::flags::{Target, XdsArgs};
use tollgate_report::error::{Error, plain, read_file};

/// How long the name, TCP, TLS and the first bytes of HTTP/2 may take together.
const CONNECT: Duration = Duration::from_secs(10);

/// The least part of this time for an address, also if a name has very many.
const LEAST: Duration = Duration::from_secs(1);

/// How long a connection without requests may take to end.
const END: Duration = Duration::from_millis(100);

/// How long the answer to a ping may take.
const PING_ANSWER: Duration = Duration::from_secs(20);

/// No server counts the probes of the system, so they may be early.
const PROBES: Probes = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// The bytes of a stream that may be on their way.
const WINDOW: u32 = 1 << 20;

/// Connects to the control plane.
pub struct Connector {
    target: Target,
    ping: Duration,
    tls: Option<TlsFiles>,
}

/// Where the certificates are, and which name the server must have.
struct TlsFiles {
    ca: Option<std::path::PathBuf>,
    own: Option<(std::path::PathBuf, std::path::PathBuf)>,
    name: ServerName<'static>,
}

impl Connector {
    /// Reads the files of certificates once, to find what cannot be used.
    ///
    /// # Errors
    /// If a file or the name of the server cannot be used.
    pub fn new(args: &XdsArgs, target: &Target) -> Result<Self, Error> {
        let own = args.xds_cert.clone().zip(args.xds_key.clone());
        let tls = if args.xds_tls {
            let name = args.xds_san.as_ref().unwrap_or(&target.host).clone();
            let name = ServerName::try_from(name).map_err(|error| {
                Error::usage(format!("--xds-san: {error}; expected a DNS name or an IP address"))
            })?;
            let files = TlsFiles { ca: args.xds_ca.clone(), own, name };
            files.read().map_err(Error::run)?;
            Some(files)
        } else {
            None
        };
        Ok(Self { target: target.clone(), ping: args.xds_ping, tls })
    }

    /// Connects. The connection ends with its driver.
    ///
    /// # Errors
    /// The reason, for the log.
    pub async fn connect(&self) -> Result<(Channel, Driver), String> {
        let Target { host, port } = &self.target;
        let connected = timeout(CONNECT, async {
            let addresses = lookup_host((host.as_str(), *port)).await.map_err(|error| plain(&error))?;
            in_turn(addresses.collect(), async |address| self.connect_to(address).await).await
        });
        connected.await.unwrap_or_else(|_| Err(late()))
    }

    async fn connect_to(&self, address: SocketAddr) -> Result<(Channel, Driver), String> {
        let told = |error: io::Error| plain(&error);
        let stream = TcpStream::connect(address).await.map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        // On a system without these settings, pings find dead peers.
        let _ = probe_silent_peer(&stream, PROBES);
        let stream = match &self.tls {
            None => Io::new(stream),
            Some(files) => {
                let connector = TlsConnector::from(files.read()?);
                let secured = connector.connect(files.name.clone(), stream).await;
                Io::new(secured.map_err(|error| format!("TLS: {}", plain(&error)))?)
            }
        };
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .keep_alive_interval(Some(self.ping).filter(|ping| !ping.is_zero()))
            .keep_alive_timeout(PING_ANSWER.min(self.ping))
            .keep_alive_while_idle(true);
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let driver = tokio::spawn(async move { connection.await.err().map(|error| with_causes(&error)) });
        Ok((Channel(sender), Driver(driver)))
    }

    /// Returns the URI of the control plane.
    pub fn origin(&self) -> Uri {
        let scheme = if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let authority = Authority::try_from(self.target.to_string());
        let uri = authority.ok().and_then(|authority| {
            Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build().ok()
        });
        uri.unwrap_or_default()
    }
}

fn late() -> String {
    format!("no connection within {} s", CONNECT.as_secs())
}

/// Connects to the first address that answers. Each has its part of the time that is left: one that swallows packets
/// would use up all of it. Returns the last error if none answers.
async fn in_turn<A, T>(
    addresses: Vec<A>,
    connect: impl AsyncFn(A) -> Result<T, String>,
) -> Result<T, String> {
    let end = Instant::now() + CONNECT;
    let mut last = Err("its name has no address".to_owned());
    let mut addresses = addresses.into_iter();
    while let Some(address) = addresses.next() {
        let rest = u32::try_from(addresses.len()).unwrap_or(u32::MAX).saturating_add(1);
        let part = end.saturating_duration_since(Instant::now()) / rest;
        last = timeout(part.max(LEAST), connect(address)).await.unwrap_or_else(|_| Err(late()));
        if last.is_ok() {
            break;
        }
    }
    last
}

impl TlsFiles {
    fn read(&self) -> Result<Arc<ClientConfig>, String> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(path) => roots = authorities(path, &read_file(path)?)?,
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        let own = self.own.as_ref().map(|(cert, key)| (&**cert, &**key));
        let mut config = client_config(roots, own)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

/// What sends requests over a connection.
pub struct Channel(http2::SendRequest<Body>);

/// What moves the bytes of a connection, and returns why it failed.
pub struct Driver(JoinHandle<Option<String>>);

impl Driver {
    /// Returns why the connection failed, if it did. A refused certificate is seen only here.
    pub async fn failure(&mut self) -> Option<String> {
        timeout(END, &mut self.0).await.ok()?.ok()?
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the text of an error and of its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// Cause: an address that swallowed packets used up the attempt, and the others of the name were never tried.
    // G139
    #[tokio::test(start_paused = true)]
    async fn silent_address_leaves_time_for_the_others() {
        let connect = async |address: &str| match address {
            "silent" => pending().await,
            "refuses" => Err("refused".to_owned()),
            other => Ok(other.to_owned()),
        };
        for (addresses, connected, seconds) in [
            (vec!["good", "silent"], Ok("good"), 0),
            (vec!["silent", "good"], Ok("good"), 5),
            (vec!["refuses", "silent", "good"], Ok("good"), 5),
            (vec!["silent", "silent", "refuses", "silent", "good"], Ok("good"), 7),
            (vec!["silent"], Err("no connection within 10 s"), 10),
            (vec!["silent", "refuses"], Err("refused"), 5),
            (vec![], Err("its name has no address"), 0),
        ] {
            let from = Instant::now();
            let found = in_turn(addresses, connect).await;
            assert_eq!(found, connected.map(str::to_owned).map_err(str::to_owned));
            assert_eq!(from.elapsed().as_secs(), seconds);
        }
        let many = vec!["silent"; 1_000];
        assert!(timeout(CONNECT, in_turn(many, connect)).await.is_err());
    }
}
