//! Rules on the model of a server decide each kind of limit that a server counts as rules in this process do. Two processes
//! take turns. (A real server has its own time.)

use super::*;
use crate::alike::{self, ALL, Entries, Kind, Seen, Surface, cases};
use crate::alike_rules::Process;

const SETTINGS: [&str; 2] = [
    "store: redis, mode: atomic, timeout: 20s",
    "store: redis, mode: atomic, timeout: 20s, charging: count-first",
];

struct Both {
    kind: Kind,
    rules: String,
    processes: [Process; 2],
}

impl Surface for Both {
    fn ask(&mut self, now: u64, entries: Entries, units: u64) -> Seen {
        self.processes.rotate_left(1);
        self.processes[0].ask(now, entries, units)
    }

    fn load(&mut self, limit: &str, rules: &str) -> bool {
        let is_same = self.rules == rules;
        rules.clone_into(&mut self.rules);
        self.processes.iter_mut().for_each(|process| assert!(process.load(limit, rules)));
        is_same || !matches!(self.kind, Kind::Times | Kind::OtherAlgorithm)
    }

    fn restart(&mut self) {
        self.processes.iter_mut().for_each(Surface::restart);
    }
}

/// Whether a server counts this kind of limit. A rule that names a store of its own is not shared.
fn is_shared(kind: Kind) -> bool {
    !matches!(kind, Kind::Distinct | Kind::CompactBlock | Kind::Holds | Kind::InProgress)
}

// G126, G132, G133
#[test]
fn shared_rules_decide_each_kind_alike() {
    for case in cases(cfg!(feature = "calendar")) {
        if !is_shared(case.kind) {
            let text = alike::text(case.rules, SETTINGS[0]);
            assert!(Config::from_yaml("alike.yaml", &text).is_err(), "{:?}", case.kind);
            continue;
        }
        // The steps of prefixes charge several rules, of which some deny.
        let settings = &SETTINGS[..if case.kind == Kind::Prefixes { 1 } else { 2 }];
        for (between, settings) in
            ALL.into_iter().flat_map(|between| settings.iter().map(move |of| (between, of)))
        {
            let clock = alike::clock();
            let server = in_process(&clock).1;
            let processes = [(); 2].map(|()| {
                let server = server.clone();
                Process::new(case, settings, clock.clone(), move |builder| builder.shared(server.clone()))
            });
            case.play(&mut Both { kind: case.kind, rules: case.rules.to_owned(), processes }, between);
        }
    }
}
