//! Tests of the soak itself, and of shared limits in virtual time.

mod leases;
mod regions;
mod scenes;
mod simulation;
