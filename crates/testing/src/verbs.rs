//! Implements the charging methods of `Subject` for limiters of many keys. This is a macro because the trait that the
//! stores share is private.

#[macro_export]
macro_rules! keyed_verbs {
    () => {
        fn take_up_to_at(&self, key: u32, most: u64, now: u64) -> tollgate::Decision {
            self.take_up_to_at(&key, most, tollgate::Timestamp::from_nanos(now))
        }

        fn charge_unchecked_at(&self, key: u32, cost: u64, now: u64) -> tollgate::Decision {
            self.charge_unchecked_at(&key, cost, tollgate::Timestamp::from_nanos(now))
        }

        fn reserve_at(&self, key: u32, cost: u64, wait: std::time::Duration, now: u64) -> tollgate::Decision {
            self.reserve_at(&key, cost, wait, tollgate::Timestamp::from_nanos(now))
        }

        fn refund_n_at(&self, key: u32, charge: &tollgate::Decision, units: u64, now: u64) -> u64 {
            self.refund_n_at(&key, charge, units, tollgate::Timestamp::from_nanos(now))
        }

        fn settle_at(
            &self,
            key: u32,
            charge: &tollgate::Decision,
            actual: u64,
            now: u64,
        ) -> tollgate::Decision {
            self.settle_at(&key, charge, actual, tollgate::Timestamp::from_nanos(now))
        }
    };
}
