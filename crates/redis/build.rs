//! In a checkout, makes public what the simulation of many processes and the tests use of the library. The published
//! package has no build script, so users never see these names.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=tollgate_simulation");
}
