//! The kinds of stores.

use std::fmt;

use crate::algorithm::LimitKind;

/// The stores, as a choice at run time: see [`RateLimiter::any`](crate::RateLimiter::any).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum StoreKind {
    /// One state for all keys, as in [`Direct`](crate::Direct).
    Direct,
    /// A fingerprint of each key, in fixed memory: [`Compact`](crate::Compact). It supports GCRA, greedy token buckets, both leaky
    /// buckets, aligned fixed windows, sliding windows, and spacings above zero.
    Compact,
    /// One state for each key, stored with the key: [`Keyed`](crate::Keyed). It supports every algorithm.
    Keyed,
    /// Counters that keys share, in constant memory: [`Sketch`](crate::Sketch). It supports aligned fixed windows and
    /// sliding windows.
    Sketch,
}

impl fmt::Display for StoreKind {
    /// Writes the name that files of rules use, such as `compact`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Compact => "compact",
            Self::Keyed => "keyed",
            Self::Sketch => "sketch",
        })
    }
}

impl StoreKind {
    /// Returns whether this kind of store supports the algorithm. A limit can still be refused, because of its quota or
    /// the size of the store.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Limit, StoreKind};
    ///
    /// let log: Limit = "sliding-log 5/15min".parse()?;
    /// assert!(StoreKind::Keyed.supports(log.kind()) && !StoreKind::Compact.supports(log.kind()));
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    #[must_use]
    pub const fn supports(self, kind: LimitKind) -> bool {
        match self {
            Self::Direct | Self::Keyed => true,
            Self::Compact => kind.is_compact(),
            Self::Sketch => kind.is_sketched(),
        }
    }
}
