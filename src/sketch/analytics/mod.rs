//! Sketches that count and estimate for the caller. No limiter uses them.

mod bloom;
mod count_min;
mod error;
mod in_flight;
mod rate;
mod top;

pub use self::bloom::Bloom;
pub use self::count_min::CountMin;
pub use self::error::SketchError;
pub use self::in_flight::{Full, Guard, InFlight, OwnedGuard};
pub use self::rate::{Rate, RateBuilder, RateComponents};
pub use self::top::{CutText, SampledTopKeys, TopKey, TopKeys, TopSample};
