//! Errors that say why there is no such calendar.

use std::error::Error;
use std::fmt;

/// The error for a calendar that does not exist. The message contains the value and the valid ones.
#[derive(Clone, PartialEq, Eq)]
pub struct CalendarError(NoCalendar);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoCalendar {
    /// No zone has this name.
    Zone {
        name: String,
        nearest: Vec<String>,
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
    #[allow(dead_code, reason = "rules use it")]
    pub(crate) const fn is_of_zone(&self) -> bool {
        matches!(self.0, NoCalendar::Zone { .. })
    }

    /// Returns what is wrong.
    pub(crate) fn problem(&self) -> String {
        match &self.0 {
            NoCalendar::Zone { name, .. } => format!("no time zone is called {name:?}"),
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
    pub(crate) fn remedy(&self) -> String {
        match &self.0 {
            NoCalendar::Zone { nearest, .. } => match nearest.as_slice() {
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
