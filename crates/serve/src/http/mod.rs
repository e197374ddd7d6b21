//! The HTTP endpoint: `/healthcheck`, and requests in proto3 JSON. Also what all endpoints of plain HTTP share.

mod answer;
mod endpoint;
mod read;
mod write;

pub use self::answer::json;
pub use self::endpoint::{address, endpoints};
pub use self::read::read_body;
pub use self::write::{not_allowed, text, typed};
