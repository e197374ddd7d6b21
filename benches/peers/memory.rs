//! Bytes per key, from resident memory. Each subject runs in its own process, so that neither reused allocations nor
//! other subjects change the figure.

use std::process::Command;

use crate::keys::{Key, for_each_chunk};
use crate::subject::{Expect, Recipe, Setup};
use crate::summary::float;
use crate::support::{count, option};

const CHILD: &str = "--resident-of";

/// The resident memory of one subject after its first check of each key.
pub(crate) struct Footprint {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) population: u64,
    pub(crate) bytes_per_key: f64,
}

/// Returns the resident bytes of this process, or `None` if the system does not report them.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = status.lines().find(|line| line.starts_with("Rss:"))?;
    line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Measures every recipe with each number of keys.
pub(crate) fn measure<K: Key>(recipes: &[Recipe<K>], populations: &[u64]) -> Vec<Footprint> {
    let mut footprints = Vec::new();
    for recipe in recipes {
        for &population in populations {
            if let Some(bytes) = ask_child::<K>(recipe.name, population) {
                let bytes_per_key = float(bytes) / float(population);
                footprints.push(Footprint { name: recipe.name, kind: K::KIND, population, bytes_per_key });
            }
        }
    }
    footprints
}

fn ask_child<K: Key>(name: &str, population: u64) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new(program)
        .args([CHILD, name, "--kind", K::KIND, "--population", &population.to_string()])
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// In a child process: measures the requested subject and prints the result. Returns whether this process is such a
/// child for `K`.
pub(crate) fn answer_parent<K: Key>(recipes: &[Recipe<K>]) -> bool {
    let Some(name) = option(CHILD) else { return false };
    if option("--kind").as_deref() != Some(K::KIND) {
        return false;
    }
    let population = option("--population").and_then(|text| text.parse().ok()).expect("--population NUMBER");
    let recipe =
        recipes.iter().find(|recipe| recipe.name == name).expect("the parent asks for a known subject");
    let sight = |population| {
        let contender = (recipe.build)(Setup { population, expect: Expect::Allowed });
        for_each_chunk(population, |keys: &[K]| {
            assert_eq!(contender.run(keys, count(keys.len())), count(keys.len()));
        });
        contender
    };
    // Measures a small population first, so that code and the harness's own buffers are resident already.
    drop(sight(4096));
    let before = resident();
    let _contender = sight(population);
    if let (Some(before), Some(after)) = (before, resident()) {
        println!("{}", after.saturating_sub(before));
    }
    true
}
