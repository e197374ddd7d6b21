//! The guides whose examples call governor, beside ours: `cargo test -p tollgate-guides --doc` runs them.
//!
//! They are tested here, so that tollgate's own tests build no other limiter.

pub mod from_governor {
    #![doc = include_str!("../../src/guide/from_governor.md")]
}
pub mod from_tower_governor {
    #![doc = include_str!("../../src/guide/from_tower_governor.md")]
}
