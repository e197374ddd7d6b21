//! Tests of the soak itself: each scene finds limiters that are broken on purpose, and the memory check finds a leak.
//! A round of each scene finds nothing wrong with a correct limiter.

use std::time::Duration;
use tollgate_soak::memory::leaking;
use tollgate_soak::run::{Plan, Report, run};
use tollgate_soak::{Fault, SCENES};

fn soak(scene: usize, fault: Option<Fault>, length: Duration) -> Report {
    run(&Plan { seed: 7, from: 0, length, threads: 4, only: Some(scene), fault }, |_| ())
}

/// Far more time than the soak needs. It ends at the first breach.
const PATIENCE: Duration = Duration::from_secs(60);

fn finds(fault: Fault) {
    for (place, scene) in SCENES.iter().enumerate().filter(|(_, scene)| scene.finds.contains(&fault)) {
        let report = soak(place, Some(fault), PATIENCE);
        let breach =
            report.breach.unwrap_or_else(|| panic!("{} does not find the fault {fault:?}", scene.name));
        assert_eq!(breach.scene, scene.name, "{}", breach.story);
    }
}

#[test]
fn every_scene_finds_over_admission() {
    finds(Fault::Admits);
}

#[test]
fn exact_scenes_find_charged_denials() {
    finds(Fault::Denies);
}

#[test]
fn correct_limiters_pass_every_scene() {
    for (place, scene) in SCENES.iter().enumerate() {
        let report = soak(place, None, Duration::from_nanos(1));
        assert!(report.breach.is_none(), "{:?}", report.breach);
        assert!(report.sum().rounds == 1, "{scene:?}");
    }
}

#[test]
fn memory_leak_is_found() {
    assert!(leaking(0).leak().is_none() && leaking(100 << 10).leak().is_some());
}
