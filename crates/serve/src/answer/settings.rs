//! The settings of answers. All header names and values are checked here, before the first request.

use http::HeaderName;
use tollgate::telemetry::NearLimit;
use tollgate_http::{Dialect, Fields};

/// The settings of answers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The header fields with limits that clients see.
    pub limit_headers: LimitHeaders,
    /// Whether answers over a limit have `Retry-After`.
    pub retry_after: bool,
    /// Whether answers have `dynamic_metadata`.
    pub dynamic_metadata: bool,
    /// Whether answers over a limit have a problem document as their body.
    pub problem_body: bool,
    /// Whether a request may give hits back.
    pub negative_hits: bool,
    /// Whether a request is `UNAVAILABLE` if the server of one of its shared rules is away. Otherwise the rule's
    /// `on_failure` decides.
    pub unavailable_without_store: bool,
    /// The most descriptors of a request.
    pub max_descriptors: usize,
    /// The most entries of a descriptor.
    pub max_entries: usize,
    /// The most hits of a descriptor. More hits count as this number.
    pub max_hits: u64,
    /// The most requests that wait for an answer at the same time.
    pub max_in_flight: usize,
    /// The share of a limit above which a key is near it.
    pub near_limit: NearLimit,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limit_headers: LimitHeaders::None,
            retry_after: false,
            dynamic_metadata: false,
            problem_body: false,
            negative_hits: false,
            unavailable_without_store: false,
            max_descriptors: 64,
            max_entries: 32,
            max_hits: u64::MAX,
            max_in_flight: 8_192,
            near_limit: NearLimit::default(),
        }
    }
}

/// The header fields with limits.
#[derive(Clone, Debug, Default)]
pub enum LimitHeaders {
    /// None.
    #[default]
    None,
    /// The three fields of Envoy's service: limit, remaining units, and seconds until the window ends.
    Three(Names),
    /// The fields of a dialect.
    Dialect(Fields),
}

/// The names of the three fields of Envoy's service: limit, remaining and reset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names(pub(super) [String; 3]);

impl Default for Names {
    fn default() -> Self {
        Self(["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"].map(str::to_owned))
    }
}

impl Names {
    /// Creates the names of the fields. A name keeps its upper-case letters.
    ///
    /// # Errors
    /// If a text is not a name of a header field. The error names the text.
    pub fn new(names: [&str; 3]) -> Result<Self, String> {
        for text in names {
            HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
                format!("{text:?} is not a name of a header field: use letters, digits and '-'")
            })?;
        }
        Ok(Self(names.map(str::to_owned)))
    }
}

impl LimitHeaders {
    /// Returns the writer of the fields that the library defines.
    pub(super) fn fields(&self) -> Fields {
        match self {
            Self::Dialect(fields) => fields.clone(),
            Self::None | Self::Three(_) => Fields::new(Dialect::Off),
        }
    }
}
