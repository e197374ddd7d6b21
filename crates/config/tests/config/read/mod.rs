//! Reading rules: errors, warnings, Tollgate's own keys, the three formats, and merging.
//!
//! Properties:
//! - In every format, the reader accepts or rejects any text without a panic. A rejection names a line.
//! - The sample files give the same rules in YAML, JSON and TOML.
//! - Identities are unique. Other numbers, algorithms and stores do not change them.

mod addresses;
mod blocks;
#[cfg(feature = "calendar")]
mod calendars;
mod distinct;
mod formats;
mod go;
mod guide;
mod holds;
mod metadata;
mod ours;
mod properties;
mod refused;
mod scalars;
mod shared;
mod support;
mod warned;
