//! Measures how often limiters of bounded memory decide wrongly, with generated traffic, an exact oracle of every
//! key, and counts of both kinds of error.
//!
//! | part | does |
//! |---|---|
//! | [`random`] | seeded random numbers, Zipf ranks, a hasher that is the same on every machine |
//! | [`traffic`] | generates requests: their keys, times and quota |
//! | [`measure`] | plays traffic to a limiter and counts its errors |
//! | [`table`] | the rows of the design's table, and their figures |

pub mod measure;
pub mod random;
pub mod table;
pub mod traffic;
