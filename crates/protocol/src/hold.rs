//! Units that are taken now and settled later, and requests in progress, on a server.
//!
//! *Apart from the counts.* A hold does not charge a limit. The server keeps the holds of a key in a key of their own. A
//! request, or a new hold, is admitted if its units fit into the room of all limits less the units of all holds. A commit
//! removes the hold and charges the actual cost, in the same step. The room of a limit grows with time, and only admitted
//! requests make it smaller. So the room is never less than the held units, and a commit of at most the held units never
//! exceeds a limit. A request in progress is a hold without a limit: the number of units that can be held is its limit.
//!
//! *An ended hold counts nowhere.* Each step first leaves out the holds whose end has passed, by the server's clock. Then
//! it decides. No step needs the holder, and the whole key expires after its last hold.
//!
//! *Bounded work.* A key has at most 4,096 holds. Each hold is removed once, by the next step, also by a peek. So a step removes at most that many,
//! and few on average. Everything else that a step does takes O(log holds).
//!
//! *Found by its identity.* An identity has the units of its hold, so it is the member of the sorted set, and its score is the
//! end. A call finds a hold without its end: after a hold whose answer was lost, and after a renewal whose answer was lost.
//!
//! *Settled once.* A hold is removed in the step that settles it. A commit or a release whose hold is not there before its
//! end changes nothing, so a call whose answer was lost can be repeated. A commit after the end charges the units.
//!
//! *One slot.* The key of the holds has the tag of the limiter's key, so a Cluster has both on one node.

/// The most holds of one key.
pub const MOST_HOLDS: u64 = 4_096;
/// The most units that a key can hold: larger than the room of every limit, and small enough for the script.
pub const MOST_HELD: u64 = 1 << 51;

/// The bits of an identity that are the units of the hold. The others cannot be guessed. A server finds a hold by its identity, and reads its units there.
const UNIT_BITS: u32 = 56;

/// Returns the identity of a hold of these units, from bits that no other hold has.
pub const fn identity_of(random: u128, units: u64) -> u128 {
    // No key can hold more.
    let units = if units > MOST_HELD { MOST_HELD } else { units };
    random << UNIT_BITS | units as u128
}

/// Returns the units of the hold with this identity.
pub(super) fn units_of(identity: u128) -> u64 {
    u64::try_from(identity & ((1 << UNIT_BITS) - 1)).unwrap_or(MOST_HELD)
}
