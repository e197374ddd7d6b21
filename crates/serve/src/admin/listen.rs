//! The flags of the endpoint for operators, its start, and what it knows of a connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tower::service_fn;

use super::answer;
use super::who::{Operators, Who};
use crate::connections::{Bounds, Listening, Protocol};
use crate::endpoint::{Backend, Endpoint, Place};
use crate::flags::{Address, ServeArgs};
use crate::tls::{Files, Tls};
use tollgate_report::error::Error;

/// The most connections and the most requests on each.
const MOST: u32 = 64;

/// The age of a connection and the time for its end. An operator needs one request, and without these bounds clients that are not
/// admitted could keep all connections in use.
const AGE: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(10);

/// Only its owner may connect to the socket, and root.
const SOCKET_MODE: u32 = 0o600;

/// Reads the flag. `None` is nowhere.
fn place(text: &str) -> Result<Option<Place>, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("--admin unix: needs a path, such as unix:/run/tollgate/admin".to_owned()),
        Some(path) => Ok(Some(Place::Socket(path.into(), SOCKET_MODE, "admin"))),
        None => text.parse().map(|address: Address| address.addr().map(Place::Port)).map_err(|_| {
            format!("--admin {text:?}: expected unix:PATH, an address such as 127.0.0.1:6071, or off")
        }),
    }
}

/// Returns the endpoints that the flags ask for. Each has connections of its own.
///
/// # Errors
/// If everyone could change keys, or if a file cannot be used.
pub fn endpoints(args: &ServeArgs, _: Option<&Arc<Tls>>) -> Result<Vec<Endpoint>, Error> {
    let args = &args.admin;
    let places = args.admin.iter().filter_map(|text| place(text).transpose());
    let places = places.collect::<Result<Vec<_>, _>>().map_err(Error::usage)?;
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let has_tls = args.admin_cert.is_some();
    let mut addresses = places.iter().filter_map(Place::addr).peekable();
    if has_tls && addresses.peek().is_none() {
        return Err(Error::usage("--admin unix:PATH has no TLS; remove --admin-cert and --admin-key"));
    }
    for addr in addresses {
        if args.admin_token_file.is_none() && args.admin_client_ca.is_none() {
            return Err(Error::usage(format!(
                "--admin {addr}: everyone who reaches this address could change the counts; add --admin-token-file, or \
                     --admin-cert, --admin-key and --admin-client-ca, or use unix:PATH"
            )));
        }
        if !has_tls && !addr.ip().is_loopback() {
            return Err(Error::usage(format!(
                "--admin {addr}: without TLS, the network could read the tokens; add --admin-cert and --admin-key, or use \
                     a loopback address or unix:PATH"
            )));
        }
    }
    let tls = args.admin_cert.clone().zip(args.admin_key.clone()).map(|(cert, key)| {
        let files = Files { cert, key, client_ca: args.admin_client_ca.clone() };
        Tls::load(files, Vec::new()).map(Arc::new)
    });
    let (tls, token_file) = (tls.transpose()?, &args.admin_token_file);
    if let Some(file) = token_file {
        Operators::read(file).map_err(Error::run)?;
    }
    let endpoint = |place: Place| {
        let tls = tls.clone().filter(|_| place.addr().is_some());
        let operators = Arc::new(Operators {
            users: place.addr().is_none(),
            certificates: tls.as_ref().is_some_and(|tls| tls.asks_clients()),
            token_file: token_file.clone(),
        });
        let bounds = Some(Bounds { connections: MOST, streams: MOST, age: AGE, grace: GRACE });
        let files = tls.clone();
        let start =
            move |listening: Listening, backend: &Backend| {
                let shared = Arc::new((backend.clone(), operators));
                tokio::spawn(listening.serve(move |peer, client| {
                    let (shared, who) = (Arc::clone(&shared), Who::of(peer, client));
                    service_fn(move |request| {
                        let (shared, who) = (Arc::clone(&shared), who.clone());
                        async move {
                            Ok::<_, Infallible>(answer::answer(&shared.0, &shared.1, who, request).await)
                        }
                    })
                }));
                Ok(files.map(|tls| tls.read_again(&backend.stats)))
            };
        Endpoint { tls, bounds, ..Endpoint::new("admin", place, Protocol::Http, start) }
    };
    Ok(places.into_iter().map(endpoint).collect())
}
