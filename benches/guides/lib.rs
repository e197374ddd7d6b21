//! Guides with examples that call governor or actix-web next to Tollgate. `cargo test -p tollgate-guides --doc` runs them.
//!
//! They are in a separate crate so that the tests of `tollgate` itself do not build another limiter or server.

pub mod actix_and_pingora {
    #![doc = include_str!("../../docs/actix_and_pingora.md")]
}
pub mod from_governor {
    #![doc = include_str!("../../docs/from_governor.md")]
}
pub mod from_tower_governor {
    #![doc = include_str!("../../docs/from_tower_governor.md")]
}
