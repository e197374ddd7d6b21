//! What clients know about the usage of their keys, to compare it with the service.

use tollgate_testing::compact::Random;

/// Rules whose counters are exact: the key of the descriptor, the limit, and the rest of the rule. The limits are per year, so
/// that no unit comes back during a run.
pub(super) const RULES: [(&str, u64, &str); 5] = [
    ("fixed", 80, ""),
    ("gcra", 150, ", algorithm: gcra, store: keyed"),
    ("bucket", 60, ", algorithm: token-bucket"),
    ("sliding", 100, ", algorithm: sliding-window"),
    ("log", 40, ", algorithm: sliding-log"),
];

/// A rule that has another limit after each load, and often another store. No key uses it up.
pub(super) const MOVED: (&str, u64) = ("moved", 6_000_000);

/// The two commands with a limit, and the limit of each.
pub(super) const COMMANDS: [(&str, u64); 2] = [("CL.THROTTLE", 70), ("GCRA", 140)];

/// One key of one limit.
#[derive(Debug)]
pub(super) struct Account {
    /// The key of the descriptor, or the command.
    pub(super) kind: &'static str,
    pub(super) key: String,
    limit: u64,
    /// The usage at the start of the process.
    base: u64,
    /// The usage that was certainly in the state file at the last look.
    saved: u64,
    asked: u64,
    admitted: u64,
    denied: u64,
}

impl Account {
    pub(super) fn is_command(&self) -> bool {
        COMMANDS.iter().any(|(command, _)| self.kind == *command)
    }

    /// Returns a command for these units.
    pub(super) fn command(&self, units: u64) -> String {
        let Self { kind, key, limit, .. } = self;
        let burst = limit - 1;
        match *kind {
            "CL.THROTTLE" => format!("CL.THROTTLE {key} {burst} 1 86400 {units}\r\n"),
            "GCRA" => format!("GCRA {key} {burst} 1 86400 TOKENS {units}\r\n"),
            _ if units == 0 => format!("TOLLGATE.PEEK rl {kind} {key}\r\n"),
            _ => format!("TOLLGATE.CHECK rl HITS {units} {kind} {key}\r\n"),
        }
    }

    fn known(&self) -> u64 {
        self.base + self.admitted
    }

    fn unanswered(&self) -> u64 {
        self.asked - self.admitted - self.denied
    }
}

/// All keys.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) accounts: Vec<Account>,
    /// The numbers of writes of the state, and the usage of each key that was answered before.
    marks: Vec<(u64, Vec<u64>)>,
    pub(super) admitted: u64,
    pub(super) denied: u64,
    /// The admissions that a kill has lost, at most those since the last write.
    pub(super) lost: u64,
}

impl Ledger {
    /// Adds a new key of each limit.
    pub(super) fn open(&mut self, number: u64) {
        let limits = RULES.iter().map(|(kind, limit, _)| (*kind, *limit)).chain([MOVED]).chain(COMMANDS);
        self.accounts.extend(limits.map(|(kind, limit)| {
            let key = format!("{kind}{number}");
            Account { kind, key, limit, base: 0, saved: 0, asked: 0, admitted: 0, denied: 0 }
        }));
        self.marks.clear();
    }

    /// Returns a key: more often a new one.
    pub(super) fn pick(&self, random: &mut Random, is_rule: bool) -> usize {
        loop {
            let back = usize::try_from(random.skewed(self.accounts.len() as u64)).unwrap();
            let at = self.accounts.len() - 1 - back;
            if !is_rule || !self.accounts[at].is_command() {
                return at;
            }
        }
    }

    /// Notes units that a client asks for, one by one.
    pub(super) fn ask(&mut self, at: usize, units: u64) {
        self.accounts[at].asked += units;
    }

    /// Notes the answer for one unit.
    pub(super) fn tell(&mut self, at: usize, is_denied: bool) {
        let account = &mut self.accounts[at];
        if is_denied {
            account.denied += 1;
            self.denied += 1;
        } else {
            account.admitted += 1;
            self.admitted += 1;
            assert!(account.known() <= account.limit, "admitted beyond the limit: {account:?}");
        }
    }

    /// Notes that the service has not counted units, because it ended before it answered.
    pub(super) fn withdraw(&mut self, at: usize, units: u64) {
        self.accounts[at].asked -= units;
    }

    /// Notes the number of writes that have ended. The second write after a mark began after it.
    pub(super) fn mark(&mut self, writes: u64) {
        if let Some(at) = self.marks.iter().rposition(|(mark, _)| mark + 2 <= writes) {
            for (account, used) in self.accounts.iter_mut().zip(&self.marks[at].1) {
                account.saved = *used;
            }
            self.marks.drain(..=at);
        }
        self.marks.push((writes, self.accounts.iter().map(Account::known).collect()));
    }

    /// Compares the usage of a key with the answers. After a kill, what came since the last write may be lost.
    pub(super) fn compare(&mut self, at: usize, used: u64, was_killed: bool) -> Result<(), String> {
        let account = &mut self.accounts[at];
        let (known, unanswered) = (account.known(), account.unanswered());
        let (least, most) = match was_killed {
            true => (account.saved, (known + unanswered).min(account.limit)),
            false if account.denied > 0 => (account.limit, account.limit),
            false => (known, known),
        };
        if !(least..=most).contains(&used) || (unanswered > 0 && !was_killed) || known > account.limit {
            return Err(format!("{used} units are used, and expected are {least} to {most}: {account:?}"));
        }
        self.lost += known.saturating_sub(used);
        *account = Account {
            base: used,
            saved: used,
            asked: 0,
            admitted: 0,
            denied: 0,
            key: account.key.clone(),
            ..*account
        };
        Ok(())
    }
}
