//! Runs rounds one after another, and collects their results.

use super::memory::Memory;
use super::{Fault, Notes, Round, SCENES, below, real_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tollgate_testing::compact::Random;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// The first round. To repeat a breach, use the number of its round.
    pub from: u64,
    pub length: Duration,
    pub threads: usize,
    /// The index in [`SCENES`]; `None` draws from all scenes at random.
    pub only: Option<usize>,
    /// The deliberate fault of the limiters, if any.
    pub fault: Option<Fault>,
}

/// The results of the rounds of one scene.
#[derive(Copy, Clone, Debug, Default)]
pub struct Tally {
    pub rounds: u64,
    pub checks: u64,
    pub intervals: u64,
    pub breaches: u64,
    pub took: Duration,
}

/// The place of a broken guarantee.
#[derive(Clone, Debug)]
pub struct Breach {
    pub scene: &'static str,
    pub round: u64,
    pub story: String,
}

/// The current state of the run.
#[derive(Clone, Debug)]
pub struct Report {
    pub tallies: Vec<Tally>,
    pub memory: Memory,
    pub took: Duration,
    pub breach: Option<Breach>,
}

impl Report {
    pub fn sum(&self) -> Tally {
        self.tallies.iter().fold(Tally::default(), |sum, tally| Tally {
            rounds: sum.rounds + tally.rounds,
            checks: sum.checks + tally.checks,
            intervals: sum.intervals + tally.intervals,
            breaches: sum.breaches + tally.breaches,
            took: sum.took + tally.took,
        })
    }
}

/// A round does more work until this time has passed; it finishes the work that it has begun.
const SHORTEST: Duration = Duration::from_millis(60);
const LONGEST: Duration = Duration::from_millis(240);
/// A round that takes longer than this hangs, because a round waits only for itself.
const HANGS: Duration = Duration::from_secs(120);

/// Runs rounds until the time is over or a round finds a breach. Calls `progress` after each round.
pub fn run(plan: &Plan, mut progress: impl FnMut(&Report)) -> Report {
    let start = real_now();
    let mut notes = Notes::new(plan.threads);
    let tallies = vec![Tally::default(); SCENES.len()];
    let mut report = Report { tallies, memory: Memory::new(), took: Duration::ZERO, breach: None };
    let mut number = plan.from;
    let watch = Watch::start(plan.seed);
    while report.breach.is_none() && report.took < plan.length {
        let scene = plan.only.unwrap_or_else(|| scene_of(plan.seed, number));
        watch.begin(scene, number);
        let tally = &mut report.tallies[scene];
        report.breach = one(plan, number, scene, &mut notes, tally);
        number += 1;
        report.took = start.elapsed();
        report.memory.look(report.took * 2 < plan.length);
        progress(&report);
    }
    if let (None, Some(more)) = (&report.breach, report.memory.leak()) {
        let story = format!(
            "memory grows: the second half used {more} bytes more than the maximum of the first half"
        );
        report.breach = Some(Breach { scene: "memory", round: number, story });
    }
    report
}

/// Returns the seed of a round, which determines every draw in it.
fn seed_of(seed: u64, round: u64) -> u64 {
    Random(seed ^ round.wrapping_mul(0xD6E8_FEB8_6659_FD93)).next()
}

/// In each sequence of this number of rounds, every scene runs once, in a random order.
fn scene_of(seed: u64, round: u64) -> usize {
    let scenes = SCENES.len() as u64;
    let mut random = Random(seed_of(!seed, round / scenes));
    let mut order: Vec<usize> = (0..SCENES.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, below(&mut random, last + 1));
    }
    order[usize::try_from(round % scenes).expect("few scenes")]
}

fn one(plan: &Plan, number: u64, scene: usize, notes: &mut Notes, tally: &mut Tally) -> Option<Breach> {
    let began = real_now();
    let mut random = Random(seed_of(plan.seed, number));
    let threads = plan.threads as u64;
    // Usually all threads; sometimes two, which meet more often.
    let threads = if random.below(4) == 0 { 2 + random.below(threads.max(2) - 1) } else { threads };
    let more = u64::try_from((LONGEST - SHORTEST).as_millis()).expect("short");
    let budget = SHORTEST + Duration::from_millis(random.below(more));
    // A repeated round searches longer, because a loaded machine may have cut the first run short.
    let budget = if number == plan.from && plan.from > 0 { budget * 10 } else { budget };
    let threads = usize::try_from(threads).expect("few threads");
    let mut round = Round::new(random.next(), threads, budget, notes, plan.fault);
    round.forget();
    let played = catch_unwind(AssertUnwindSafe(|| (SCENES[scene].play)(&mut round)));
    tally.rounds += 1;
    tally.checks += round.checks;
    tally.intervals += round.intervals;
    tally.took += began.elapsed();
    let story = match played {
        Ok(Ok(())) => return None,
        Ok(Err(story)) => story,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("see above");
            format!("panicked: {said}")
        }
    };
    tally.breaches += 1;
    Some(Breach { scene: SCENES[scene].name, round: number, story })
}

/// Starts a thread that ends the process if a round hangs. Calls are lock-free, so no round may hang.
struct Watch {
    began: Instant,
    /// The start of the round in milliseconds since the thread started, the round's number, and its scene.
    at_ms: Arc<AtomicU64>,
    round: Arc<AtomicU64>,
    scene: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Watch {
    fn start(seed: u64) -> Self {
        let word = || Arc::new(AtomicU64::new(0));
        let watch = Self {
            began: real_now(),
            at_ms: word(),
            round: word(),
            scene: word(),
            over: Arc::new(AtomicBool::new(false)),
        };
        let (at_ms, round, scene) =
            (Arc::clone(&watch.at_ms), Arc::clone(&watch.round), Arc::clone(&watch.scene));
        let (began, over) = (watch.began, Arc::clone(&watch.over));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(500));
                let since =
                    began.elapsed().saturating_sub(Duration::from_millis(at_ms.load(Ordering::Relaxed)));
                if since > HANGS && !over.load(Ordering::Relaxed) {
                    let scene = usize::try_from(scene.load(Ordering::Relaxed))
                        .map_or("?", |scene| SCENES[scene].name);
                    let round = round.load(Ordering::Relaxed);
                    eprintln!("BREACH: round {round} of seed {seed}, scene {scene}, hangs since {since:?}");
                    std::process::exit(1);
                }
            }
        });
        watch
    }

    fn begin(&self, scene: usize, round: u64) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at_ms.store(now, Ordering::Relaxed);
        self.round.store(round, Ordering::Relaxed);
        self.scene.store(scene as u64, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
