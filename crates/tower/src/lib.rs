//! Rate limiting middleware for tower, which also works with axum, hyper and tonic.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{Quota, RateLimiter};
//! use tollgate_tower::{ClientIp, Proxies, RateLimitLayer};
//!
//! const PER_CLIENT: Quota = Quota::per_second(10).burst(50);
//!
//! let by_client = ClientIp::x_forwarded_for(Proxies::hops(1)); // every request passes exactly one proxy of ours
//! let layer = RateLimitLayer::new(RateLimiter::new(PER_CLIENT), by_client).policy("per-client", PER_CLIENT);
//! let app: Router = Router::new().route("/", get(async || "hello")).layer(layer);
//! # drop(app);
//! ```
//!
//! A [`RateLimitLayer`] is made of a [`RequestLimit`] and a [`KeyExtractor`]. Every [`RateLimiter`](tollgate::RateLimiter) is a
//! [`RequestLimit`]. The key extractor returns the key of each request; it is [`ClientIp`], [`Header`], [`Route`], [`Global`],
//! a closure ([`key_fn`]), or a pair of these. All other settings have defaults.
//! [`docs/middleware.md`](https://docs.rs/crate/tollgate/latest/source/docs/middleware.md)
//! explains how to choose them and which mistakes to avoid.

// The published docs show which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod awaited;
mod body;
mod class;
mod client;
mod head;
mod holds;
mod key;
mod layer;
mod limit;
mod prefixes;
#[cfg(feature = "redis")]
mod redis;
mod refusal;
#[cfg(feature = "rules")]
mod rules;
mod service;
mod settings;
mod settle;
mod unknown;

pub use ipnet::IpNet;

pub use self::awaited::AwaitedLimit;
pub use self::body::Body;
pub use self::class::Classes;
pub use self::client::{ClientIp, PeerAddr, PrefixError, Proxies};
pub use self::head::Head;
pub use self::holds::Holds;
pub use self::key::{Global, Header, HeaderKey, KeyExtractor, Missing, Route, RouteKey, key_fn};
pub use self::layer::RateLimitLayer;
pub use self::limit::{Named, RequestLimit, Ruling, Settles, SoftLimited};
pub use self::prefixes::{PrefixLimits, PrefixRuling};
pub use self::refusal::Refused;
#[cfg(feature = "rules")]
pub use self::rules::{Describe, InDomain, Ruled};
pub use self::service::{AtOnce, Awaited, RateLimit, ResponseFuture};
pub use self::settle::Unsettled;
pub use self::unknown::WithoutKey;

/// The examples of the READMEs, and of the guides that use this package, as tests. They have no hidden lines, because
/// GitHub would show those. They therefore run only when all the features that they use are enabled, and only in a checkout:
/// the package has no guides.
#[cfg(all(doctest, feature = "redis", feature = "rules"))]
mod pages {
    macro_rules! pages {
        ($($name:ident $file:literal)*) => { $(#[doc = include_str!($file)] struct $name;)* };
    }
    pages! {
        Readme "../README.md"
        MainReadme "../../../README.md"
        Addresses "../../../docs/addresses.md"
        Http "../../../docs/http.md"
        Middleware "../../../docs/middleware.md"
        Priorities "../../../docs/priorities.md"
        Recipes "../../../docs/recipes.md"
        RequestsInProgress "../../../docs/requests_in_progress.md"
        Rules "../../../docs/rules.md"
        Testing "../../../docs/testing.md"
        TokenBudgets "../../../docs/token_budgets.md"
    }
}
