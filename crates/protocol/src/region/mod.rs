//! One limit for several regions: each region has its own server, and the regions exchange their totals.
//!
//! | part | contents |
//! |---|---|
//! | `totals` | the units that one member counted in each window, and how two reports are merged |
//! | `claim` | the order to exchange a key, and the calls that carry it out |
//! | `exchange` | when exchanges are due, and which pairs of regions are cut off |
//! | `model` | what a region's server stores and answers; `region.lua` does the same |
//!
//! *State.* A region's server stores, for each key and each limit:
//!
//! - the region's **own** total in the current window and in the window before: the units that its processes admitted;
//! - the last known totals of each **other** region, apart from its own total;
//! - the **base** of the region's share: its own total at the last renewal.
//!
//! A region reports its own total and nothing else. If it reported what others told it, the totals would come back to
//! the regions that reported them, and would grow without end.
//!
//! *Merge.* A total belongs to a window index, and only grows. The larger of two reports is the later one. So reports
//! may be lost, repeated and reordered.
//!
//! *A server that restarts without its data* counts from zero. Its processes post their whole totals again, and the
//! other regions report the total that they know. That total becomes a **floor**: the own total is the larger of the
//! two. It is never their sum, because the posts contain the same units. At most the units of processes that never post
//! again stay uncounted.
//!
//! *Exchange.* The reply to a post contains a claim if the key is due for an exchange. The process that receives the
//! claim sends the own total to the other servers, and reports their replies to its own server. There is no leader and
//! no list of keys. If the process stops, the key is exchanged one interval later.

mod claim;
mod exchange;
mod model;
mod totals;

pub use self::claim::Claim;
pub use self::exchange::{RegionLink, RegionLinks, pause};
pub use self::model::RegionState;
