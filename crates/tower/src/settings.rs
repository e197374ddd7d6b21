//! The state that a layer and its services share: the limit, the key extractor and the options. This module finds the
//! key and cost of a request, and builds the responses to denied requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use tollgate::telemetry::{Event, Meters};
use tollgate_http::{Fields, Policy};

use crate::head::Head;
use crate::key::{KeyExtractor, Missing};
use crate::limit::Ruling;
use crate::refusal::{GRPC_STATUS, Instance, RESOURCE_EXHAUSTED, Refused, Wait};
use crate::settle::SettleBy;
use crate::unknown::{KeylessOutcome, Unknown};

type Exempt = dyn Fn(Head<'_>) -> bool + Send + Sync;
type Cost = dyn Fn(Head<'_>) -> u64 + Send + Sync;
type Refund = dyn Fn(StatusCode) -> bool + Send + Sync;
type OnRefused = dyn Fn(&Refused<'_>) -> Response<Bytes> + Send + Sync;

/// State that a layer and its services share.
pub struct LayerSettings<L, X: KeyExtractor> {
    pub(crate) limit: Arc<L>,
    pub(crate) key: Arc<X>,
    pub(crate) missing: Missing<Arc<X::Key>>,
    pub(crate) options: LayerOptions,
}

/// The settings that do not depend on a type parameter.
#[derive(Clone, Default)]
pub(crate) struct LayerOptions {
    /// The challenge that the caller set, if any (`Some(None)` is no challenge). `None` means the key extractor's
    /// challenge.
    pub(crate) challenge: Option<Option<HeaderValue>>,
    pub(crate) unknown: Arc<Unknown>,
    pub(crate) exempt: Option<Arc<Exempt>>,
    pub(crate) cost: Option<Arc<Cost>>,
    pub(crate) refund: Option<Arc<Refund>>,
    pub(crate) refund_errors: bool,
    pub(crate) settle_by: SettleBy,
    pub(crate) on_refused: Option<Arc<OnRefused>>,
    pub(crate) instance: Option<Arc<Instance>>,
    pub(crate) fields: Fields,
    pub(crate) fields_on_allowed: bool,
    pub(crate) meters: Option<Arc<Meters>>,
}

impl<L, X: KeyExtractor> Clone for LayerSettings<L, X> {
    fn clone(&self) -> Self {
        Self {
            limit: Arc::clone(&self.limit),
            key: Arc::clone(&self.key),
            missing: self.missing.clone(),
            options: self.options.clone(),
        }
    }
}

/// The key that a request is charged to.
#[derive(Debug)]
pub enum LimitedBy<K> {
    Own(K),
    /// The key from [`Missing::Shared`].
    Shared(Arc<K>),
}

impl<K> LimitedBy<K> {
    pub(crate) fn key(&self) -> &K {
        match self {
            Self::Own(key) => key,
            Self::Shared(key) => key,
        }
    }
}

/// The result of screening a request, before the layer asks the limit.
pub(crate) enum Screened<K> {
    Uncounted,
    /// The key and the cost of the request.
    Limited(LimitedBy<K>, u64),
    /// Boxed, so that this variant does not enlarge the future of an admitted request.
    Refused(Box<Response<Bytes>>),
}

impl LayerOptions {
    /// Whether the layer inspects the responses to admitted requests.
    pub(crate) fn reads_responses(&self) -> bool {
        self.fields_on_allowed || self.refund.is_some() || self.refund_errors
    }

    /// Counts a ruling, if the layer has meters. Without the remaining quota, an admitted request cannot be near the
    /// limit.
    #[inline]
    pub(crate) fn count(&self, ruling: &impl Ruling, knows_remaining: bool, cost: u64) {
        let Some(meters) = &self.meters else { return };
        let event = ruling.event();
        let shows_use = event == Event::Denied || (event == Event::Allowed && knows_remaining);
        match ruling.decision() {
            Some(decision) if shows_use => meters.observe(&decision, false),
            _ => meters.record(event, cost),
        }
    }

    /// Whether a response with this status refunds the charge.
    pub(crate) fn refunds(&self, status: StatusCode) -> bool {
        self.refund.as_ref().is_some_and(|refund| refund(status))
    }

    /// Writes the fields of an admitted request, for the policies that `policies` reports.
    pub(crate) fn write_fields<R>(
        &self,
        response: &mut Response<R>,
        policies: impl FnOnce(&mut dyn FnMut(&[Policy<'_>])),
    ) {
        if self.fields_on_allowed && !is_refusal(response) {
            let headers = response.headers_mut();
            policies(&mut |policies| self.fields.write_unless_nearer(headers, policies));
        }
    }
}

impl<L, X: KeyExtractor> LayerSettings<L, X> {
    #[inline]
    pub(crate) fn screen(&self, head: Head<'_>) -> Screened<X::Key> {
        if self.options.exempt.as_ref().is_some_and(|exempt| exempt(head)) {
            return Screened::Uncounted;
        }
        let cost = self.options.cost.as_ref().map_or(1, |cost| cost(head));
        if cost == 0 {
            return Screened::Uncounted;
        }
        match self.key.key(head) {
            Some(key) => Screened::Limited(LimitedBy::Own(key), cost),
            None => self.screen_keyless(head, cost),
        }
    }

    /// Decides what happens to a request without a key.
    #[cold]
    fn screen_keyless(&self, head: Head<'_>, cost: u64) -> Screened<X::Key> {
        let (outcome, screened) = match &self.missing {
            Missing::Allow if !self.key.is_ambiguous(head) => (KeylessOutcome::Allowed, Screened::Uncounted),
            Missing::Shared(key) if !self.key.is_ambiguous(head) => {
                (KeylessOutcome::Shared, Screened::Limited(LimitedBy::Shared(Arc::clone(key)), cost))
            }
            _ => (KeylessOutcome::Refused, Screened::Refused(self.refuse(head, &[], None))),
        };
        self.options.unknown.record(outcome);
        screened
    }

    /// The challenge for a request without a key. A request with several keys has none, because credentials do not help
    /// it.
    fn challenge(&self, head: Head<'_>) -> Option<HeaderValue> {
        if self.key.is_ambiguous(head) {
            return None;
        }
        match &self.options.challenge {
            Some(chosen) => chosen.clone(),
            None => self.key.challenge(head),
        }
    }

    /// Builds the response to a request that a limit denied, for the policies that `policies` reports.
    #[cold]
    pub(crate) fn refuse_by(
        &self,
        head: Head<'_>,
        wait: Option<Duration>,
        policies: impl FnOnce(&mut dyn FnMut(&[Policy<'_>])),
    ) -> Box<Response<Bytes>> {
        let mut response = None;
        policies(&mut |policies| response = Some(self.refuse(head, policies, Some(wait))));
        response.unwrap_or_else(|| self.refuse(head, &[], Some(wait)))
    }

    #[cold]
    fn refuse(&self, head: Head<'_>, policies: &[Policy<'_>], wait: Option<Wait>) -> Box<Response<Bytes>> {
        let (what, challenge) = match wait {
            Some(_) => (None, None),
            None => (self.key.what(head), self.challenge(head)),
        };
        let refused = Refused {
            head,
            fields: &self.options.fields,
            policies,
            wait,
            what: what.as_deref(),
            challenge: challenge.as_ref(),
            instance: self.options.instance.as_deref(),
        };
        let response = match &self.options.on_refused {
            Some(on_refused) => on_refused(&refused),
            None => refused.response(),
        };
        Box::new(refused.without_body_if_head(response))
    }
}

impl<L: fmt::Debug, X: KeyExtractor + fmt::Debug> fmt::Debug for LayerSettings<L, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerSettings")
            .field("limit", &self.limit)
            .field("key", &self.key)
            .field("fields", &self.options.fields)
            .field("fields_on_allowed", &self.options.fields_on_allowed)
            .finish_non_exhaustive()
    }
}

/// Whether an inner layer or the service denied the request. Its fields must then stay.
fn is_refusal<R>(response: &Response<R>) -> bool {
    let headers = response.headers();
    response.status() == StatusCode::TOO_MANY_REQUESTS
        || headers.contains_key(RETRY_AFTER)
        || headers.get(GRPC_STATUS).is_some_and(|status| status == RESOURCE_EXHAUSTED)
}
