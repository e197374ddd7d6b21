//! Adds the simulation of many processes to the library in a checkout. The published package has no build script, so
//! users never build the simulation.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=tollgate_simulation");
}
