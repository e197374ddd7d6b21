//! Serves the connections of the endpoint.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tower::service_fn;

use super::live::{Live, Readers};
use super::read::{PageRequest, asked};
use super::{why, write};
use crate::connections::{Listening, Protocol};
use crate::endpoint::{Backend, Endpoint, Place};
use crate::flags::ServeArgs;
use crate::tls::Tls;
use tollgate_report::error::Error;

/// The most pages that may be open at the same time.
pub(super) const OPEN: usize = 8;

/// Returns the endpoint that the flags ask for.
///
/// # Errors
/// None: all flags were checked.
pub fn endpoints(args: &ServeArgs, _: Option<&Arc<Tls>>) -> Result<Vec<Endpoint>, Error> {
    let start = |listening: Listening, backend: &Backend| {
        let (is_local, room) = (listening.listener.is_loopback(), Arc::new(Semaphore::new(OPEN)));
        let site = Arc::new(Site { backend: backend.clone(), is_local, room, readers: Readers::default() });
        listening.spawn(service_fn(move |request| ready(Ok::<_, Infallible>(site.answer(&request)))));
        Ok(None)
    };
    let endpoint = |addr| Endpoint::new("debug", Place::Port(addr), Protocol::Pages, start);
    Ok(args.endpoints.debug.addr().map(endpoint).into_iter().collect())
}

struct Site {
    backend: Backend,
    /// Whether only this machine reaches the endpoint.
    is_local: bool,
    /// Open pages hold it.
    room: Arc<Semaphore>,
    readers: Readers,
}

impl Site {
    fn answer(&self, request: &Request<Incoming>) -> Response<write::Body> {
        match asked(request, self.is_local) {
            Ok(PageRequest::Page(name, form)) => write::page(&self.backend, name, form),
            Ok(PageRequest::Part(part)) => write::part(part),
            Ok(PageRequest::Why(question, form)) => match why::why(&self.backend.rules, &question) {
                Ok(answer) => write::why(&answer, form),
                Err(refusal) => write::refusal(refusal),
            },
            Ok(PageRequest::Live(filter)) => match Arc::clone(&self.room).try_acquire_owned() {
                Ok(place) => write::live(Live::new(self.backend.clone(), filter, &self.readers, place)),
                Err(_) => write::refusal((
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("{OPEN} pages are open, the most at a time; close one"),
                )),
            },
            Ok(PageRequest::Reads(page)) => {
                self.readers.note(page);
                write::noted()
            }
            Err(refusal) => write::refusal(refusal),
        }
    }
}
