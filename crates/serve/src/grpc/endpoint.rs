//! The endpoint: a port, a Unix socket, or both.

use std::sync::Arc;

use tollgate_report::error::Error;
use tonic::service::Routes;

use super::{Options, Services};
use crate::connections::{Listening, Protocol};
use crate::endpoint::{Backend, Endpoint, Place, default_address};
use crate::flags::{Address, ServeArgs};
use crate::health;
use crate::tls::Tls;

/// Returns the endpoints that the flags ask for. The socket has no TLS.
///
/// # Errors
/// None: all flags were checked.
pub fn endpoints(args: &ServeArgs, tls: Option<&Arc<Tls>>) -> Result<Vec<Endpoint>, Error> {
    let endpoints = &args.endpoints;
    let address = match (endpoints.grpc, &endpoints.grpc_socket) {
        (Some(address), _) => address,
        (None, Some(_)) => Address::Off,
        (None, None) => default_address(args, 8081),
    };
    let port = address.addr().map(|addr| (Place::Port(addr), tls.cloned()));
    let socket = endpoints
        .grpc_socket
        .clone()
        .map(|path| (Place::Socket(path, endpoints.socket_mode, "grpc-socket"), None));
    let endpoint = |(place, tls)| {
        let options = Options {
            reflection: endpoints.reflection,
            kuadrant: endpoints.kuadrant,
            max_message: args.bounds.max_message,
            deadline: args.bounds.deadline,
            others: vec![(health::SERVICE, tonic_health::pb::FILE_DESCRIPTOR_SET)],
        };
        let start = move |listening: Listening, backend: &Backend| {
            let routes = Routes::new(backend.health.service());
            let services = Services::new(&backend.answerer, &options, routes);
            let services = services.map_err(|error| Error::run(error.to_string()))?;
            listening.spawn(backend.traces.around(services));
            Ok(None)
        };
        Endpoint { tls, decides: true, ..Endpoint::new("grpc", place, Protocol::Http2, start) }
    };
    Ok(port.into_iter().chain(socket).map(endpoint).collect())
}
