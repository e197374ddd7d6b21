//! Where words live.

mod direct;
pub(crate) mod keyed;
pub(crate) mod state;

pub use self::direct::Direct;
pub use self::keyed::{Keyed, Lookup, Overflow};
