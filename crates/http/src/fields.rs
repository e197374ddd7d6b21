//! Writes policies as header fields.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use tollgate::Timestamp;

use crate::dialect::{Dialect, Reset};
use crate::line::{FieldValue, MAX_INTEGER};
use crate::policy::{Available, Policy, Unit};
use crate::problem::{PROBLEM_JSON, problem};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The names of the three fields of one policy: limit, remaining and reset.
type Three = [HeaderName; 3];

const RATELIMIT_THREE: Three = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];

const X_RATELIMIT_THREE: Three = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

const X_RATELIMIT_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

/// Writes policies as header fields in one dialect. Create one and use it for every response.
///
/// # Which policies
/// Only enforced policies are written. Draft 11 lists all of them; on a denial, its `RateLimit` field lists only the
/// policies that denied. [`Fields::nearest_only`] reduces the list to one policy.
///
/// The other dialects have room for one policy and show the one *nearest to exhaustion*. Among the policies that
/// denied, this is the one with the longest wait. If none denied, it is the one with the fewest units left; among
/// equals, it is the one with the longest window.
///
/// # Names
/// A quoted string holds printable ASCII only. All other characters in a name, and `%`, are percent-encoded UTF-8
/// (`größe` becomes `"gr%C3%B6%C3%9Fe"`), so a reader can decode every name.
///
/// # Fields that already exist
/// An inner service may have written its own fields. The fields of draft 11 are lists, which may span several lines, so
/// these fields are appended. All other fields hold one value, so the new value replaces the existing one.
///
/// # Complexity
/// One allocation for each field's value if the value is shorter than 256 bytes. Never panics, whatever the names and
/// numbers are.
///
/// # Examples
/// ```
/// use http::HeaderMap;
/// use tollgate::{FixedWindow, ManualClock, Quota, RateLimiter, Timestamp};
/// use tollgate_http::{Dialect, Fields, Policy, Reset};
///
/// let quota = Quota::per_hour(5_000);
/// let clock = ManualClock::new(Timestamp::from_secs(1_789_999_200));
/// let limiter = RateLimiter::builder(FixedWindow::new(quota)).clock(clock).direct();
/// let policies = [Policy::new("core", &quota, limiter.check())];
///
/// let mut headers = HeaderMap::new();
/// Fields::new(Dialect::Legacy { reset: Reset::Epoch }).write(&mut headers, &policies);
/// assert_eq!(headers["x-ratelimit-limit"], "5000");
/// assert_eq!(headers["x-ratelimit-remaining"], "4999");
/// assert_eq!(headers["x-ratelimit-reset"], "1790002800");
/// ```
#[derive(Clone, Default)]
pub struct Fields {
    dialect: Dialect,
    nearest_only: bool,
    /// Converts the limiter's time to Unix time.
    unix: Option<Arc<dyn Fn(Timestamp) -> Timestamp + Send + Sync>>,
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dialect, nearest_only, unix: _ } = self;
        f.debug_struct("Fields")
            .field("dialect", dialect)
            .field("nearest_only", nearest_only)
            .finish_non_exhaustive()
    }
}

