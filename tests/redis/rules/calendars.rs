//! Rules that count in periods of a calendar, shared by processes.

use std::time::Duration;

use tollgate::rules::Config;
use tollgate::{ManualClock, Timestamp};

use super::{admitted, ask, file, in_process, process, run};

/// 2026-11-27 12:00 in UTC, and the end of its period in Berlin, 2026-12-15 at 06:00.
const NOW: u64 = 1_795_780_800;
const END: u64 = 1_797_310_800;

const MONTHLY: &str = "  - key: a\n    rate_limit: { period: month, time_zone: Europe/Berlin, starts: { day: 15, hour: 6 }, requests_per_unit: 5 }\n";

#[test]
fn processes_share_a_month() {
    for charging in ["all-or-nothing", "count-first", "count-denials"] {
        let clock = ManualClock::new(Timestamp::from_secs(NOW));
        let server = in_process(&clock).0;
        let text = file(&format!("store: redis, mode: atomic, charging: {charging}"), &[MONTHLY.to_owned()]);
        let processes = [process(server.clone(), &clock, &text), process(server.clone(), &clock, &text)];
        let both = || {
            run(async {
                let first = admitted(&processes[0], &[("a", "x")], 3).await;
                first + admitted(&processes[1], &[("a", "x")], 4).await
            })
        };
        assert_eq!(both(), 5, "{charging}");
        let answer = run(ask(&processes[0], &[("a", "x")]));
        let to_end = Some(Duration::from_secs(END - NOW));
        assert_eq!(
            (answer.retry_after(), answer.strictest(0).and_then(|limit| limit.reset_after())),
            (to_end, to_end),
            "{charging}"
        );
        clock.set(Timestamp::from_secs(END));
        assert_eq!(both(), 5, "{charging}");
    }
}

#[test]
fn other_modes_are_refused() {
    for mode in ["lease", "write-back"] {
        let text = file(&format!("store: redis, mode: {mode}"), &[MONTHLY.to_owned()]);
        let told = Config::from_yaml("test.yaml", &text).unwrap_err().to_string();
        assert!(
            told.contains("does not support calendar-window") && told.contains("or mode: atomic"),
            "{told}"
        );
    }
}
