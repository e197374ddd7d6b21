//! One request to a service over HTTP/1, on a Unix socket, TLS, or plain TCP on this machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::ctl::flags::KeyArgs;
use crate::listen::Io;
use crate::tls::{authorities, client_config};
use tollgate_report::error::{Error, plain, read_file};

/// How long the service may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest answer.
const LONGEST: usize = 16 << 20;

/// Where the service is.
enum ServicePlace<'a> {
    Unix(&'a Path),
    /// `HOST:PORT`, and whether it has TLS.
    Tcp(&'a str, bool),
}

impl<'a> ServicePlace<'a> {
    fn of(text: &'a str) -> Result<Self, Error> {
        let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
        let address = rest.trim_start_matches("//").trim_end_matches('/');
        match scheme {
            "unix" if !rest.is_empty() => Ok(Self::Unix(Path::new(rest))),
            "https" | "http" if address.contains(':') => Ok(Self::Tcp(address, scheme == "https")),
            _ => Err(Error::usage(format!(
                "--at {text}: expected unix:PATH, https://HOST:PORT, or http://HOST:PORT on this machine"
            ))),
        }
    }
}

/// Asks, and returns the status and the body of the answer.
///
/// # Errors
/// If there is no answer.
pub async fn ask(key: &KeyArgs, verb: &str, body: String) -> Result<(u16, Value), Error> {
    let token = key.token_file.as_deref().map(token).transpose()?;
    let asked = async {
        let failed = |error| unreached(key, &plain(&error));
        let (stream, host) = match ServicePlace::of(&key.at)? {
            ServicePlace::Unix(path) => {
                (Io::new(UnixStream::connect(path).await.map_err(failed)?), "localhost")
            }
            ServicePlace::Tcp(address, true) => {
                let stream = TcpStream::connect(address).await.map_err(failed)?;
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
                    .map_err(|_| Error::usage(format!("--at: {host:?} is no name of a host")))?;
                let secured = TlsConnector::from(config(key)?).connect(name, stream).await;
                (Io::new(secured.map_err(|error| unreached(key, &error.to_string()))?), address)
            }
            ServicePlace::Tcp(address, false) => {
                let stream = TcpStream::connect(address).await.map_err(failed)?;
                if !stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()) {
                    return Err(Error::usage("--at http:// is for this machine only; use https://"));
                }
                (Io::new(stream), address)
            }
        };
        send(key, stream, (verb, host), token, body).await
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(unreached(key, "no answer in 30 seconds")))
}

fn unreached(key: &KeyArgs, why: &str) -> Error {
    Error::run(format!(
        "the service at {} was not reached: {why}; is it started with --admin, and may you use it?",
        key.at
    ))
}

async fn send(
    key: &KeyArgs,
    stream: Io,
    (verb, host): (&str, &str),
    token: Option<String>,
    body: String,
) -> Result<(u16, Value), Error> {
    let failed = |error: &dyn std::fmt::Display| unreached(key, &error.to_string());
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    tokio::spawn(connection);
    let mut request = Request::post(format!("/v1/{verb}"))
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| failed(&error))?;
    let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| failed(&error))?.to_bytes();
    // An endpoint of another kind answers in plain text.
    let other = || serde_json::json!({ "error": String::from_utf8_lossy(&body).trim() });
    Ok((status, serde_json::from_slice(&body).unwrap_or_else(|_| other())))
}

/// Reads the token of a file: its only line, or what follows the name in it.
fn token(file: &Path) -> Result<String, Error> {
    let text = read(file)?;
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    match (lines.next(), lines.next()) {
        (Some(line), None) => Ok(line.split_once(':').map_or(line, |(_, token)| token).to_owned()),
        _ => Err(Error::usage(format!("--token-file {}: expected one line with a token", file.display()))),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    read_file(file).map_err(Error::usage)
}

/// Returns whom the client trusts, and its own certificate.
fn config(key: &KeyArgs) -> Result<Arc<ClientConfig>, Error> {
    let ca = key.ca.as_deref().ok_or_else(|| Error::usage("https:// needs --ca, the authority to trust"))?;
    let roots = authorities(ca, &read(ca)?).map_err(Error::usage)?;
    let own = key.cert.as_deref().zip(key.key.as_deref());
    client_config(roots, own).map(Arc::new).map_err(Error::usage)
}
