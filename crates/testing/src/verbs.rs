//! What the limiters of `Subject` have in common.

/// Implements the methods of `Subject` that charge and peek. This is a macro because the methods of a direct limiter have no
/// key.
macro_rules! verbs {
    ($key:ident => $($argument:expr)?) => {
        fn check_at(&self, $key: u32, cost: u64, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).check_n($($argument,)? cost)
        }

        fn peek_at(&self, $key: u32, cost: u64, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).peek_n($($argument,)? cost)
        }

        fn take_at(&self, $key: u32, most: u64, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).take($($argument,)? most)
        }

        fn charge_unchecked_at(&self, $key: u32, cost: u64, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).charge_unchecked($($argument,)? cost)
        }

        fn reserve_at(&self, $key: u32, cost: u64, wait: std::time::Duration, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).reserve($($argument,)? cost, wait)
        }

        fn refund_n_at(&self, $key: u32, charge: &tollgate::Decision, units: u64, now: u64) -> u64 {
            self.at(tollgate::Timestamp::from_nanos(now)).refund_n($($argument,)? charge, units)
        }

        fn check_oversized_at(&self, $key: u32, cost: u64, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).check_oversized($($argument,)? cost)
        }

        fn give_back_at(&self, $key: u32, units: u64, now: u64) -> u64 {
            self.at(tollgate::Timestamp::from_nanos(now)).give_back($($argument,)? units)
        }

        fn settle_at(
            &self,
            $key: u32,
            charge: &tollgate::Decision,
            actual: u64,
            now: u64,
        ) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).settle($($argument,)? charge, actual)
        }
    };
}
