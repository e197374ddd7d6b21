//! Where words live.

mod direct;
pub(crate) mod keyed;
mod state;

pub use self::direct::Direct;
pub use self::keyed::{Keyed, Lookup, Overflow};
