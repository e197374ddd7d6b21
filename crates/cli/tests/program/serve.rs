//! `tollgate serve` and `tollgate ctl`: the program passes its command line to the service, which has its own tests.

use crate::support::Place;

#[test]
fn service_and_operators_are_commands_of_the_program() {
    let place = Place::with_test_features();
    let checked = place.run("serve --check").ok();
    assert!(checked.stdout.contains("the flags can be used"), "{}", checked.stdout);
    place.run("serve --bogus").fails(2, &["--bogus", "Usage: tollgate serve"]);
    place
        .run("ctl inspect shop user=alice --at unix:/nowhere/admin")
        .fails(1, &["/nowhere/admin", "--admin"]);
}
