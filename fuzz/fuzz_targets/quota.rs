//! The parsers of quotas and limits never panic, and read back the texts that quotas and limits print.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::{Limit, Quota};

// G38, G43, G87
fuzz_target!(|text: &str| {
    match text.parse::<Quota>() {
        Ok(quota) => {
            let printed = quota.to_string();
            assert_eq!(printed.parse(), Ok(quota), "{text:?} was printed as {printed:?}");
            assert!(quota.limit() > 0 && quota.burst_size() > 0 && !quota.period().is_zero());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match text.parse::<Limit>() {
        Ok(limit) => {
            let printed = limit.to_string();
            assert_eq!(printed.parse(), Ok(limit), "{text:?} was printed as {printed:?}");
            assert!(limit.most() > 0 && !limit.kind().name().is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
