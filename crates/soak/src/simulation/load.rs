//! The times and nodes of simulated requests.

use tollgate_testing::accuracy::random::Random;

use super::SECOND;

/// In the `OnOff` pattern, a node is active in one of this many seconds.
const PHASES: u64 = 4;

/// How requests are distributed over the nodes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pattern {
    /// At random, equally over all nodes.
    Even,
    /// The n-th node gets 1/n as many requests as the first.
    Zipf,
    /// Three quarters of each window's requests come at its start, equally over all nodes; the rest come later.
    Burst,
    /// In each second on a quarter of the nodes, in turns.
    OnOff,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Self; 4] = [Self::Even, Self::Zipf, Self::Burst, Self::OnOff];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Zipf => "Zipf",
            Self::Burst => "cold burst",
            Self::OnOff => "on and off",
        }
    }
}

/// A request that reaches a node.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Arrival {
    pub at: u64,
    pub node: usize,
}

/// Returns all requests, in order.
pub fn requests(
    pattern: Pattern,
    nodes: u32,
    per_second: u64,
    seconds: u64,
    window_seconds: u64,
    random: &mut Random,
) -> Vec<Arrival> {
    let nodes_u64 = u64::from(nodes.max(1));
    let mut weights: Vec<f64> = (1..=nodes.max(1)).map(|rank| 1.0 / f64::from(rank)).collect();
    let mut sum = 0.0;
    for weight in &mut weights {
        sum += *weight;
        *weight = sum;
    }
    let node = |second: u64, random: &mut Random| -> u64 {
        match pattern {
            Pattern::Even | Pattern::Burst => random.below(nodes_u64),
            Pattern::Zipf => {
                let point = random.unit() * sum;
                weights.partition_point(|weight| *weight <= point).min(weights.len() - 1) as u64
            }
            Pattern::OnOff => {
                let on = nodes_u64.div_ceil(PHASES);
                (second % PHASES * on + random.below(on)) % nodes_u64
            }
        }
    };
    let mut all = Vec::new();
    for second in 0..seconds {
        let (mut count, from) = (per_second, second * SECOND);
        if pattern == Pattern::Burst {
            count /= 4;
            if second % window_seconds.max(1) == 0 {
                let burst = per_second * window_seconds * 3 / 4;
                // Slightly after the start of the window, so that no node's clock shows the previous window.
                all.extend((0..burst).map(|at| (from + SECOND / 100, at % nodes_u64)));
            }
        }
        for _ in 0..count {
            let at = from + random.below(SECOND);
            all.push((at, node(second, random)));
        }
    }
    all.sort_unstable();
    all.into_iter().map(|(at, node)| Arrival { at, node: usize::try_from(node).unwrap_or(0) }).collect()
}
