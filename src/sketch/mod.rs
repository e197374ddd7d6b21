//! Sketches: estimates for any number of keys, in constant memory and with one-sided errors.
//!
//! | type | question that it answers |
//! |---|---|
//! | [`Rate`] | How many events did a key have in the current window of time, and in the previous one? |
//! | [`InFlight`] | How many requests of a key are in flight, and may another one begin? |
//! | [`CountMin`] | How often did a key occur, at most? |
//! | [`Bloom`] | Did a key occur before? "No" is certain, "yes" is not. |
//! | [`TopKeys`], [`SampledTopKeys`] | Which keys occurred most often, and how large is the error? |
//! | [`TatSketch`] | Is a request admitted? (GCRA in 16-bit cells.) |
//!
//! Without the feature `std`, only [`TatSketch`] is available.
//!
//! To limit requests by windows in a sketch, use [`Builder::sketch`](crate::Builder::sketch); see
//! [`docs/sketches.md`](https://docs.rs/crate/tollgate/latest/source/docs/sketches.md).

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
