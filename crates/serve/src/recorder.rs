//! Records metrics, and writes them in Prometheus's text format.
//!
//! A series with labels lasts as long as something holds it, and is written once more after that. So a load drops the series
//! of the rules that it removes, however many loads there are, and those of rules in force stay while they are idle.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed};

use metrics::atomics::AtomicU64;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Label, Metadata, SharedString,
    Unit,
};

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

/// The upper bounds of the buckets of durations, in seconds. A gateway waits 20 ms.
const BUCKETS: [f64; 11] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.015, 0.02];

/// The number of series of a name from which those that nothing holds are searched for.
const ROOM: usize = 64;

/// Records metrics. Clones share the series.
#[derive(Clone, Debug)]
pub struct Recorder {
    families: Arc<Mutex<BTreeMap<String, Family>>>,
    /// The least number of series of a name at which it is searched.
    room: usize,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { families: Arc::default(), room: ROOM }
    }
}

/// The series of one name.
#[derive(Debug, Default)]
struct Family {
    help: SharedString,
    kind: &'static str,
    /// By labels.
    series: BTreeMap<String, Arc<Series>>,
    /// The number of series at which those that nothing holds are dropped, so that no page is needed for it.
    room: usize,
}

/// The value of a counter or of a gauge, or the sum of a histogram and its buckets. The last bucket has no bound.
///
/// Ordering: Relaxed everywhere. The values publish no other data.
#[derive(Debug, Default)]
struct Series {
    value: AtomicU64,
    buckets: Box<[AtomicU64]>,
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.value.fetch_add(value, Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.value.fetch_max(value, Relaxed);
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        GaugeFn::increment(&self.value, value);
    }

    fn decrement(&self, value: f64) {
        GaugeFn::decrement(&self.value, value);
    }

    fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Relaxed);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        if let Some(count) = self.buckets.get(BUCKETS.partition_point(|bound| *bound < value)) {
            count.fetch_add(1, Relaxed);
        }
        GaugeFn::increment(&self.value, value);
    }
}

impl Family {
    /// Drops the series that nothing else holds, except those without labels, which are few.
    fn drop_unheld(&mut self, room: usize) {
        self.series.retain(|labels, series| labels.is_empty() || Arc::strong_count(series) > 1);
        self.room = room.max(self.series.len().saturating_mul(2));
    }
}

impl Recorder {
    /// Creates a recorder that keeps what nothing holds, until it is written.
    pub fn of_one_page() -> Self {
        Self { room: usize::MAX, ..Self::default() }
    }

    /// Adds all series to a page, and drops those that nothing holds any more.
    pub fn write(&self, page: &mut String) {
        for (name, family) in &mut *self.families() {
            if family.series.is_empty() {
                continue;
            }
            if !family.help.is_empty() {
                let _ = writeln!(page, "# HELP {name} {}", family.help);
            }
            let _ = writeln!(page, "# TYPE {name} {}", family.kind);
            for (labels, series) in &family.series {
                let value = series.value.load(Relaxed);
                match family.kind {
                    COUNTER => line(page, name, labels, value),
                    GAUGE => line(page, name, labels, f64::from_bits(value)),
                    _ => {
                        let counts = series.buckets.iter().map(|count| count.load(Relaxed));
                        histogram(
                            page,
                            name,
                            labels,
                            counts.zip(BUCKETS.map(Some).into_iter().chain([None])),
                            f64::from_bits(value),
                        );
                    }
                }
            }
            family.drop_unheld(self.room);
        }
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn series(&self, key: &Key, kind: &'static str) -> Arc<Series> {
        let label = |label: &Label| format!("{}=\"{}\"", label.key(), escaped(label.value()));
        let labels = key.labels().map(label).collect::<Vec<_>>().join(",");
        let mut families = self.families();
        let family = families.entry(key.name().to_owned()).or_default();
        family.kind = kind;
        if family.series.len() >= family.room {
            family.drop_unheld(self.room);
        }
        let buckets = if kind == HISTOGRAM { BUCKETS.len() + 1 } else { 0 };
        let new =
            || Series { buckets: (0..buckets).map(|_| AtomicU64::new(0)).collect(), ..Series::default() };
        Arc::clone(family.series.entry(labels).or_insert_with(|| Arc::new(new())))
    }

    fn describe(&self, name: &KeyName, help: SharedString) {
        self.families().entry(name.as_str().to_owned()).or_default().help = help;
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.series(key, COUNTER).into()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.series(key, GAUGE).into()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.series(key, HISTOGRAM).into()
    }
}

fn line(page: &mut String, name: &str, labels: &str, value: impl Display) {
    let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
    let _ = writeln!(page, "{name}{open}{labels}{close} {value}");
}

/// Adds the counts of buckets, each with its bound, and the sum. The last bucket has no bound.
pub fn histogram(
    page: &mut String,
    name: &str,
    labels: &str,
    buckets: impl Iterator<Item = (u64, Option<f64>)>,
    sum: f64,
) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut below = 0;
    for (count, bound) in buckets {
        below += count;
        let bound = bound.map_or("+Inf".to_owned(), |bound| bound.to_string());
        let _ = writeln!(page, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
    }
    line(page, &format!("{name}_sum"), labels, sum);
    line(page, &format!("{name}_count"), labels, below);
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
