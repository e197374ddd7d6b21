//! The axis of time in a chart.

use std::time::Duration;

use tollgate_cli::output::axis::{DAY, HOUR, MINUTE, SECOND, TimeAxis, value_ticks};

const T: u64 = 1_498_780_801 * SECOND;

/// Returns times at equal distances, so that the axis leaves out no gap.
fn evenly(first: u64, last: u64) -> Vec<u64> {
    (0..=10).map(|n| first + (last - first) / 10 * n).chain([last]).collect()
}

fn labels(first: u64, last: u64) -> Vec<String> {
    TimeAxis::new(evenly(first, last), 270).ticks().into_iter().map(|(_, label)| label).collect()
}

#[test]
fn columns_are_round_and_few() {
    for length in [0, 1, 999, SECOND, 71 * SECOND, DAY, 173 * DAY, 30_000 * DAY] {
        let axis = TimeAxis::new(evenly(T, T + length), 270);
        assert!((1..=270).contains(&axis.columns), "{length}");
        assert_eq!(axis.column_of(T), 0);
        assert_eq!(axis.column_of(T + length) as u64, axis.columns - 1);
    }
    let day = TimeAxis::new(evenly(T, T + DAY), 270);
    assert_eq!(day.column(), Duration::from_secs(600));
    assert_eq!(TimeAxis::new(evenly(0, u64::MAX), 270).column_of(u64::MAX), 213);
}

#[test]
fn columns_not_finer_than_times() {
    let column = |times: Vec<u64>| TimeAxis::new(times, 270).column();
    let each = |step: u64| (0..60).map(|n| T + n * step).collect::<Vec<_>>();
    assert_eq!(column(each(SECOND)), Duration::from_secs(1));
    assert_eq!(column(each(SECOND / 10)), Duration::from_millis(100));
    // One time per minute gives columns of a minute.
    assert_eq!(column((0..60).map(|n| (T / MINUTE + n) * MINUTE).collect()), Duration::from_secs(60));
    // One time with a part of a second is enough.
    let mut finer = each(SECOND);
    finer.push(T + 500_000_000);
    assert_eq!(column(finer), Duration::from_millis(500));
}

#[test]
fn long_gaps_are_left_out() {
    // Three hours, two months, two hours, as two blocks of a log.
    let blocks = |gap: u64| {
        let block = |from: u64, hours: u64| (0..=hours * 60).map(move |n| from + n * MINUTE);
        let start = T / DAY * DAY;
        block(start, 3).chain(block(start + 3 * HOUR + gap, 2)).collect::<Vec<_>>()
    };
    let axis = TimeAxis::new(blocks(60 * DAY), 270);
    assert_eq!((axis.column(), axis.pieces.len()), (Duration::from_secs(120), 2));
    let [one, other] = &axis.pieces[..] else { unreachable!("the axis has two pieces") };
    assert_eq!((one.columns, other.first - one.columns, other.columns), (91, 3, 61));
    assert_eq!(axis.columns, 155);
    assert_eq!(axis.column_of(other.start), 94);
    assert!(axis.place(other.start) > 0.6 && axis.place(other.start) < 0.61);
    assert_eq!(TimeAxis::day(other), "29 Aug 2017");
    assert!((5..12).contains(&axis.ticks().len()), "{:?}", axis.ticks());
    // A short gap is not cut out.
    assert_eq!(TimeAxis::new(blocks(HOUR), 270).pieces.len(), 1);
    // If many gaps are alike, they are normal for the log.
    assert_eq!(TimeAxis::new(evenly(T, T + 100 * DAY), 270).pieces.len(), 1);
    for times in [vec![], vec![0, u64::MAX], vec![u64::MAX], vec![T, T, T + DAY]] {
        let axis = TimeAxis::new(times.clone(), 270);
        times.iter().for_each(|&at| assert!((axis.column_of(at) as u64) < axis.columns));
        let _ = (axis.ticks(), axis.caption());
    }
}

#[test]
fn tick_labels_show_what_differs() {
    assert_eq!(labels(T, T + DAY)[..2], ["30 Jun", "03:00"]);
    assert_eq!(labels(T, T + 60 * SECOND)[0], "00:00:10");
    assert_eq!(labels(T, T + 10 * DAY)[0], "1 Jul");
    assert_eq!(labels(T, T + 170 * DAY)[..2], ["Jul 2017", "Aug 2017"]);
    assert_eq!(labels(T, T + 4_000_000)[1], "00:00:01.0005");
    for length in [0, 1, SECOND, 71 * SECOND, DAY, 30 * DAY, 173 * DAY, 30_000 * DAY] {
        assert!((1..=12).contains(&labels(T, T + length).len()), "{length}");
    }
}

#[test]
fn values_are_round() {
    assert_eq!(value_ticks(7, 6), [0, 2, 4, 6]);
    assert_eq!(value_ticks(454, 3), [0, 200, 400]);
    assert_eq!(value_ticks(0, 3), [0]);
    assert!(value_ticks(u64::MAX, 3).len() <= 4);
}
