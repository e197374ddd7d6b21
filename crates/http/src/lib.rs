//! HTTP responses: `RateLimit` fields in several dialects, `Retry-After`, and problem documents.
//!
//! ```
//! use http::HeaderMap;
//! use tollgate::{Quota, RateLimiter};
//! use tollgate_http::{Fields, Policy};
//!
//! let quota = Quota::per_minute(100);
//! let limiter = RateLimiter::new(quota);
//! let decision = limiter.check("203.0.113.7");
//!
//! let mut headers = HeaderMap::new();
//! Fields::default().write(&mut headers, &[Policy::new("burst", &quota, decision)]);
//! assert_eq!(headers["ratelimit-policy"], "\"burst\";q=100;w=60");
//! assert_eq!(headers["ratelimit"], "\"burst\";r=99;t=60");
//! ```
//!
//! A [`Policy`] is one limit with its decision. [`Fields`] writes policies in a [`Dialect`]. [`problem`] builds the
//! body of a denial.
//! [`docs/http.md`](https://docs.rs/crate/tollgate/latest/source/docs/http.md)
//! explains which dialect to choose and what the numbers mean.

// The published docs show which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod dialect;
mod fields;
pub mod forwarded;
mod line;
mod policy;
mod problem;

pub use self::dialect::{Dialect, Reset};
pub use self::fields::{Fields, retry_after};
pub use self::policy::{Available, Policy, Unit};
pub use self::problem::{PROBLEM_JSON, problem, problem_at, unknown_client};

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
