//! What the other packages of this repository use, and users do not need. It is not part of the public interface: any
//! release may change it, so these packages depend on one exact version.

// `tollgate-tower` keeps the descriptors of a request while it waits for a server.
pub use crate::descriptor::Pairs;
