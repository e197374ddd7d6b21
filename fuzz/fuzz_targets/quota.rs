//! The quota parser never panics, and reads back the text that a quota prints.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::Quota;

fuzz_target!(|text: &str| {
    match text.parse::<Quota>() {
        Ok(quota) => {
            let printed = quota.to_string();
            assert_eq!(printed.parse(), Ok(quota), "{text:?} was printed as {printed:?}");
            assert!(quota.limit() > 0 && quota.burst_size() > 0 && !quota.period().is_zero());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
