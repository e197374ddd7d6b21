//! The endpoint: a port, a Unix socket, or both.

use std::sync::Arc;

use tollgate_report::error::Error;
use tonic::service::Routes;

use super::{Options, Services};
use crate::connections::{Listening, Protocol};
use crate::endpoint::{Backend, Endpoint, Place, default_address};
use crate::flags::{Address, ServeArgs};
use crate::health;
use crate::process::ReadAgain;
use crate::tls::Tls;

struct Grpc {
    place: Place,
    tls: Option<Arc<Tls>>,
    options: Options,
}

/// Returns the endpoints that the flags ask for. The socket has no TLS.
///
/// # Errors
/// None: all flags were checked.
pub fn endpoints(args: &ServeArgs, tls: Option<&Arc<Tls>>) -> Result<Vec<Box<dyn Endpoint>>, Error> {
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
    let endpoint = |(place, tls)| -> Box<dyn Endpoint> {
        let options = Options {
            reflection: endpoints.reflection,
            kuadrant: endpoints.kuadrant,
            max_message: args.bounds.max_message,
            deadline: args.bounds.deadline,
            others: vec![(health::SERVICE, tonic_health::pb::FILE_DESCRIPTOR_SET)],
        };
        Box::new(Grpc { place, tls, options })
    };
    Ok(port.into_iter().chain(socket).map(endpoint).collect())
}

impl Endpoint for Grpc {
    fn name(&self) -> &'static str {
        "grpc"
    }

    fn place(&self) -> Place {
        self.place.clone()
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http2
    }

    fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    fn decides(&self) -> bool {
        true
    }

    fn start(self: Box<Self>, listening: Listening, backend: &Backend) -> Result<Option<ReadAgain>, Error> {
        let routes = Routes::new(backend.health.service());
        let services = Services::new(&backend.answerer, &self.options, routes);
        backend.traces.spawn(listening, services.map_err(|error| Error::run(error.to_string()))?);
        Ok(None)
    }
}
