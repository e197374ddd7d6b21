//! Measures the figures: in every round, each subject takes one turn on the same keys in the same order.
//!
//! * A [`Subject`](crate::subject::Subject) is monomorphised into its loop. Dynamic dispatch happens once per turn,
//!   never per check.
//! * A stream of keys is drawn before the turn, so reading the keys costs every subject the same 1/8 cache line per
//!   check.
//! * Rounds are interleaved (A B C, B C A, …), so a slow drift of the machine affects all subjects. Ratios are taken
//!   within a round, and the harness reports their median over all rounds and over the quiet ones: see [`Ratio`].
//! * If the scheduler keeps a ready thread waiting for more than 1 % of a turn, the harness measures that turn again,
//!   with at most five tries. The harness uses the least disturbed try, and reports its remaining disturbance. If
//!   there are more threads than processors, some threads always wait, so the harness uses the first try.

use crate::keys::{Key, for_each_chunk};
use crate::subject::{Contender, Expect, Recipe, Setup};
use crate::summary::{Ratio, Summary, float};
use crate::support::{XorShift, count};
use crate::turn::{Sample, least_disturbed, sample, transfer_ns};

/// The keys that a scenario checks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Draw {
    /// Known keys, drawn uniformly at random from the population. Each key was checked once before.
    Known,
    /// New keys. Stores are rebuilt for each turn, with room for all keys.
    New,
    /// New keys. Stores are kept from turn to turn, and have seen this many other keys before.
    NewAfter(u64),
}

/// All rounds of one subject in one scenario.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static str,
    pub(crate) samples: Vec<Sample>,
    /// Evicted keys with a debt, per check, if the subject counts them.
    pub(crate) evicted: Option<f64>,
}

impl Row {
    pub(crate) fn ns(&self) -> Summary {
        Summary::of(self.samples.iter().map(|sample| sample.ns))
    }

    pub(crate) fn mops(&self) -> Summary {
        Summary::of(self.samples.iter().map(|sample| sample.mops))
    }

    /// The mean share of time in which the scheduler ran something else.
    pub(crate) fn delayed(&self) -> f64 {
        self.samples.iter().map(|sample| sample.delayed).sum::<f64>() / float(count(self.samples.len()))
    }

    fn times(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.ns).collect()
    }

    /// Returns the ratio of this row's time to the time of a row of another table.
    pub(crate) fn ratio(&self, base: &Row) -> Summary {
        Summary::of(self.samples.iter().zip(&base.samples).map(|(own, base)| own.ns / base.ns))
    }
}

/// One table: the same load on several subjects.
pub(crate) struct Scenario {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// The number of distinct keys. For new keys, the number of keys that the stores must have room for.
    pub(crate) population: u64,
    pub(crate) draw: Draw,
    pub(crate) expect: Expect,
    pub(crate) threads: &'static [usize],
    /// Checks per thread and turn.
    pub(crate) checks: u64,
    pub(crate) rounds: usize,
    /// The rows that ratios refer to.
    pub(crate) floor: &'static str,
    pub(crate) governor: &'static str,
}

/// The rows of a scenario for one number of threads.
pub(crate) struct Table {
    pub(crate) scenario: &'static str,
    pub(crate) title: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) population: u64,
    pub(crate) draw: Draw,
    pub(crate) expect: Expect,
    pub(crate) threads: usize,
    pub(crate) floor: &'static str,
    pub(crate) governor: &'static str,
    /// The time that a cache line takes between two cores, measured before each round. `None` for one thread.
    pub(crate) transfer_ns: Option<Summary>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Returns the ratio of a row's time to the time of another row. Without the floor, the other row tells which rounds
    /// are quiet.
    pub(crate) fn ratio(&self, row: &Row, base: &str) -> Option<Ratio> {
        let base = self.row(base)?;
        let floor = self.row(self.floor).unwrap_or(base);
        Some(Ratio::of(&row.times(), &base.times(), &floor.times()))
    }
}

/// A subject in use, and its results in the current table.
struct Seat<'r, K> {
    recipe: &'r Recipe<K>,
    contender: Box<dyn Contender<K>>,
    samples: Vec<Sample>,
    checks: u64,
    evicted: Option<u64>,
}

/// The keys that each thread checks in a turn.
struct Streams<K> {
    keys: Vec<Vec<K>>,
    /// The number of the next new key.
    next: u64,
}

impl<K: Key> Streams<K> {
    fn new(threads: usize, len: u64, next: u64) -> Self {
        let stream = |_| (0..len).map(|_| K::numbered(0)).collect();
        Self { keys: (0..threads).map(stream).collect(), next }
    }

