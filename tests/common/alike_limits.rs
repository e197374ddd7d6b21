//! The limits of the library for `alike`.

use crate::alike::{Entries, Kind};

/// Returns a limit of the library. That of a calendar has no text.
pub(crate) fn limit(kind: Kind, text: &str) -> tollgate::Limit {
    if !matches!(kind, Kind::Calendar | Kind::CalendarClasses) {
        return text.parse().unwrap();
    }
    #[cfg(feature = "calendar")]
    {
        let days = tollgate::Calendar::new("Europe/Berlin", tollgate::calendar::CalendarPeriod::Day).unwrap();
        tollgate::CalendarWindow::new(days, text.parse().unwrap()).into()
    }
    #[cfg(not(feature = "calendar"))]
    unreachable!("`cases` has no calendar")
}

/// Returns the class of a request, with its share in the descriptors.
pub(crate) fn class(rules: &str, entries: Entries) -> Option<tollgate::Class> {
    let (key, value) = entries[0];
    let share = rules.split(&format!("{value}: ")).nth(1)?.split('%').next()?.parse();
    (key == "class").then(|| tollgate::Class::percent(share.unwrap()))
}
