//! The flags of the face for operators, its start, and what it knows of a connection.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tollgate::rules::Rules;

use super::answer;
use super::who::{Operators, Who};
use crate::admin::flags::ServeAdmin;
use crate::connections::{Bounds, Face, FaceContext, Protocol};
use crate::flags::Address;
use crate::http::Handler;
use crate::listen::Listener;
use crate::process::ReadAgain;
use crate::tls::{Files, Tls};
use tollgate_report::error::Error;

/// The most connections and the most requests on each.
const MOST: u32 = 64;

/// The age of a connection and the time for its end. An operator needs one request. Without these bounds, clients that are not admitted
/// could keep all places.
const AGE: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(10);

/// Only its owner may connect to the socket, and root.
const SOCKET_MODE: u32 = 0o600;

/// Where the face listens.
#[derive(Debug)]
enum AdminAddress {
    Unix(PathBuf),
    At(SocketAddr),
}

impl AdminAddress {
    /// Reads the flag. `None` is nowhere.
    fn read(text: &str) -> Result<Option<Self>, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("--admin unix: needs a path, such as unix:/run/tollgate/admin".to_owned()),
            Some(path) => Ok(Some(Self::Unix(path.into()))),
            None => text.parse().map(|address: Address| address.addr().map(Self::At)).map_err(|_| {
                format!("--admin {text:?}: expected unix:PATH, an address such as 127.0.0.1:6071, or off")
            }),
        }
    }

    const fn addr(&self) -> Option<SocketAddr> {
        if let Self::At(addr) = self { Some(*addr) } else { None }
    }
}

/// The face before it listens.
#[derive(Debug)]
pub struct Admin {
    place: AdminAddress,
    tls: Option<Arc<Tls>>,
    token_file: Option<PathBuf>,
}

impl Admin {
    /// Returns the faces that the flags ask for. Each has connections of its own.
    ///
    /// # Errors
    /// If everyone could act, or if a file cannot be used.
    pub fn of(args: &ServeAdmin) -> Result<Vec<Self>, Error> {
        let places = args.admin.iter().filter_map(|text| AdminAddress::read(text).transpose());
        let places = places.collect::<Result<Vec<_>, _>>().map_err(Error::usage)?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let has_tls = args.admin_cert.is_some();
        let mut addresses = places.iter().filter_map(AdminAddress::addr).peekable();
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
        let face = |place: AdminAddress| {
            let tls = tls.clone().filter(|_| place.addr().is_some());
            Self { place, tls, token_file: token_file.clone() }
        };
        Ok(places.into_iter().map(face).collect())
    }

    /// Starts the face. Adds what the log says of it. Returns what reads its certificates again, if it has any.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn start(
        self,
        rules: &Arc<Rules>,
        context: FaceContext,
        described: &mut Vec<String>,
    ) -> Result<Option<ReadAgain>, Error> {
        let Self { place, tls, token_file } = self;
        let listener = match &place {
            AdminAddress::Unix(path) => Listener::unix(path, SOCKET_MODE, "admin").await?,
            AdminAddress::At(addr) => Listener::tcp("admin", *addr).await?,
        };
        described.push(listener.described("admin", tls.is_some()));
        let operators = Operators {
            users: place.addr().is_none(),
            certificates: tls.as_ref().is_some_and(|tls| tls.asks_clients()),
            token_file,
        };
        let stats = Arc::clone(&context.stats);
        let shared = Arc::new((Arc::clone(rules), Arc::clone(&stats), Arc::new(operators)));
        let bounds = Bounds { connections: MOST, streams: MOST, age: AGE, grace: GRACE };
        let context = FaceContext { bounds, ..context };
        let face = Face { listener, tls: tls.clone(), protocol: Protocol::Http, context };
        tokio::spawn(face.serve(move |peer, client| {
            let (shared, who) = (Arc::clone(&shared), Who::of(peer, client));
            Handler(move |request| {
                let (shared, who) = (Arc::clone(&shared), who.clone());
                async move {
                    let (rules, stats, operators) = &*shared;
                    answer::answer(rules, stats, operators, who, request).await
                }
            })
        }));
        Ok(tls.map(|tls| tls.read_again(&stats)))
    }
}
