//! One key: its allowance, and the ledger of the thread that posts it.

use std::sync::{MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate::internals::sync::{AtomicU64, Mutex, Ordering};
use tollgate_protocol::slot::PARTS;

use super::account::Account;
use super::allowance::{Allowance, Removal, Reset, Spend};

/// An entry; see the module docs.
#[derive(Debug)]
pub(crate) struct WriteBackKey {
    pub(super) key: Box<[u8]>,
    /// The part of the shared state that holds the key. Each server has [`PARTS`] parts.
    pub(super) part: usize,
    pub(super) allowance: Allowance,
    /// Before this time no further unit is available, and a call to the server is useless.
    retry_ns: AtomicU64,
    /// When the full quota is available again, as far as this process knows.
    pub(super) reset_ns: AtomicU64,
    ledger: Mutex<KeyLedger>,
}

#[derive(Debug, Default)]
pub(super) struct KeyLedger {
    pub(super) accounts: SmallVec<[Account; 1]>,
    /// The value to which the allowance was last set.
    pub(super) was: u64,
    /// The largest cost that was denied since the last answer.
    pub(super) wanted: u64,
    /// No call about the key was sent yet, or none for a while. The next request causes a call at once.
    pub(super) is_new: bool,
    /// The key is in the queue for calls at once.
    pub(super) is_queued: bool,
    /// Since when the key has unposted units.
    pub(super) pending_since: Option<u64>,
    pub(super) spent_ns: u64,
    pub(super) answered_ns: u64,
    /// When a call about the key last failed.
    pub(super) failed_ns: u64,
}

/// Whether the current time is near the end of one of an entry's windows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Season {
    /// Every limit is inside a window, or has no windows.
    Within,
    /// Near the end of a window. At this time the next window has certainly begun.
    Between { next_ns: u64 },
}

impl WriteBackKey {
    /// The server that holds the key.
    pub(super) const fn server(&self) -> usize {
        self.part / PARTS
    }

    pub(super) fn new(key: &[u8], part: usize, accounts: SmallVec<[Account; 1]>, now_ns: u64) -> Self {
        let was = accounts.iter().map(Account::left).min().unwrap_or(0);
        Self {
            key: key.into(),
            part,
            // The allowance is over at once, so that the first request sets it.
            allowance: Allowance::new(was, 0),
            retry_ns: AtomicU64::new(0),
            reset_ns: AtomicU64::new(0),
            ledger: Mutex::new(KeyLedger {
                accounts,
                was,
                is_new: true,
                spent_ns: now_ns,
                answered_ns: now_ns,
                ..KeyLedger::default()
            }),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, KeyLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn retry_ns(&self) -> u64 {
        // Ordering: Relaxed, here and below. These are hints; with an old value, the retry time is slightly early or
        // late.
        self.retry_ns.load(Ordering::Relaxed)
    }

    pub(super) fn set_retry_ns(&self, at_ns: u64) {
        self.retry_ns.store(at_ns, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn reset_ns(&self) -> u64 {
        self.reset_ns.load(Ordering::Relaxed)
    }

    /// Sets the allowance to the value in the accounts.
    pub(super) fn refresh(&self, ledger: &mut KeyLedger, now_ns: u64) {
        let target = ledger.accounts.iter().map(Account::left).min().unwrap_or(0);
        let Reset { spent, left } = self.allowance.reset(ledger.was, |spent| target.saturating_sub(spent));
        ledger.was = left;
        ledger.enter(spent, now_ns);
    }

    /// Ends the allowance. The next request finds [`Spend::Over`], and its units are entered.
    pub(super) fn rest(&self, ledger: &mut KeyLedger) {
        ledger.is_new = true;
        self.allowance.set_until(0);
    }

    /// Marks the entry dead, if it holds no pending units.
    pub(super) fn kill(&self, ledger: &KeyLedger) -> Removal {
        let is_idle = |account: &Account| account.pending() == 0 && !account.is_asked();
        if ledger.is_queued || !ledger.accounts.iter().all(is_idle) {
            return Removal::InUse;
        }
        self.allowance.kill(ledger.was)
    }

    #[inline]
    pub(super) fn spend(&self, cost: u64, now_ns: u64) -> Spend {
        self.allowance.spend(cost, now_ns)
    }

    /// Returns the result that [`spend`](Self::spend) would have.
    #[cfg(feature = "rules")]
    pub(super) fn peek(&self, cost: u64, now_ns: u64) -> Spend {
        match self.allowance.spend(0, now_ns) {
            Spend::Done(left) if left < cost => Spend::Short(left),
            other => other,
        }
    }
}

impl KeyLedger {
    pub(super) fn enter(&mut self, spent: u64, now_ns: u64) {
        if spent == 0 {
            return;
        }
        for account in &mut self.accounts {
            account.spend(spent);
        }
        self.spent_ns = now_ns;
        self.pending_since.get_or_insert(now_ns);
    }

    /// The pending units of the limit that has the most.
    pub(super) fn pending(&self) -> u64 {
        self.accounts.iter().map(Account::pending).max().unwrap_or(0)
    }

    /// Returns whether the last call about one of its limits failed.
    pub(super) fn is_failing(&self) -> bool {
        self.accounts.iter().any(|account| account.fails)
    }

    pub(super) fn is_asked(&self) -> bool {
        self.accounts.iter().any(Account::is_asked)
    }
}
