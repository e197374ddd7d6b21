//! Rules decide each kind of limit as the library and the service do, in each store that has it.

use crate::alike::{ALL, Kind, cases, clock};
use crate::alike_rules::Process;

// G65, G117, G118, G119, G120, G124, G126, G127, G130, G135, G142
#[test]
fn rules_decide_each_kind_alike() {
    for case in cases(cfg!(feature = "calendar")) {
        for between in ALL {
            case.play(&mut Process::new(case, "", clock(), |builder| builder), between);
        }
    }
}

// G65, G127, G130, G135, G142
#[test]
fn rules_in_keyed_stores_decide_each_kind_alike() {
    for case in cases(cfg!(feature = "calendar")).filter(|case| case.kind != Kind::CompactBlock) {
        let case = case.with("requests_per_unit", "store: keyed, requests_per_unit");
        for between in ALL {
            case.play(&mut Process::new(&case, "", clock(), |builder| builder), between);
        }
    }
}
