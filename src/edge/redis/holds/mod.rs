//! Units that are taken now and settled later, and requests in progress, on a server.
//!
//! | part | contents |
//! |---|---|
//! | `call` | one call about one key, and its reply |
//! | `model`, `script` | what a server stores and answers, in Rust, and the commands of the Lua script |
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

#[allow(missing_docs, reason = "the docs of each type name its fields")]
mod call;
mod model;
pub(crate) mod script;

#[cfg(tollgate_simulation)]
pub use self::call::MOST_HOLDS;
pub use self::call::{
    HoldCall, HoldKind, HoldQuestion, HoldReply, HoldTransport, MOST_HELD, StoredHold, identity_of,
};
pub use self::model::HoldState;
