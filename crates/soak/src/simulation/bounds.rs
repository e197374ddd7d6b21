//! The bounds in the docs of the modes, for one run.

use std::time::Duration;

use tollgate::LimitKind;
use tollgate_redis::internals::over_at_most;

use super::load::Arrival;
use super::setup::{Mode, Setup};

/// The bound in the mode's docs.
pub(super) fn bound(setup: &Setup) -> u64 {
    let (limit, nodes) = (setup.limit.most(), u64::from(setup.nodes));
    let partitioned = if setup.faults.partition_ms.is_some() { nodes / 2 } else { 0 };
    let interval = setup.interval + Duration::from_nanos(3 * setup.network.way_ns());
    let partition = setup.faults.partition_ms.map_or(0, |(from, until)| until.saturating_sub(from));
    let partition = Duration::from_millis(partition).as_secs_f64() * partitioned as f64 / nodes as f64;
    let refilled = |seconds: f64| match setup.limit.kind() {
        LimitKind::Gcra => {
            let quota = setup.limit.quota();
            let rate = quota.limit() as f64 / quota.period().as_secs_f64();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of units")]
            let units = (rate * seconds).ceil() as u64;
            units
        }
        _ => 0,
    };
    match setup.mode {
        // A unit lives at most this long.
        Mode::Lease | Mode::Awaited => refilled(setup.interval.as_secs_f64()),
        Mode::WriteBack => {
            let alone = partitioned * (limit / nodes).max(1);
            over_at_most(limit, nodes)
                .saturating_add(refilled(interval.as_secs_f64() + partition))
                .saturating_add(alone)
        }
    }
}

/// The largest number of these times, which are in order, in any interval of this length.
pub(super) fn most_within(times: impl Iterator<Item = u64>, interval: u64) -> u64 {
    let times: Vec<u64> = times.collect();
    let (mut first, mut most) = (0, 0);
    for (last, at) in times.iter().enumerate() {
        while times[first] + interval < *at {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most as u64
}

/// The bound on stranded units; see [`run`](super::run).
pub(super) fn stranded(setup: &Setup, load: &[Arrival]) -> u64 {
    if setup.mode == Mode::WriteBack {
        return 0;
    }
    let (life, window) = (setup.interval_ns(), setup.window_ns().max(1));
    let mut each = vec![Vec::new(); setup.nodes as usize];
    for one in load {
        each[one.node].push(*one);
    }
    let of = |load: &Vec<Arrival>| {
        // Six times the one-way delay is the longest time of two round trips.
        let use_of = most_within(load.iter().map(|one| one.at), life / 4 + 6 * setup.network.way_ns())
            .min(setup.max_block);
        let mut falls = std::collections::HashMap::<u64, u64>::new();
        for pair in load.windows(2) {
            if let [before, after] = pair {
                *falls.entry(before.at / window).or_insert(1) += u64::from(after.at - before.at > life);
            }
        }
        use_of * falls.into_values().max().unwrap_or(1)
    };
    each.iter().map(of).sum()
}