impl Fields {
    /// Creates a writer for this dialect.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, ..Self::default() }
    }

    /// Sets whether `RateLimit` of draft 11 reports only the policy that is nearest to exhaustion. `RateLimit-Policy`
    /// still lists all policies. Default: `RateLimit` reports all policies too.
    #[must_use]
    pub fn nearest_only(self, nearest_only: bool) -> Self {
        Self { nearest_only, ..self }
    }

    /// Sets how to convert a time of the limiter's clock to Unix time, for resets that are points in time. Default: no
    /// conversion. This fits the shipped clocks: they read the wall clock once, so their times are Unix times.
    ///
    /// The reset is the end of the window, and does not depend on the time of the response. Two responses within a
    /// window therefore show the same reset, as long as this function adds the same offset.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate_http::{Dialect, Fields, Reset};
    ///
    /// // A clock that showed zero when the process started.
    /// let started = Duration::from_secs(1_790_000_000);
    /// let fields = Fields::new(Dialect::Legacy { reset: Reset::Epoch }).unix_time(move |time| time + started);
    /// # let _ = fields;
    /// ```
    #[must_use]
    pub fn unix_time(self, unix: impl Fn(Timestamp) -> Timestamp + Send + Sync + 'static) -> Self {
        Self { unix: Some(Arc::new(unix)), ..self }
    }

    /// Returns the dialect.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Writes the fields of an admitted request. Writes nothing if no policy is enforced.
    pub fn write(&self, headers: &mut HeaderMap, policies: &[Policy<'_>]) {
        self.put(headers, policies, false);
    }

    /// Does the same as [`Fields::write`], but keeps the fields of an inner service that show less remaining quota.
    /// This applies to dialects with room for one policy.
    pub fn write_unless_nearer(&self, headers: &mut HeaderMap, policies: &[Policy<'_>]) {
        let ours = nearest(policies).map(|policy| policy.available().units);
        match self.remaining_in(headers).zip(ours) {
            Some((theirs, ours)) if theirs < ours => {}
            _ => self.write(headers, policies),
        }
    }

    /// Returns the remaining quota in the existing fields, if they hold one policy.
    fn remaining_in(&self, headers: &HeaderMap) -> Option<u64> {
        let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
        let remaining = match self.dialect {
            Dialect::Draft07 => {
                let mut members = text(&RATELIMIT)?.split(',');
                members.find_map(|member| member.trim().strip_prefix("remaining="))?
            }
            Dialect::Draft06 => text(&RATELIMIT_THREE[1])?.trim(),
            Dialect::Legacy { .. } => text(&X_RATELIMIT_THREE[1])?.trim(),
            Dialect::Draft11 | Dialect::Off => return None,
        };
        remaining.parse().ok()
    }

    /// Writes the fields of a denial: the fields of [`Fields::write`], `Cache-Control: no-store`, and `Retry-After`
    /// with the seconds of [`retry_after`]. [`Dialect::Legacy`] repeats the seconds in `X-RateLimit-Retry-After`.
    pub fn refuse(&self, headers: &mut HeaderMap, policies: &[Policy<'_>]) {
        self.refuse_for(headers, policies, retry_after(policies));
    }

    /// Writes the fields of a denial with the caller's own wait, as [`Fields::refuse`] does. The caller can add a
    /// random time to the wait, so that clients do not all return immediately.
    ///
    /// The wait is sent in whole seconds, rounded up, and at least 1. With `None`, there is no `Retry-After` and no
    /// `X-RateLimit-Retry-After`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use http::HeaderMap;
    /// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
    /// use tollgate_http::{Fields, Policy, retry_after};
    ///
    /// let quota = Quota::per_minute(2).burst(1);
    /// let limiter = RateLimiter::builder(Gcra::new(quota)).clock(ManualClock::default()).direct();
    /// let _ = limiter.check();
    /// let policies = [Policy::new("calls", &quota, limiter.check())];
    ///
    /// let random = 0.25; // from your own generator
    /// let wait = retry_after(&policies).map(|wait| wait.mul_f64(1.0 + random));
    /// let mut headers = HeaderMap::new();
    /// Fields::default().refuse_for(&mut headers, &policies, wait);
    /// assert_eq!(headers["retry-after"], "38"); // 37.5 rounded up
    /// ```
    pub fn refuse_for(&self, headers: &mut HeaderMap, policies: &[Policy<'_>], wait: Option<Duration>) {
        self.put(headers, policies, true);
        let _ = headers.try_insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let seconds =
            wait.map(|wait| wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1));
        let legacy = matches!(self.dialect, Dialect::Legacy { .. }).then_some(X_RATELIMIT_RETRY_AFTER);
        for name in [Some(RETRY_AFTER), legacy].into_iter().flatten() {
            match seconds {
                Some(seconds) => insert(headers, name, |line| line.number(seconds)),
                None => {
                    headers.remove(name);
                }
            }
        }
    }

    /// Builds a whole response to a denied request: status 429, the fields of [`Fields::refuse`], and a [`problem`]
    /// document.
    #[must_use]
    pub fn refusal(&self, policies: &[Policy<'_>]) -> Response<String> {
        let mut response = Response::new(problem(policies));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        self.refuse(response.headers_mut(), policies);
        response
    }

    fn put(&self, headers: &mut HeaderMap, policies: &[Policy<'_>], refused: bool) {
        // The policy nearest to exhaustion. It exists if any policy is enforced.
        let Some(nearest) = nearest(policies) else { return };
        let (limit, Available { units, seconds }) = (nearest.quota().min(MAX_INTEGER), nearest.available());
        match self.dialect {
            Dialect::Draft11 => {
                append(headers, RATELIMIT_POLICY, |line| {
                    enforced(policies).for_each(|policy| named(line, policy));
                });
                // If a denial has no violated policy, this lists all policies.
                let only = refused && policies.iter().any(Policy::is_violated);
                append(headers, RATELIMIT, |line| match self.nearest_only {
                    true => available(line, nearest),
                    false => enforced(policies)
                        .filter(|policy| !only || policy.is_violated())
                        .for_each(|policy| available(line, policy)),
                });
            }
            Dialect::Draft07 => {
                insert(headers, RATELIMIT, |line| {
                    for (key, number) in [("limit=", limit), (", remaining=", units), (", reset=", seconds)] {
                        line.text(key);
                        line.number(number);
                    }
                });
                unnamed(headers, policies);
            }
            Dialect::Draft06 => {
                three(headers, RATELIMIT_THREE, [limit, units, seconds]);
                unnamed(headers, policies);
            }
            Dialect::Legacy { reset } => {
                let reset = match reset {
                    Reset::Delta => seconds,
                    Reset::Epoch => self.epoch_seconds(nearest),
                };
                three(headers, X_RATELIMIT_THREE, [limit, units, reset]);
            }
            Dialect::Off => {}
        }
    }

    /// Returns the end of the effective window in Unix time, rounded up to a second.
    fn epoch_seconds(&self, policy: &Policy<'_>) -> u64 {
        let ends = policy.ends();
        let ends = self.unix.as_ref().map_or(ends, |unix| unix(ends));
        ends.as_nanos().div_ceil(1_000_000_000)
    }
}

/// Returns how long a denied client should wait: the longest wait of all violated policies. Returns `None` if one of
/// them can never admit the request, or if none is violated.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, ManualClock, Quota, RateLimiter};
/// use tollgate_http::{Policy, retry_after};
///
/// let (quick, slow) = (Quota::per_second(1), Quota::per_minute(1));
/// let limiter = |quota| RateLimiter::builder(Gcra::new(quota)).clock(ManualClock::default()).direct();
/// let (a, b) = (limiter(quick), limiter(slow));
/// assert!(a.check().is_allowed() && b.check().is_allowed());
/// let policies = [Policy::new("quick", &quick, a.check()), Policy::new("slow", &slow, b.check())];
/// assert_eq!(retry_after(&policies), Some(Duration::from_secs(60)));
/// ```
#[must_use]
pub fn retry_after(policies: &[Policy<'_>]) -> Option<Duration> {
    let violated = policies.iter().filter(|policy| policy.is_violated());
    let wait = violated.map(|policy| policy.decision().retry_after()).reduce(|a, b| Some(a?.max(b?)));
    wait.flatten()
}

fn enforced<'p, 'a>(policies: &'p [Policy<'a>]) -> impl Iterator<Item = &'p Policy<'a>> {
    policies.iter().filter(|policy| policy.is_enforced())
}

/// Returns the enforced policy that is nearest to exhaustion; see [`Fields`].
fn nearest<'p, 'a>(policies: &'p [Policy<'a>]) -> Option<&'p Policy<'a>> {
    enforced(policies).min_by_key(|policy| {
        let Available { units, seconds } = policy.available();
        match policy.is_violated() {
            true => (false, 0, Reverse(policy.decision().retry_after().unwrap_or(Duration::MAX))),
            false => (true, units, Reverse(Duration::from_secs(seconds))),
        }
    })
}

/// Writes `"burst";q=100;w=60`.
fn named(line: &mut FieldValue, policy: &Policy<'_>) {
    line.comma();
    line.name(policy.name());
    line.text(";q=");
    line.number(policy.quota());
    if policy.unit != Unit::Requests {
        line.text(";qu=");
        line.name(policy.unit.as_str());
    }
    line.text(";w=");
    line.number(policy.window_seconds());
    partition(line, policy);
}

/// Writes `"burst";r=50;t=30`.
fn available(line: &mut FieldValue, policy: &Policy<'_>) {
    let Available { units, seconds } = policy.available();
    line.comma();
    line.name(policy.name());
    line.text(";r=");
    line.number(units);
    line.text(";t=");
    line.number(seconds);
    partition(line, policy);
}

fn partition(line: &mut FieldValue, policy: &Policy<'_>) {
    if let Some(key) = policy.partition {
        line.text(";pk=");
        line.sequence(key);
    }
}

/// Writes `RateLimit-Policy: 100;w=60` for all policies.
fn unnamed(headers: &mut HeaderMap, policies: &[Policy<'_>]) {
    insert(headers, RATELIMIT_POLICY, |line| {
        for policy in enforced(policies) {
            line.comma();
            line.number(policy.quota());
            line.text(";w=");
            line.number(policy.window_seconds());
        }
    });
}

fn written(write: impl FnOnce(&mut FieldValue)) -> Option<HeaderValue> {
    let mut line = FieldValue::new();
    write(&mut line);
    line.value()
}

// A map rejects a field only if it already holds 32,768 fields. The response then goes out without this field.

fn append(headers: &mut HeaderMap, name: HeaderName, write: impl FnOnce(&mut FieldValue)) {
    if let Some(value) = written(write) {
        let _ = headers.try_append(name, value);
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, write: impl FnOnce(&mut FieldValue)) {
    if let Some(value) = written(write) {
        let _ = headers.try_insert(name, value);
    }
}

fn three(headers: &mut HeaderMap, names: Three, numbers: [u64; 3]) {
    for (name, number) in names.into_iter().zip(numbers) {
        insert(headers, name, |line| line.number(number));
    }
}
