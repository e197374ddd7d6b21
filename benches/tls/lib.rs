//! Tests of shared limits over TLS, with real servers. `cargo test -p tollgate-tls` runs them.
//!
//! They are in a separate package, so that the tests of `tollgate` itself do not build TLS. Certificates come from the
//! program `openssl`. Without it, or without a `redis-server` that was built with TLS, the tests print a message and
//! skip.

#[cfg(test)]
mod tests;
