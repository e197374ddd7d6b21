//! What an operator does to the counter of one key, and why a rule refuses it.

use std::fmt;
use std::time::Duration;

/// What an operator does to the keys of a request, by [`Rules::operate`](crate::Rules::operate).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OperatorAction {
    /// Shows the state, and changes nothing.
    Inspect,
    /// Forgets the used units, and the block. Units that requests hold, and requests in progress, stay: they end as they
    /// would. Known values of a rule with `distinct` stay known.
    Reset,
    /// Gives back up to this number of used units. A key never gets more than its limit: if fewer units are used, it gets
    /// those.
    Grant(u64),
    /// Blocks the key for this time, from 1 ns to the longest block of its rule. A block in this process that would end later
    /// stays. The rule needs a [block](tollgate::Blocked).
    Block(Duration),
    /// Ends the block of a key: resets a key that is in a block, and changes no other key.
    Unblock,
}

impl OperatorAction {
    /// Whether the action has the same effect twice as once.
    pub(crate) const fn can_repeat(self) -> bool {
        !matches!(self, Self::Grant(_))
    }
}

/// Why a rule refuses a [`OperatorAction`]. The rule is then unchanged, unless the variant says otherwise. [`Display`](fmt::Display)
/// writes the reason for people.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The rule has no limit, or a limit of 0, so it counts nothing.
    CountsNothing,
    /// The rule counts requests in progress.
    InProgress,
    /// Another rule replaces this one for these descriptors.
    Replaced,
    /// The store of the rule cannot forget a single key.
    CannotForget,
    /// The store or the algorithm of the rule cannot give units back.
    CannotGiveBack,
    /// The rule has no block.
    HasNoBlock,
    /// The block is 0, or longer than the longest block of the rule.
    BlockLength {
        /// The longest block.
        most: Duration,
    },
    /// The key is in a block.
    InBlock,
    /// The key is in a block, and requests hold units of it.
    HoldsInBlock,
    /// Processes hold units of the key: the rule is shared, and its mode is not `atomic`.
    HeldByProcesses,
    /// The rule is shared, and the caller cannot wait for the server.
    CannotWait,
    /// The store has no room for the key.
    NoRoom,
    /// The server did not answer. It may have done it.
    NoAnswer(Box<str>),
}

impl Refusal {
    /// Returns the reason in one word, which stays the same in later versions.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CountsNothing => "counts-nothing",
            Self::InProgress => "in-progress",
            Self::Replaced => "replaced",
            Self::CannotForget => "cannot-forget",
            Self::CannotGiveBack => "cannot-give-back",
            Self::HasNoBlock => "no-block",
            Self::BlockLength { .. } => "block-length",
            Self::InBlock => "in-block",
            Self::HoldsInBlock => "holds-in-block",
            Self::HeldByProcesses => "held-by-processes",
            Self::CannotWait => "cannot-wait",
            Self::NoRoom => "no-room",
            Self::NoAnswer(_) => "no-answer",
        }
    }

    /// Checks the length of a block.
    pub(crate) fn of_length(length: Duration, most: Duration) -> Result<(), Self> {
        if length.is_zero() || length > most { Err(Self::BlockLength { most }) } else { Ok(()) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CountsNothing => "the rule counts nothing: it has no limit, or a limit of 0; change the file",
            Self::InProgress => "the rule counts requests in progress, which end by themselves",
            Self::Replaced => "another rule replaces this one for these descriptors",
            Self::CannotForget => "the store of the rule cannot forget a single key; wait for the end of its window",
            Self::CannotGiveBack => "the store or the algorithm of the rule cannot give units back; use reset",
            Self::HasNoBlock => "the rule has no block; add `block` to its limit",
            Self::BlockLength { most } => {
                return write!(f, "a block of this rule takes more than 0 and at most {most:?}");
            }
            Self::InBlock => "the key is in a block; use unblock first",
            Self::HoldsInBlock => "the key is in a block, and requests hold units of it; wait until they end",
            Self::HeldByProcesses => {
                "processes hold units of the key, which no other process can take back; only `mode: atomic` can do this"
            }
            Self::CannotWait => "the rule is shared, and this call cannot wait for its server; use the async call",
            Self::NoRoom => "the store has no room for the key",
            Self::NoAnswer(why) => return write!(f, "the server did not answer, and may have done it: {why}"),
        })
    }
}

impl std::error::Error for Refusal {}
