//! The endpoint: `/healthcheck`, and `/json`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use tollgate_report::error::Error;
use tower::service_fn;

use super::answer::Http;
use crate::connections::{Listening, Protocol};
use crate::endpoint::{Backend, Endpoint, Place, default_address};
use crate::flags::{ServeArgs, ServeBounds};
use crate::listen::Listener;
use crate::tls::Tls;

/// Returns the address, which a health check asks, too. The other flags are the service's own, and may not be known there.
pub fn address(args: &ServeArgs) -> Option<SocketAddr> {
    args.endpoints.http.unwrap_or_else(|| default_address(args, 8080)).addr()
}

/// Returns the endpoint that the flags ask for.
///
/// # Errors
/// None: all flags were checked.
pub fn endpoints(args: &ServeArgs, tls: Option<&Arc<Tls>>) -> Result<Vec<Endpoint>, Error> {
    let ServeBounds { max_message, deadline, .. } = args.bounds;
    // A plain endpoint beside TLS must be asked for. Otherwise it would let in the clients that TLS keeps out.
    let has_json = tls.is_none() || args.endpoints.http.is_some();
    let start = move |listening: Listening, backend: &Backend| {
        let http = Arc::new(Http { backend: backend.clone(), has_json, max_message, deadline });
        let answer = move |request| {
            let http = Arc::clone(&http);
            async move { Ok::<_, Infallible>(http.answer(request).await) }
        };
        listening.spawn(backend.traces.around(service_fn(answer)));
        Ok(None)
    };
    let endpoint = |addr| Endpoint {
        decides: true,
        example: Some(example),
        ..Endpoint::new("http", Place::Port(addr), Protocol::Http, start)
    };
    Ok(address(args).map(endpoint).into_iter().collect())
}

fn example(listener: &Listener) -> String {
    format!(
        "ask it: curl http://{listener}/json -d \
         '{{\"domain\":\"example\",\"descriptors\":[{{\"entries\":[{{\"key\":\"remote_address\",\"value\":\"192.0.2.1\"}}]}}]}}'"
    )
}
