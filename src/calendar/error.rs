//! Errors that say why there is no such calendar.

use std::error::Error;
use std::fmt;

use jiff::tz::TimeZoneDatabase;

/// The error for a calendar that does not exist. The message contains the value and the valid ones.
#[derive(Clone, PartialEq, Eq)]
pub struct CalendarError(NoCalendar);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoCalendar {
    /// No zone has this name.
    Zone {
        name: String,
    },
    Range {
        what: &'static str,
        got: u8,
        least: u8,
        most: u8,
    },
    /// The process has too many calendars.
    TooMany,
}

impl CalendarError {
    /// Whether there is no such time zone.
    #[doc(hidden)]
    pub const fn is_of_zone(&self) -> bool {
        matches!(self.0, NoCalendar::Zone { .. })
    }

    /// Returns what is wrong.
    #[doc(hidden)]
    pub fn problem(&self) -> String {
        match &self.0 {
            NoCalendar::Zone { name } => format!("no time zone is called {name:?}"),
            NoCalendar::Range { what, got, least, .. } if got < least => {
                format!("the {what} {got} is less than {least}")
            }
            NoCalendar::Range { what, got, most, .. } => format!("the {what} {got} is more than {most}"),
            NoCalendar::TooMany => {
                "this process has 1,000 other calendars, and keeps their tables".to_owned()
            }
        }
    }

    /// Returns how to correct it.
    #[doc(hidden)]
    pub fn remedy(&self) -> String {
        match &self.0 {
            NoCalendar::Zone { name } => match nearest(name).as_slice() {
                [] => "use a name of the IANA database, such as Europe/Berlin or UTC".to_owned(),
                [one] => format!("did you mean {one}?"),
                [all @ .., last] => format!("did you mean {} or {last}?", all.join(", ")),
            },
            NoCalendar::Range { least, most, .. } => format!("use a whole number from {least} to {most}"),
            NoCalendar::TooMany => "use fewer different zones, periods and starts, or restart it".to_owned(),
        }
    }
}

impl From<NoCalendar> for CalendarError {
    fn from(reason: NoCalendar) -> Self {
        Self(reason)
    }
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem(), self.remedy())
    }
}

crate::base::debug_shows_message!(CalendarError);

impl Error for CalendarError {}

/// Returns up to three names of zones that the author probably meant, the most similar one first.
fn nearest(zone: &str) -> Vec<String> {
    // A long text is not a misspelt name, and the comparison would take long.
    if zone.len() > 64 {
        return Vec::new();
    }
    let zone = zone.to_ascii_lowercase();
    let zones = TimeZoneDatabase::bundled();
    let likeness = |name: &str| {
        let name = name.to_ascii_lowercase();
        // Someone may write the city alone.
        let city = name.rsplit('/').next().unwrap_or_default();
        strsim::jaro_winkler(&zone, &name).max(strsim::jaro_winkler(&zone, city))
    };
    let names = zones.available().map(|name| (likeness(name.as_str()), name.as_str().to_owned()));
    let mut alike: Vec<(f64, String)> = names.filter(|&(likeness, _)| likeness > 0.8).collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    alike.into_iter().take(3).map(|(_, name)| name).collect()
}
