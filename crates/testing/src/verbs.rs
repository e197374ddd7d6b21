//! Implements the charging methods of `Subject` for limiters of many keys. This is a macro because the trait that the
//! stores share is private.

#[macro_export]
macro_rules! keyed_verbs {
    () => {
        fn take_at(&self, key: u32, most: u64, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).take(&key, most)
        }

        fn charge_unchecked_at(&self, key: u32, cost: u64, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).charge_unchecked(&key, cost)
        }

        fn reserve_at(&self, key: u32, cost: u64, wait: std::time::Duration, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).reserve(&key, cost, wait)
        }

        fn refund_n_at(&self, key: u32, charge: &tollgate::Decision, units: u64, now: u64) -> u64 {
            self.at(tollgate::Timestamp::from_nanos(now)).refund_n(&key, charge, units)
        }

        fn check_oversized_at(&self, key: u32, cost: u64, now: u64) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).check_oversized(&key, cost)
        }

        fn give_back_at(&self, key: u32, units: u64, now: u64) -> u64 {
            self.at(tollgate::Timestamp::from_nanos(now)).give_back(&key, units)
        }

        fn settle_at(
            &self,
            key: u32,
            charge: &tollgate::Decision,
            actual: u64,
            now: u64,
        ) -> tollgate::Decision {
            self.at(tollgate::Timestamp::from_nanos(now)).settle(&key, charge, actual)
        }
    };
}
