//! Calls about the holds of a key, and their replies.

use std::future::Future;

use crate::edge::redis::protocol::{Call, Error, Reply, Transport};

/// The most holds of one key.
pub const MOST_HOLDS: u64 = 4_096;
/// The most units that a key can hold: larger than the room of every limit, and small enough for the script.
pub const MOST_HELD: u64 = 1 << 51;

/// One question about one key.
#[derive(Clone, Debug)]
pub struct HoldCall {
    /// The key, its limits and its server. Its own question is not asked.
    pub call: Call,
    pub kind: HoldKind,
    /// The most units that the key can hold.
    pub most_units: u64,
    pub ask: HoldQuestion,
}

/// What is held. Each kind has a key of its own in Redis.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum HoldKind {
    /// Units of limits.
    Units,
    /// Requests in progress.
    Requests,
}

impl HoldKind {
    /// The end of the key's name in Redis.
    pub(super) const fn letter(self) -> &'static str {
        match self {
            Self::Units => "h",
            Self::Requests => "n",
        }
    }
}

/// The bits of an identity that are the units of the hold. A server finds a hold by its identity, and reads its units there.
const UNIT_BITS: u32 = 56;

/// A hold as a server stores it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StoredHold {
    /// The end that the caller expects. A renewal whose answer was lost can have moved it.
    pub end_us: u64,
    /// Bits that no other hold of the key has: 72 that cannot be guessed, and the [units](identity_of).
    pub identity: u128,
}

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

impl StoredHold {
    /// A hold that has ended.
    pub const ENDED: Self = Self { end_us: 0, identity: 0 };
}

/// The questions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HoldQuestion {
    /// Charges the units if the limits have room for them and for all holds.
    Check { cost: u64 },
    /// Returns the state.
    Peek { cost: u64 },
    /// Holds the units until the server's time plus `life_us`, if there is room. They are also in the
    /// [identity](identity_of).
    Hold { units: u64, life_us: u64, identity: u128 },
    /// Removes the hold, and charges the units, even if they exceed a limit. If the hold is not there, charges them only
    /// if its end has passed.
    Commit { hold: StoredHold, units: u64 },
    /// Removes the hold.
    Release { hold: StoredHold },
    /// Lets the hold end later, at the server's time plus `life_us`.
    Renew { hold: StoredHold, life_us: u64 },
}

/// The reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldReply {
    /// Whether the hold was taken, or the hold to settle or renew was there.
    pub done: bool,
    /// The units of all holds of the key.
    pub held: u64,
    /// The first and the last end of these holds, in microseconds. Both are 0 if there is none.
    pub first_us: u64,
    pub last_us: u64,
    /// The units charged, the time, and the states of the limits. Its waits are those of the units that were asked plus
    /// those held.
    pub limits: Reply,
}

/// Carries calls about holds.
pub trait HoldTransport: Transport {
    /// Sends a call. The caller limits the time.
    fn ask_holds(&self, call: &HoldCall) -> impl Future<Output = Result<HoldReply, Error>> + Send;
}
