//! From a request message to a response message.
//!
//! ```text
//! text      makes all texts UTF-8, and checks how many there are
//! decide    asks the rules
//! holds     asks them to hold units, and to settle them
//! status    one status for each descriptor
//! figures   one descriptor, in numbers
//! extras    header fields, body and metadata, if the settings ask for them
//! meters    counts what was answered
//! near      keys near their limit, while somebody views them
//! ```

mod decide;
mod extras;
mod holds;
mod meters;
mod near;
mod settings;
mod single;
mod status;
mod text;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use smallvec::SmallVec;
use tollgate::{Clock, DefaultClock};
use tollgate_http::Fields;
use tollgate_rules::{Descriptor, Rules, TimeUnit};
use tonic::Status;

use self::meters::InFlightRequest;
pub use self::meters::{AddedMethod, AnswerCounts, BOUNDS_US, Meters};
pub use self::near::{NearKeys, NearView};
pub use self::settings::{LimitHeaders, Names, Settings};
pub use self::single::{Nearest, SingleAnswer, SingleRequest};
pub use self::status::unit_of;
use self::text::Pairs;
use super::proto::{
    Code, DescriptorStatus, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitResponse, Unit,
};

/// The method that a request came by.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Entry<'m> {
    /// `ShouldRateLimit` of Envoy's service.
    ShouldRateLimit,
    /// `CheckRateLimit` of Kuadrant's service: whether one hit would be over a limit. Counts nothing, and holds the units of a query. Also
    /// a peek at an endpoint that a program adds, which holds nothing.
    Check,
    /// `Report` of Kuadrant's service: counts without a decision.
    Report,
    /// `POST /json`.
    Json,
    /// `Reserve` of Kuadrant's service, `POST /json/reserve`, and the same at an endpoint that a program adds: holds units.
    Reserve,
    /// `Commit` of Kuadrant's service, `POST /json/commit`, and the same at an endpoint that a program adds: settles units that were held.
    Commit,
    /// The check of an endpoint that a program adds, by the name under which [`Answerer::method`] counts it.
    Added(&'m AddedMethod),
}

impl Entry<'_> {
    /// The methods of the service's own endpoints, with their names in metrics.
    pub const OWN: [(Self, &'static str); 6] = [
        (Self::ShouldRateLimit, "ShouldRateLimit"),
        (Self::Check, "CheckRateLimit"),
        (Self::Report, "Report"),
        (Self::Json, "json"),
        (Self::Reserve, "Reserve"),
        (Self::Commit, "Commit"),
    ];
}

/// Answers requests by the rules in force. Share it in an [`Arc`].
#[derive(Debug)]
pub struct Answerer<C = DefaultClock> {
    rules: Arc<Rules<C>>,
    settings: Settings,
    fields: Fields,
    meters: Meters,
    /// The methods of endpoints that a program adds.
    added: Mutex<Vec<Arc<AddedMethod>>>,
    near: Arc<NearKeys>,
    /// Whether a request found that rules had been loaded.
    was_loaded: AtomicBool,
}

impl<C: Clock> Answerer<C> {
    /// Creates an answerer for these rules.
    pub fn new(rules: Arc<Rules<C>>, settings: Settings) -> Self {
        let fields = settings.limit_headers.fields();
        let was_loaded = AtomicBool::new(false);
        let (meters, added, near) = (Meters::default(), Mutex::default(), Arc::default());
        Self { rules, settings, fields, meters, added, near, was_loaded }
    }

