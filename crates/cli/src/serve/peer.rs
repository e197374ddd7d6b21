//! Who the client of a connection is, as far as the connection tells.

/// A client of a face.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A user of this machine, by number.
    User(u32),
    /// The DNS and URI names of a certificate.
    Names(Vec<String>),
}

/// A service of a face. It may learn who the client of a connection is.
pub trait ForPeer: Sized {
    /// Returns the service for a connection from this address.
    fn for_peer(self, address: &str, peer: Option<Peer>) -> Self {
        let _ = (address, peer);
        self
    }
}
