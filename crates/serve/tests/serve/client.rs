//! Clients, and the messages that they send.

use bytes::Bytes;
use tollgate_serve::proto::{Entry, RateLimitDescriptor, RateLimitRequest};
pub(crate) use tollgate_testing::service::client::*;

/// Returns a descriptor of these entries.
pub(crate) fn descriptor<V: AsRef<[u8]>>(entries: &[(&str, V)]) -> RateLimitDescriptor {
    let bytes = |text: &[u8]| Bytes::copy_from_slice(text);
    let entry = |(key, value): &(&str, V)| Entry { key: bytes(key.as_bytes()), value: bytes(value.as_ref()) };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}

/// Returns a request of the domain `rl` with these descriptors.
pub(crate) fn question(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "rl".into(), descriptors, ..Default::default() }
}
