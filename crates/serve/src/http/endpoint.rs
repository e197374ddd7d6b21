//! The endpoint: `/healthcheck`, and `/json`.

use std::net::SocketAddr;
use std::sync::Arc;

use tollgate_report::error::Error;

use super::{Handler, Http};
use crate::connections::{Listening, Protocol};
use crate::endpoint::{Backend, Endpoint, Place, default_address};
use crate::flags::{ServeArgs, ServeBounds};
use crate::listen::Listener;
use crate::process::ReadAgain;
use crate::tls::Tls;

struct HttpEndpoint {
    addr: SocketAddr,
    has_json: bool,
    max_message: usize,
    deadline: std::time::Duration,
}

/// Returns the address, which a health check asks, too. The other flags are the service's own, and may not be known there.
pub fn address(args: &ServeArgs) -> Option<SocketAddr> {
    args.endpoints.http.unwrap_or_else(|| default_address(args, 8080)).addr()
}

/// Returns the endpoint that the flags ask for.
///
/// # Errors
/// None: all flags were checked.
pub fn endpoints(args: &ServeArgs, tls: Option<&Arc<Tls>>) -> Result<Vec<Box<dyn Endpoint>>, Error> {
    let ServeBounds { max_message, deadline, .. } = args.bounds;
    // A plain endpoint beside TLS must be asked for. Otherwise it would let in the clients that TLS keeps out.
    let has_json = tls.is_none() || args.endpoints.http.is_some();
    let endpoint =
        |addr| -> Box<dyn Endpoint> { Box::new(HttpEndpoint { addr, has_json, max_message, deadline }) };
    Ok(address(args).map(endpoint).into_iter().collect())
}

impl Endpoint for HttpEndpoint {
    fn name(&self) -> &'static str {
        "http"
    }

    fn place(&self) -> Place {
        Place::Port(self.addr)
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http
    }

    fn decides(&self) -> bool {
        true
    }

    fn start(self: Box<Self>, listening: Listening, backend: &Backend) -> Result<Option<ReadAgain>, Error> {
        let http = Arc::new(Http {
            answerer: Arc::clone(&backend.answerer),
            has_json: self.has_json,
            health: backend.health.clone(),
            stats: Arc::clone(&backend.stats),
            max_message: self.max_message,
            deadline: self.deadline,
        });
        let answer = move |request| {
            let http = Arc::clone(&http);
            async move { http.answer(request).await }
        };
        backend.traces.spawn(listening, Handler(answer));
        Ok(None)
    }

    fn example(&self, listener: &Listener) -> Option<String> {
        Some(format!(
            "ask it: curl http://{listener}/json -d \
             '{{\"domain\":\"example\",\"descriptors\":[{{\"entries\":[{{\"key\":\"remote_address\",\"value\":\"192.0.2.1\"}}]}}]}}'"
        ))
    }
}
