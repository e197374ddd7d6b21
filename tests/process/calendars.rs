//! A process has a maximum number of calendars, because their tables stay in memory.

use tollgate::Calendar;
use tollgate::calendar::CalendarPeriod;

use super::alone;

// G125
#[test]
fn process_has_a_thousand_calendars() {
    let _alone = alone();
    let days =
        (0..24).flat_map(|hour| (1..=12).flat_map(move |month| (1..=28).map(move |day| (month, day, hour))));
    let make = |(month, day, hour)| Calendar::at_hour("UTC", CalendarPeriod::Year { month, day }, hour);
    let made: Vec<Calendar> = days.clone().map_while(|start| make(start).ok()).collect();
    assert_eq!(made.len(), 1_000);
    let error = make((12, 28, 23)).unwrap_err().to_string();
    assert!(error.contains("1,000 other calendars"), "{error}");
    for (calendar, start) in made.into_iter().zip(days) {
        assert_eq!(make(start).unwrap(), calendar, "a calendar that exists is found");
    }
}
