//! Who the client of a connection is, as far as the connection tells.

/// A client of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A user of this machine, by number.
    User(u32),
    /// The DNS and URI names of a certificate.
    Names(Vec<String>),
}
