//! One key: its allowance, and the ledger of who posts it.

use std::sync::{MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::account::Account;
use super::allowance::{Allowance, Removal, Spend};
use crate::base::sync::{AtomicU64, Mutex, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct WriteBackKey {
    pub(super) key: Box<[u8]>,
    /// The part of the shared state that holds it.
    pub(super) part: usize,
    pub(super) allowance: Allowance,
    /// Before this one unit more will not be had, whatever is asked.
    retry_ns: AtomicU64,
    /// When all will be as new, as far as is known.
    pub(super) reset_ns: AtomicU64,
    ledger: Mutex<KeyLedger>,
}

#[derive(Debug, Default)]
pub(super) struct KeyLedger {
    pub(super) accounts: SmallVec<[Account; 1]>,
    /// What the allowance was set to.
    pub(super) was: u64,
    /// The most that was refused since the last answer.
    pub(super) wanted: u64,
    /// Not asked about yet, or not for a while: the next request has it asked about at once.
    pub(super) is_new: bool,
    /// It stands in the queue of those that are asked about at once.
    pub(super) is_queued: bool,
    /// Since when something is not posted.
    pub(super) pending_since: Option<u64>,
    pub(super) spent_ns: u64,
    pub(super) answered_ns: u64,
    /// When a call about it failed last.
    pub(super) failed_ns: u64,
}

/// When windows end, for an entry.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Season {
    /// All limits are in a window, or have none.
    Within,
    /// Around the end of one: the next has surely begun then.
    Between { next_ns: u64 },
}

impl WriteBackKey {
    pub(super) fn new(key: &[u8], part: usize, accounts: SmallVec<[Account; 1]>, now_ns: u64) -> Self {
        let was = accounts.iter().map(Account::left).min().unwrap_or(0);
        Self {
            key: key.into(),
            part,
            // Over at once, so that whoever comes first sees to the rest.
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
        // Ordering: Relaxed, here and below. Hints; who follows an old one is told to come back a little early or late.
        self.retry_ns.load(Ordering::Relaxed)
    }

    pub(super) fn set_retry_ns(&self, at_ns: u64) {
        self.retry_ns.store(at_ns, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn reset_ns(&self) -> u64 {
        self.reset_ns.load(Ordering::Relaxed)
    }

    /// Sets the allowance to what the accounts say.
    pub(super) fn refresh(&self, ledger: &mut KeyLedger, now_ns: u64) {
        let target = ledger.accounts.iter().map(Account::left).min().unwrap_or(0);
        let (spent, left) = self.allowance.reset(ledger.was, |spent| target.saturating_sub(spent));
        ledger.was = left;
        ledger.enter(spent, now_ns);
    }

    /// The next request meets [`Spend::Over`], and is entered.
    pub(super) fn rest(&self, ledger: &mut KeyLedger) {
        ledger.is_new = true;
        self.allowance.set_until(0);
    }

    /// Kills it if it holds nothing that anybody waits for.
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

    /// What [`spend`](Self::spend) would come to.
    #[cfg(feature = "rules")]
    pub(super) fn look(&self, cost: u64, now_ns: u64) -> Spend {
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

    /// Of the limit that has the most.
    pub(super) fn pending(&self) -> u64 {
        self.accounts.iter().map(Account::pending).max().unwrap_or(0)
    }

    /// Whether the last call about one of its limits failed.
    pub(super) fn is_failing(&self) -> bool {
        self.accounts.iter().any(|account| account.fails)
    }

    pub(super) fn is_asked(&self) -> bool {
        self.accounts.iter().any(Account::is_asked)
    }
}
