//! What the process has resident, and whether it stays so.

/// Bytes, as the kernel says. `VmRSS` rather than `statm`, which counts in pages of a size that it does not say. `None` where
/// there is no such file.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1_024)
}

/// What the process had resident between rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) start: Option<u64>,
    /// The most in the first half: by then every scene has been on, with every size that it has.
    pub(crate) warm: u64,
    /// The most after that.
    pub(crate) later: u64,
    pub(crate) last: u64,
    later_looks: u32,
}

/// The second half may exceed the first by so much. The allocator keeps what threads have freed in arenas of its own, one for
/// several threads, and which of them a large table comes from is chance: short runs of single scenes had from 9 to 18 MiB. A leak
/// of 64 KiB a round is more than this after a thousand rounds.
const SLACK: u64 = 24 << 20;
/// Fewer looks than this at the second half say nothing.
const LOOKS: u32 = 40;

impl Memory {
    pub(crate) fn new() -> Self {
        let start = resident();
        Self { start, last: start.unwrap_or(0), ..Self::default() }
    }

    /// Looks, between two rounds.
    pub(crate) fn look(&mut self, is_first_half: bool) {
        self.take(resident().unwrap_or(0), is_first_half);
    }

    fn take(&mut self, bytes: u64, is_first_half: bool) {
        self.last = bytes;
        if is_first_half {
            self.warm = self.warm.max(bytes);
        } else {
            self.later = self.later.max(bytes);
            self.later_looks += 1;
        }
    }

    pub(crate) fn most(&self) -> u64 {
        self.warm.max(self.later)
    }

    /// How much more the second half had, if that is too much.
    pub(crate) fn leak(&self) -> Option<u64> {
        let more = self.later.saturating_sub(self.warm);
        (self.start.is_some() && self.later_looks >= LOOKS && more > SLACK).then_some(more)
    }
}

/// A process that keeps so much of every round, for the test of [`Memory::leak`].
#[cfg(test)]
pub(crate) fn leaking(a_round: u64) -> Memory {
    let mut memory = Memory { start: Some(0), ..Memory::default() };
    (0..1_000).for_each(|round| memory.take(round * a_round, round < 500));
    memory
}
