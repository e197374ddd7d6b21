//! Loom models of racing first uses.

use core::convert::Infallible;

use super::*;
use crate::base::sync::{Arc, AtomicU64, both, explore};

type Charge = fn(&Lazy<AtomicU64>) -> u64;

fn charge(lazy: &Lazy<AtomicU64>) -> u64 {
    let Ok(value) = lazy.get_or_make(|| Ok::<_, Infallible>(AtomicU64::new(0)));
    value.fetch_add(1, Ordering::Relaxed)
}

/// Stores the new value without an exchange, and leaks the other one.
fn charge_carelessly(lazy: &Lazy<AtomicU64>) -> u64 {
    let value = lazy.get().unwrap_or_else(|| {
        let new = Box::leak(Box::new(AtomicU64::new(0)));
        lazy.value.store(new, Ordering::Release);
        new
    });
    value.fetch_add(1, Ordering::Relaxed)
}

/// Asserts that two first charges count in one value.
fn two_first_charges(charge: Charge) {
    let lazy = Arc::new(Lazy::default());
    both(&lazy, charge, charge);
    let counted = lazy.get().map(|value| value.load(Ordering::Relaxed));
    assert!(counted == Some(2), "both charges count in one value: {counted:?}");
}

// G68
#[test]
fn racing_first_charges_share_one_value() {
    explore(3, || two_first_charges(charge));
}

// G68
#[test]
#[should_panic(expected = "both charges count")]
fn control_storing_a_value_loses_a_charge() {
    explore(3, || two_first_charges(charge_carelessly));
}
