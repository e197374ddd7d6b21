//! The values that the `metrics` facade receives in one test.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Runs a test with its own recorder.
pub(crate) fn recorded(run: impl FnOnce(&dyn Fn() -> BTreeMap<String, f64>)) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || run(&|| values(&snapshotter)));
}

/// Returns the value of every metric, as `name{label=value,…}`. A snapshot resets counters to zero.
fn values(snapshotter: &Snapshotter) -> BTreeMap<String, f64> {
    let metrics = snapshotter.snapshot().into_vec().into_iter();
    metrics
        .map(|(key, _, _, value)| {
            let key = key.key();
            let labels: Vec<String> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let value = match value {
                DebugValue::Counter(count) => {
                    f64::from(u32::try_from(count).expect("the number fits in 32 bits"))
                }
                DebugValue::Gauge(value) => value.into_inner(),
                // The number of timed calls.
                DebugValue::Histogram(times) => {
                    f64::from(u32::try_from(times.len()).expect("the number fits in 32 bits"))
                }
            };
            (format!("{}{{{}}}", key.name(), labels.join(",")), value)
        })
        .collect()
}