    /// Returns the method of an endpoint that a program adds. Requests with it as their [`Entry::Added`] count under this name, in metrics and
    /// on the page `/stats`. A name that was given before returns the same method.
    pub fn method(&self, name: &'static str) -> Arc<AddedMethod> {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = added.iter().find(|known| known.name() == name) {
            return Arc::clone(known);
        }
        let method = Arc::new(AddedMethod::new(name));
        added.push(Arc::clone(&method));
        method
    }

    /// Returns the requests that these counts and the added methods have, by the name of the method.
    pub fn requests(&self, counts: &AnswerCounts) -> Vec<(&'static str, u64)> {
        let own = Entry::OWN.iter().zip(counts.entries).map(|((_, name), requests)| (*name, requests));
        let added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        own.chain(added.iter().map(|method| (method.name(), method.requests()))).collect()
    }

    /// Returns the counts of answers.
    pub const fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Begins to count the keys near their limit.
    pub fn near(&self) -> NearView {
        NearView::begin(Arc::clone(&self.near))
    }

    /// Whether rules were loaded since the start. Until then, all requests are `UNAVAILABLE`.
    fn is_loaded(&self) -> bool {
        // Ordering: Relaxed, here and below. The flag publishes no other data: the rules publish themselves.
        if self.was_loaded.load(Relaxed) {
            return true;
        }
        let is_loaded = self.rules.reloads().successes > 0;
        self.was_loaded.store(is_loaded, Relaxed);
        is_loaded
    }

    /// Answers a request. At the deadline, rules that wait for a server decide without it.
    ///
    /// Nothing that a client of the gateway controls causes an error: a value may be empty, long, or no UTF-8.
    ///
    /// # Errors
    /// - `INVALID_ARGUMENT` if the request has no domain, no descriptors, too many of them, or an unknown unit;
    /// - `UNIMPLEMENTED` if it gives hits back, and the settings do not permit this or a rule cannot refund;
    /// - `UNAVAILABLE` if no rules were loaded yet, if too many requests wait, or, by a setting, if a server of shared
    ///   rules is away.
    pub async fn answer(
        &self,
        request: RateLimitRequest,
        entry: Entry<'_>,
        deadline: Instant,
    ) -> Result<RateLimitResponse, Status> {
        let answer = async |request: &RateLimitRequest, domain: &str, pairs: &[(&str, &str)]| {
            self.answer_texts(request, domain, pairs, entry, deadline).await
        };
        let answered = self.counted(request, entry, deadline, answer).await;
        if answered.as_ref().is_ok_and(|response| response.overall_code == Code::OverLimit as i32) {
            self.meters.over_limit();
        }
        answered
    }

    #[inline]
    fn begin(&self, entry: Entry<'_>) -> Result<InFlightRequest<'_>, Status> {
        self.begin_at(entry, meters::now())
    }

    #[inline]
    fn begin_at(&self, entry: Entry<'_>, began: Instant) -> Result<InFlightRequest<'_>, Status> {
        let in_flight = self.meters.begin_at(entry, self.settings.max_in_flight, began);
        in_flight.ok_or_else(|| Status::unavailable("too many requests wait for an answer"))
    }

    #[inline]
    fn check_form(&self, domain: &[u8], entries: impl ExactSizeIterator<Item = usize>) -> Result<(), Status> {
        if !self.is_loaded() {
            return Err(Status::unavailable("no rules are loaded yet"));
        }
        text::check(domain, entries, &self.settings)
    }

    /// Lets `ask` answer a request by its domain and the entries of all descriptors, and counts the answer.
    async fn counted<T>(
        &self,
        mut request: RateLimitRequest,
        entry: Entry<'_>,
        deadline: Instant,
        ask: impl AsyncFnOnce(&RateLimitRequest, &str, &[(&str, &str)]) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let in_flight = self.begin(entry)?;
        let told = async {
            self.check_form(&request.domain, request.descriptors.iter().map(|one| one.entries.len()))?;
            loop {
                let mut pairs = Pairs::new();
                if let Some(domain) = text::texts(&request, &mut pairs) {
                    return ask(&request, domain, &pairs).await;
                }
                drop(pairs);
                text::make_texts(&mut request);
            }
        };
        let told = told.await;
        in_flight.end(told.as_ref().map_or_else(Status::code, |_| tonic::Code::Ok), Some(deadline));
        told
    }

    async fn answer_texts(
        &self,
        request: &RateLimitRequest,
        domain: &str,
        pairs: &[(&str, &str)],
        entry: Entry<'_>,
        deadline: Instant,
    ) -> Result<RateLimitResponse, Status> {
        let mut descriptors = self.descriptors(request, pairs)?;
        let hits = u64::from(request.hits_addend.max(1)).min(self.settings.max_hits);
        let is_back = |index: usize| request.descriptors.get(index).is_some_and(|one| one.is_negative_hits);
        let refunded = match entry != Entry::Check && (0..descriptors.len()).any(is_back) {
            true => Some(self.refund(domain, &mut descriptors, hits, is_back)?),
            false => None,
        };
        if entry == Entry::Report {
            self.report(domain, &descriptors, hits, deadline).await?;
            return Ok(RateLimitResponse { overall_code: Code::Ok as i32, ..RateLimitResponse::default() });
        }
        let (answer, code) = self.decide(domain, &descriptors, hits, entry, deadline).await?;
        self.near.note(&answer, &descriptors, self.settings.near_limit);
        if answer.is_shadow_denied() {
            self.meters.shadow_denied();
        }
        let status = |index| match &refunded {
            Some(queried) if is_back(index) => {
                DescriptorStatus { code: Code::Ok as i32, ..status::of(queried, index) }
            }
            _ => status::of(&answer, index),
        };
        let statuses: Vec<DescriptorStatus> = (0..descriptors.len()).map(status).collect();
        let mut response =
            RateLimitResponse { overall_code: code as i32, statuses, ..RateLimitResponse::default() };
        extras::add(&self.settings, &self.fields, &answer, &mut response);
        if self.settings.dynamic_metadata {
            response.dynamic_metadata = Some(extras::metadata(request, &answer, &response.statuses));
        }
        Ok(response)
    }

    /// Translates the descriptors. `pairs` are the entries of all of them.
    #[inline]
    fn descriptors<'a>(
        &self,
        request: &RateLimitRequest,
        pairs: &'a [(&'a str, &'a str)],
    ) -> Result<SmallVec<[Descriptor<'a>; 4]>, Status> {
        let mut rest = pairs;
        let mut descriptors = SmallVec::with_capacity(request.descriptors.len());
        for descriptor in &request.descriptors {
            let (entries, others) = rest.split_at(descriptor.entries.len());
            rest = others;
            descriptors.push(self.descriptor(descriptor, entries)?);
        }
        Ok(descriptors)
    }

    /// Translates a descriptor.
    fn descriptor<'a>(
        &self,
        descriptor: &RateLimitDescriptor,
        entries: &'a [(&'a str, &'a str)],
    ) -> Result<Descriptor<'a>, Status> {
        let mut translated = Descriptor::new(entries);
        if let Some(hits) = descriptor.hits_addend {
            translated = translated.hits(hits.min(self.settings.max_hits));
        }
        if let Some(RateLimitOverride { requests_per_unit, unit }) = descriptor.limit {
            let unit = match Unit::try_from(unit) {
                Ok(Unit::Second) => TimeUnit::Second,
                Ok(Unit::Minute) => TimeUnit::Minute,
                Ok(Unit::Hour) => TimeUnit::Hour,
                Ok(Unit::Day) => TimeUnit::Day,
                Ok(Unit::Month) => TimeUnit::Month,
                Ok(Unit::Year) => TimeUnit::Year,
                Ok(Unit::Unknown | Unit::Week) | Err(_) => {
                    let message = format!("the limit of a descriptor has the unknown unit {unit}");
                    return Err(Status::invalid_argument(message));
                }
            };
            translated = translated.limit(requests_per_unit, unit);
        }
        if descriptor.is_negative_hits && !self.settings.negative_hits {
            return Err(Status::unimplemented("this service takes no hits back"));
        }
        Ok(translated)
    }
}