    /// Draws the keys of a round from the population. Each number of threads gets other keys, so that no table reuses
    /// the keys of the previous table.
    fn draw(&mut self, round: usize, population: u64) {
        let threads = self.keys.len();
        for (thread, stream) in self.keys.iter_mut().enumerate() {
            let mut rng = XorShift::new(count((round * 8 + threads) * 8 + thread));
            for slot in stream.iter_mut() {
                slot.renumber(rng.below(population));
            }
        }
    }

    fn renew(&mut self) {
        for stream in &mut self.keys {
            for (slot, number) in stream.iter_mut().zip(self.next..) {
                slot.renumber(number);
            }
            self.next += count(stream.len());
        }
    }
}

impl Scenario {
    fn setup(&self) -> Setup {
        Setup { population: self.population, expect: self.expect }
    }

    /// Builds every subject, checks every key once, and measures each number of threads.
    pub(crate) fn run<K: Key>(&self, recipes: &[Recipe<K>], done: &mut dyn FnMut(Table)) {
        let shown = match self.draw {
            Draw::Known => self.population,
            Draw::New => 0,
            Draw::NewAfter(others) => others,
        };
        let mut seats: Vec<Seat<'_, K>> = recipes
            .iter()
            .map(|recipe| {
                let contender = (recipe.build)(self.setup());
                Seat { recipe, contender, samples: Vec::new(), checks: 0, evicted: None }
            })
            .collect();
        for seat in &seats {
            for_each_chunk(shown, |keys: &[K]| {
                seat.contender.run(keys, count(keys.len()));
            });
            if let Expect::Denying(percent) = self.expect {
                for number in 0..self.population * percent / 100 {
                    seat.contender.run(&[K::numbered(number)], u64::from(self.expect.terms().burst));
                }
            }
        }
        let mut unseen = shown;
        for &threads in self.threads {
            // With many keys, a stream is at least as long as a turn, so that each key occurs at its natural rate. With
            // few keys, the stream fits in the second-level cache.
            let few = self.draw == Draw::Known && self.population <= 10_000;
            let len = if few { self.checks.min(1 << 14) } else { self.checks };
            let mut streams = Streams::new(threads, len, unseen);
            let mut transfers = Vec::new();
            for round in 0..=self.rounds {
                if threads > 1 {
                    transfers.push(transfer_ns());
                }
                if self.draw == Draw::Known {
                    streams.draw(round, self.population);
                }
                for turn in 0..seats.len() {
                    let index = (turn + round) % seats.len();
                    let sample = self.best_sample(&mut seats[index], &mut streams);
                    // Round 0 only warms up.
                    if round > 0 {
                        seats[index].samples.push(sample);
                    }
                }
            }
            unseen = streams.next;
            done(Table {
                scenario: self.id,
                title: self.title,
                kind: K::KIND,
                population: self.population,
                draw: self.draw,
                expect: self.expect,
                threads,
                floor: self.floor,
                governor: self.governor,
                transfer_ns: (!transfers.is_empty()).then(|| Summary::of(transfers)),
                rows: seats.iter_mut().map(Seat::row).collect(),
            });
        }
    }

    /// Returns the least disturbed sample of several tries.
    fn best_sample<K: Key>(&self, seat: &mut Seat<'_, K>, streams: &mut Streams<K>) -> Sample {
        least_disturbed(streams.keys.len(), || {
            match self.draw {
                Draw::Known => {}
                Draw::New => {
                    streams.renew();
                    seat.contender = (seat.recipe.build)(self.setup());
                }
                Draw::NewAfter(_) => streams.renew(),
            }
            let evicted = seat.contender.evicted();
            let sample = sample(&*seat.contender, &streams.keys, self.checks, self.expect);
            seat.checks += self.checks * count(streams.keys.len());
            if let Some((before, after)) = evicted.zip(seat.contender.evicted()) {
                seat.evicted = Some(seat.evicted.unwrap_or(0) + after - before);
            }
            sample
        })
    }
}

impl<K> Seat<'_, K> {
    /// Returns the results since the previous table.
    fn row(&mut self) -> Row {
        let checks = std::mem::take(&mut self.checks);
        Row {
            name: self.recipe.name,
            counts: self.recipe.counts,
            samples: std::mem::take(&mut self.samples),
            evicted: self.evicted.take().map(|evicted| float(evicted) / float(checks)),
        }
    }
}
