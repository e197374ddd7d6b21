//! Held units that the response settles.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tollgate::holds::Holding;
use tollgate::{Gcra, Keyed, ManualClock, Quota, RateLimiter};
use tollgate_tower::{AwaitedLimit, Global, Holds, RateLimitLayer, Ruling, Unsettled};
use tower::{Layer, ServiceExt, service_fn};

use crate::setup::now;

const ESTIMATE: u64 = 40;
const LIFE: Duration = Duration::from_secs(60);
const FIELD: HeaderName = HeaderName::from_static("x-units-used");

/// What a body does when it is polled.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Data(&'static str),
    Trailer(&'static str),
    Break,
    Panic,
}

/// Data in two parts.
#[derive(Debug)]
pub(crate) struct Chain(bytes::buf::Chain<Bytes, Bytes>);

impl From<Bytes> for Chain {
    fn from(mut bytes: Bytes) -> Self {
        let first = bytes.split_to(bytes.len() / 2);
        Self(first.chain(bytes))
    }
}

impl Buf for Chain {
    fn remaining(&self) -> usize {
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

/// A body of these steps. If `knows_end`, it says in advance that it has ended; if `knows_length`, that it has no more
/// data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    pub(crate) steps: VecDeque<Step>,
    pub(crate) knows_end: bool,
    pub(crate) knows_length: bool,
}

impl http_body::Body for Steps {
    type Data = Chain;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chain>, &'static str>>> {
        Poll::Ready(self.steps.pop_front().map(|step| match step {
            Step::Data(text) => Ok(Frame::data(Bytes::from_static(text.as_bytes()).into())),
            Step::Trailer(value) => Ok(Frame::trailers(fields(&[value]))),
            Step::Break => Err("the connection broke"),
            Step::Panic => panic!("the body panicked"),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.knows_end && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let has_data = self.steps.iter().any(|step| matches!(step, Step::Data(_)));
        if self.knows_length && !has_data { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

fn fields(values: &[&'static str]) -> HeaderMap {
    values.iter().map(|value| (FIELD, value.parse().unwrap())).collect()
}

fn answer(values: &[&'static str], steps: &[Step]) -> Response<Steps> {
    let steps = Steps { steps: steps.iter().cloned().collect(), ..Steps::default() };
    let mut response = Response::new(steps);
    *response.headers_mut() = fields(values);
    response
}

type Limiter = RateLimiter<Holding<Keyed<(), Gcra>>, ManualClock>;
type HoldLayer = RateLimitLayer<Holds<Keyed<(), Gcra>, ManualClock>, Global>;

struct Limited {
    limiter: Arc<Limiter>,
    clock: ManualClock,
    layer: HoldLayer,
}

impl Limited {
    /// 100 units an hour, of which each request holds [`ESTIMATE`].
    fn new(options: impl FnOnce(HoldLayer) -> HoldLayer) -> Self {
        let clock = ManualClock::default();
        let limiter = RateLimiter::builder(Gcra::new(Quota::per_hour(100))).clock(clock.clone());
        let limiter = Arc::new(limiter.keyed().with_holds(8).unwrap());
        let layer = RateLimitLayer::new(Holds::new(Arc::clone(&limiter), LIFE), Global);
        Self { limiter, clock, layer: options(layer.cost(|_| ESTIMATE)) }
    }

    fn used(&self) -> u64 {
        100 - self.limiter.peek(&()).remaining()
    }

    /// Sends a request, and asserts that its units are held while the service works.
    fn call(
        &self,
        answer: Result<Response<Steps>, &'static str>,
    ) -> Result<Response<tollgate_tower::Body<Steps>>, &'static str> {
        let before = self.used();
        let service = service_fn(move |_: Request<()>| {
            assert_eq!(self.used(), before + ESTIMATE);
            std::future::ready(answer.clone())
        });
        now(self.layer.layer(service).oneshot(Request::new(())))
    }

    /// Returns what a request is charged whose body is read to its end.
    fn charged(&self, answer: Response<Steps>) -> u64 {
        let before = self.used();
        read(&mut self.call(Ok(answer)).unwrap().into_body(), usize::MAX);
        assert_eq!(self.limiter.holds(), 0);
        self.used() - before
    }
}

/// Reads at most `most` frames, and returns their data.
fn read(body: &mut tollgate_tower::Body<Steps>, most: usize) -> String {
    let mut text = String::new();
    for _ in 0..most {
        let Some(Ok(frame)) = now(body.frame()) else { break };
        if let Ok(mut data) = frame.into_data() {
            let data = data.copy_to_bytes(data.remaining());
            text.push_str(str::from_utf8(&data).unwrap());
        }
    }
    text
}

fn by_header(layer: HoldLayer) -> HoldLayer {
    layer.settle_by_header(FIELD)
}

/// Counts the bytes. Nothing is known before the first `!`.
fn by_length(layer: HoldLayer) -> HoldLayer {
    layer.settle_by_body(|| {
        let (mut length, mut is_known) = (0, false);
        move |data| {
            length += data.len() as u64;
            is_known |= data.contains(&b'!');
            is_known.then_some(length)
        }
    })
}

// G134
#[test]
fn field_settles_when_the_response_begins() {
    let limited = Limited::new(by_header);
    let response = limited.call(Ok(answer(&["7"], &[Step::Break]))).unwrap();
    assert_eq!((limited.used(), limited.limiter.holds()), (7, 0));
    assert_eq!(response.headers()[&FIELD], "7");
    // Neither the broken body nor its end charges again.
    read(&mut response.into_body(), usize::MAX);
    assert_eq!(limited.used(), 7);
    assert_eq!(limited.charged(answer(&["0"], &[])), 0);
    assert_eq!(limited.charged(answer(&["60"], &[])), 60);
    assert_eq!(limited.used(), 67);
}

// G134
#[test]
fn missing_and_bad_fields_leave_the_estimate() {
    for values in [&[][..], &[""], &["-1"], &["+1"], &["1.5"], &["18446744073709551616"], &["1", "1"]] {
        let limited = Limited::new(by_header);
        assert_eq!(limited.charged(answer(values, &[Step::Data("text")])), ESTIMATE, "{values:?}");
        // The trailer is read if the header field tells nothing.
        assert_eq!(
            limited.charged(answer(values, &[Step::Data("text"), Step::Trailer("9")])),
            9,
            "{values:?}"
        );
        assert_eq!(limited.charged(answer(values, &[Step::Trailer("nine")])), ESTIMATE, "{values:?}");
    }
}

// G134
#[test]
fn body_settles_at_its_end() {
    use Step::{Break, Data, Panic, Trailer};
    const LONG: &str = "a text that is longer than the estimate, which is 40!";
    let both = |layer| by_length(by_header(layer));
    // What a request is charged if its body is read to the end.
    for (steps, charged) in [
        (&[Data("five"), Data("!")][..], 5),
        (&[Data("a!"), Data("b"), Trailer("none")], 3),
        (&[Data(LONG)], 53),
        (&[Data("!"), Data("b"), Trailer("9")], 9),
        (&[Data("never known")], ESTIMATE),
        (&[], ESTIMATE),
        (&[Data("five!"), Break], ESTIMATE),
        (&[Data(LONG), Break], 53),
        (&[Data("!"), Trailer("9"), Break], 9),
    ] {
        let limited = Limited::new(both);
        assert_eq!(limited.charged(answer(&[], steps)), charged, "{steps:?}");
        assert_eq!(Limited::new(both).charged(answer(&["3"], steps)), 3, "{steps:?}");
    }
    // The panics of the body and of the function.
    let limited = Limited::new(both);
    let mut body = limited.call(Ok(answer(&[], &[Data("!"), Panic]))).unwrap().into_body();
    assert!(catch_unwind(AssertUnwindSafe(|| read(&mut body, usize::MAX))).is_err());
    drop(body);
    assert_eq!(limited.used(), ESTIMATE);
    let limited = Limited::new(|layer| layer.settle_by_body(|| |_: &[u8]| panic!("the function panicked")));
    let mut body = limited.call(Ok(answer(&[], &[Data("text")]))).unwrap().into_body();
    assert!(catch_unwind(AssertUnwindSafe(|| read(&mut body, usize::MAX))).is_err());
    drop(body);
    assert_eq!((limited.used(), limited.limiter.holds()), (ESTIMATE, 0));
}

// G134
#[test]
fn dropped_body_is_charged_at_least_the_estimate() {
    let steps = [Step::Data("one!"), Step::Data("two"), Step::Trailer("none")];
    for (frames, knows_end, knows_length, charged) in [
        (0, true, true, ESTIMATE),
        (1, true, true, ESTIMATE),
        (2, false, false, ESTIMATE),
        // The server knows that no data follows, and does not ask for the end.
        (2, false, true, 7),
        (3, true, false, 7),
        (4, false, false, 7),
    ] {
        let limited = Limited::new(by_length);
        let mut response = answer(&[], &steps);
        (response.body_mut().knows_end, response.body_mut().knows_length) = (knows_end, knows_length);
        let mut body = limited.call(Ok(response)).unwrap().into_body();
        assert_eq!(read(&mut body, frames), ["", "one!", "one!two", "one!two", "one!two"][frames]);
        assert_eq!(
            (limited.used(), limited.limiter.holds()),
            if frames < 4 { (ESTIMATE, 1) } else { (7, 0) }
        );
        drop(body);
        assert_eq!((limited.used(), limited.limiter.holds()), (charged, 0), "after {frames} frames");
    }
}

// G134
#[test]
fn requests_without_response_stay_charged_unless_refunded() {
    let limited = Limited::new(by_header);
    assert!(limited.call(Err("the service failed")).is_err());
    assert_eq!((limited.used(), limited.limiter.holds()), (ESTIMATE, 0));
    let limited = Limited::new(|layer| by_header(layer).refund_errors(true));
    assert!(limited.call(Err("the service failed")).is_err());
    assert_eq!((limited.used(), limited.limiter.holds()), (0, 0));

    let limited = Limited::new(by_header);
    let panics = service_fn(async |_: Request<()>| -> Result<Response<Steps>, &'static str> {
        panic!("the service panicked")
    });
    let call = || now(limited.layer.layer(panics).oneshot(Request::new(())));
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    assert_eq!((limited.used(), limited.limiter.holds()), (ESTIMATE, 0));

    // The client disconnects while the service works.
    let limited = Limited::new(|layer| by_header(layer).refund_errors(true));
    let never = service_fn(async |_: Request<()>| -> Result<Response<Steps>, &'static str> {
        std::future::pending().await
    });
    let mut waiting = Box::pin(limited.layer.layer(never).oneshot(Request::new(())));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!((limited.used(), limited.limiter.holds()), (ESTIMATE, 1));
    drop(waiting);
    assert_eq!((limited.used(), limited.limiter.holds()), (ESTIMATE, 0));
}

// G134
#[test]
fn refunded_status_releases_whatever_the_response_tells() {
    let limited = Limited::new(|layer| by_length(by_header(layer)).refund(|status| status.is_server_error()));
    let steps = [Step::Data("text!"), Step::Trailer("9")];
    for values in [&[][..], &["7"]] {
        let mut failed = answer(values, &steps);
        *failed.status_mut() = StatusCode::BAD_GATEWAY;
        assert_eq!(limited.charged(failed), 0);
    }
    assert_eq!(limited.charged(answer(&[], &steps[..1])), 5);
}

#[test]
fn denied_requests_hold_nothing_and_fields_show_the_estimate() {
    let limited = Limited::new(by_header);
    let layer = limited.layer.clone().policy("units", Quota::per_hour(100)).fields_on_allowed(true);
    let call = || {
        let service = service_fn(async |_: Request<()>| Ok::<_, &str>(answer(&["30"], &[])));
        now(layer.layer(service).oneshot(Request::new(()))).unwrap()
    };
    let admitted = call();
    assert_eq!(admitted.headers()["ratelimit"], "\"units\";r=60;t=2160");
    assert_eq!((call().status(), limited.used()), (StatusCode::OK, 60));
    let admitted = call();
    assert_eq!((admitted.status(), limited.used()), (StatusCode::OK, 90));
    let refused = call();
    assert_eq!((refused.status(), limited.used()), (StatusCode::TOO_MANY_REQUESTS, 90));
    assert_eq!(limited.limiter.holds(), 0);
}

// G134
#[test]
fn body_that_outlives_its_hold_is_charged_at_its_end() {
    let limited = Limited::new(by_length);
    let slow = || limited.call(Ok(answer(&[], &[Step::Data("12345!")]))).unwrap().into_body();
    let [mut first, second] = [slow(), slow()];
    limited.clock.advance(LIFE);
    // The two holds have ended, so others can get their units now.
    assert!(limited.limiter.check_n(&(), 90).is_allowed());
    let used = limited.used();
    read(&mut first, usize::MAX);
    assert_eq!((limited.used() - used, limited.limiter.holds()), (6, 0));
    // This leaves a debt.
    let debt = |limiter: &Limiter| limiter.peek(&()).reset_after();
    let before = debt(&limited.limiter);
    drop(second);
    assert_eq!(debt(&limited.limiter) - before, Duration::from_secs(36 * ESTIMATE));
}

/// A limit of a caller's own, which must be awaited, and which notes what happens.
#[derive(Clone, Debug, Default)]
struct Noting(Arc<Mutex<Vec<String>>>);

impl Noting {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

struct Open(Noting);

struct Opened(Option<Open>);

impl AwaitedLimit<()> for Noting {
    type Ruling = Opened;

    async fn check(&self, (): &(), cost: u64) -> Opened {
        self.note(format!("checked {cost}"));
        Opened(Some(Open(self.clone())))
    }

    async fn refund(&self, (): &(), _: &Opened) {
        self.note("refunded");
    }
}

impl Ruling for Opened {
    fn is_allowed(&self) -> bool {
        true
    }

    fn retry_after(&self) -> Option<Duration> {
        None
    }

    fn is_unsettled(&self) -> bool {
        self.0.is_some()
    }

    fn unsettled(&mut self) -> Option<Box<dyn Unsettled>> {
        Some(Box::new(self.0.take()?))
    }
}

impl Unsettled for Open {
    fn units(&self) -> u64 {
        1
    }

    fn settle(&mut self, actual: u64) {
        self.0.note(format!("settled {actual}"));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.note("ended");
    }
}

#[test]
fn awaited_requests_also_end_with_their_body() {
    let limit = Noting::default();
    let layer =
        RateLimitLayer::new(limit.clone(), Global).refund(|status| status.is_server_error()).awaited();
    for status in [StatusCode::OK, StatusCode::BAD_GATEWAY] {
        let service = service_fn(move |_: Request<()>| {
            let mut answer = answer(&[], &[Step::Data("text")]);
            *answer.status_mut() = status;
            std::future::ready(Ok::<_, &str>(answer))
        });
        let mut body = now(layer.layer(service).oneshot(Request::new(()))).unwrap().into_body();
        let refunds = if status == StatusCode::OK { &[][..] } else { &["settled 0", "refunded"] };
        assert_eq!(limit.notes(), [&["checked 1"], refunds].concat());
        assert_eq!((read(&mut body, 1).as_str(), limit.notes().len()), ("text", 0));
        read(&mut body, 1);
        assert_eq!(limit.notes(), ["ended"]);
    }
}
