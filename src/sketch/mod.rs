//! Sketches: what is kept of keys too many to keep, in constant memory and with one-sided errors.
//!
//! | type | answers |
//! |---|---|
//! | [`Rate`] | how many events a key had in this window of time, and in the last |
//! | [`InFlight`] | how many of a key are under way, and may one more begin |
//! | [`CountMin`] | how often a key came, at most |
//! | [`Bloom`] | whether a key came before: certainly not, or perhaps |
//! | [`TopKeys`], [`SampledTopKeys`] | which keys came most often, and how far off that may be |
//! | [`TatSketch`] | whether a request may go, by GCRA in sixteen-bit cells |
//!
//! Without the feature `std` there is [`TatSketch`] alone.
//!
//! To limit by windows in a sketch, there is [`Builder::sketch`](crate::Builder::sketch); see
//! [`guide::sketches`](crate::guide::sketches).

#[cfg(feature = "std")]
pub(crate) mod analytics;
pub(crate) mod hash;
pub(crate) mod tat;
#[cfg(feature = "std")]
pub(crate) mod window;

#[cfg(feature = "std")]
pub use self::analytics::{
    Bloom, CountMin, CutText, Full, Guard, InFlight, OwnedGuard, Rate, RateBuilder, RateComponents,
    SampledTopKeys, SketchError, TopKey, TopKeys, TopSample,
};
pub use self::tat::TatSketch;
