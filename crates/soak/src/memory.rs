//! Measures the resident memory of the process, and checks that it stays constant.

/// Returns the resident bytes from the kernel. It reads `VmRSS` and not `statm`, which counts pages of an unknown
/// size. It returns `None` if the file does not exist.
pub fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1_024)
}

/// The resident memory of the process between rounds.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub start: Option<u64>,
    /// The maximum of the first half. By then, every scene has run with each of its sizes.
    pub warm: u64,
    /// The maximum after that.
    pub later: u64,
    pub last: u64,
    later_looks: u32,
}

/// The second half may exceed the first by this amount. The allocator keeps freed memory of threads in separate
/// arenas, one for several threads. The arena of a large table is random: short runs of single scenes had 9 to 18
/// MiB. A leak of 64 KiB per round exceeds this amount after a thousand rounds.
const SLACK: u64 = 24 << 20;
/// With fewer samples than this in the second half, there is no result.
const LOOKS: u32 = 40;

impl Memory {
    pub fn new() -> Self {
        let start = resident();
        Self { start, last: start.unwrap_or(0), ..Self::default() }
    }

    /// Takes a sample between two rounds.
    pub fn look(&mut self, is_first_half: bool) {
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

    pub fn most(&self) -> u64 {
        self.warm.max(self.later)
    }

    /// Returns the growth in the second half, if it is too large.
    pub fn leak(&self) -> Option<u64> {
        let more = self.later.saturating_sub(self.warm);
        (self.start.is_some() && self.later_looks >= LOOKS && more > SLACK).then_some(more)
    }
}

/// A process that keeps this number of bytes from every round, for the test of [`Memory::leak`].
pub fn leaking(a_round: u64) -> Memory {
    let mut memory = Memory { start: Some(0), ..Memory::default() };
    (0..1_000).for_each(|round| memory.take(round * a_round, round < 500));
    memory
}
