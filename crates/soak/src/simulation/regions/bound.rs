//! What all regions together may exceed.

use tollgate_redis::RegionPolicy;

/// What all regions together may admit beyond the limit, for one key in one window.
///
/// To these bounds, add what the write-back mode admits beyond the limit in each region.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct RegionBound {
    pub(super) policy: RegionPolicy,
    pub(super) limit: u64,
    pub(super) regions: u64,
    /// The growth that is worth an exchange.
    pub(super) quantum: u64,
}

impl RegionBound {
    /// The bound while every exchange is answered, or some are lost. `unseen` is the sum of the units that the other
    /// regions admit while their totals are on the way to the last process that admits. It is `Σ λⱼ · (A + T)` over all
    /// regions except the slowest, with `A = 1.1 · E + D + 2 · T`, and `1.1 · E` more for each exchange in a row that is
    /// lost. To it, add what the processes of the last region do not know of their own region; see the proof.
    ///
    /// *Proof for any number of processes.* Take a unit that is admitted in excess of the limit. Its process spends
    /// from an answer of its region's server.
    ///
    /// 1. When the server answered, units were left. So the units that it knew were below the limit.
    /// 2. The server did not know at most these units: those of other regions in the time `A` before, and fewer than a
    ///    quantum of each other region, whose growth was not worth an exchange.
    /// 3. A process that admits units gets an answer in each time `T`. So the answer is at most this old. Meanwhile all
    ///    regions admit what they admit in `T`.
    /// 4. A process that was idle can hold an older answer, or none. It asks at its first request, and spends until the
    ///    answer arrives: once for each process, at most what it admits in `T`.
    /// 5. With several processes, those of the last region do not know what their own region admitted in `T` before.
    ///
    /// Together these are `L`, the quanta, `Σ λⱼ · (A + T)`, and twice what all regions admit in `T`. The bound of
    /// write-back mode is not added for each region, because 3 to 5 count what processes do not know of each other.
    ///
    /// *Proof of the bound of `Share`, whatever the rates.* Let `T` be the time at which all regions together reach the
    /// limit.
    ///
    /// 1. After `T`, a region may admit the rest of the share that it holds at `T`. These shares are parts of at most
    ///    `L` units, with parts whose sum is one. So all regions admit at most `L` units in this way.
    /// 2. The first renewal after `T` may use reports from before `T`. Again, all regions admit at most `L` units.
    /// 3. Each later renewal needs a report from every other region that was made after the renewal before it, and so
    ///    after `T`. It finds no units left.
    ///
    /// Parts are whole numbers. Regions with different knowledge divide different numbers, so each of the two steps
    /// rounds up by less than one unit for each region.
    pub(super) fn in_calm(&self, unseen: u64) -> u64 {
        let others = self.regions.saturating_sub(1);
        let unreported = others.saturating_mul(self.quantum.saturating_sub(1));
        let unseen = unseen.saturating_add(unreported).min(others.saturating_mul(self.limit));
        match self.policy {
            _ if others == 0 => 0,
            RegionPolicy::Share => {
                unseen.min(self.limit.saturating_mul(2).saturating_add(self.regions.saturating_mul(2)))
            }
            _ => unseen,
        }
    }

    /// The bound in the window in which a partition begins. `seen` is the number of units that every region knew at
    /// that time, and `unseen` is the number of admitted units that not every region knew.
    ///
    /// *Proof for `Share`.* Let `S` be the units that a region knows at the cut, and `u` the units that it admitted since
    /// its last renewal. It may still admit `w · (L - (S - u)) - u`, which is at most `w · (L - S)`. All parts `w` have the
    /// sum one. So all regions together admit at most what `L` leaves of the units that they know.
    pub(super) fn at_cut(&self, seen: u64, unseen: u64) -> u64 {
        let others = self.regions.saturating_sub(1);
        match self.policy {
            RegionPolicy::Share => self.in_calm(unseen.saturating_add(self.regions)),
            _ => others.saturating_mul(self.limit.saturating_sub(seen)).max(self.in_calm(unseen)),
        }
    }

    /// The bound in each window that lies inside a partition. `unseen` is 0, except for a sliding window that also counts
    /// the window in which the partition began: then it is the number for [`at_cut`](Self::at_cut).
    pub(super) fn in_partition(&self, unseen: u64) -> u64 {
        match self.policy {
            RegionPolicy::Share => unseen,
            _ => self.regions.saturating_sub(1).saturating_mul(self.limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the example in the guide: 3 regions, 6,000 a minute, 50 a second in each region, 6.15 s.
    #[test]
    fn bounds_match_the_documented_example() {
        let known = RegionBound { policy: RegionPolicy::AsLastKnown, limit: 6_000, regions: 3, quantum: 1 };
        let share = RegionBound { policy: RegionPolicy::Share, ..known };
        assert_eq!((known.in_calm(615), share.in_calm(615)), (615, 615));
        assert_eq!((known.in_calm(u64::MAX), share.in_calm(u64::MAX)), (12_000, 12_000));
        let ten = RegionBound { regions: 10, ..share };
        assert_eq!(ten.in_calm(u64::MAX), 12_020, "two limits, and the rounding");
        assert_eq!((known.in_partition(0), share.in_partition(0)), (12_000, 0));
        assert_eq!((known.at_cut(3_000, 500), share.at_cut(3_000, 500)), (6_000, 503));
        assert_eq!(known.at_cut(9_000, 500), 500, "the limit was reached before");
        let alone = RegionBound { regions: 1, ..known };
        assert_eq!((alone.in_calm(100), alone.in_partition(0)), (0, 0));
    }
}
