//! Reads the calendar of a limit: `period`, `time_zone` and `starts`.

use tollgate::Calendar;
use tollgate::calendar::{CalendarPeriod, Weekday};

use super::checker::Checker;
use super::keys::{MapFields, MapKind};
use super::node::FileNode;
use super::settings::one_of;

/// The periods by their names, and the keys of `starts` that apply to each.
const PERIODS: &[(&str, &[&str])] = &[
    ("day", &["hour"]),
    ("week", &["weekday", "hour"]),
    ("month", &["day", "hour"]),
    ("year", &["month", "day", "hour"]),
];

impl Checker {
    /// Reads the calendar of a limit, and the name of its period. `None` for an error, which is reported.
    pub(super) fn calendar(&mut self, fields: &MapFields<'_, '_>) -> Option<(&'static str, Calendar)> {
        let before = self.problems.len();
        let remedy =
            "remove one of them: a unit of month is 30 days, and a period of month is one of the calendar";
        self.reject(fields, ["unit", "every"], |key| format!("{key} cannot be used with period"), remedy);
        let keys = self.word(fields, "period", "period", PERIODS);
        let zone = match fields.has("time_zone") {
            true => self.read(fields, "time_zone", FileNode::text),
            false => Some("UTC"),
        };
        let keys = keys?;
        let (name, _) = *PERIODS.iter().find(|(_, of)| *of == keys)?;
        let (month, day, weekday, hour) = self.start(fields, name, keys);
        if self.problems.len() > before {
            return None;
        }
        let period = match name {
            "day" => CalendarPeriod::Day,
            "week" => CalendarPeriod::Week { from: weekday },
            "month" => CalendarPeriod::Month { day },
            _ => CalendarPeriod::Year { month, day },
        };
        match Calendar::at_hour(zone?, period, hour) {
            Ok(calendar) => Some((name, calendar)),
            Err(error) => {
                // The search for the nearest zones takes long.
                if self.problems.skip() {
                    return None;
                }
                let key = if error.is_of_zone() { "time_zone" } else { "starts" };
                self.wrong(fields, key, error.problem(), error.remedy());
                None
            }
        }
    }

    /// Reads the month, the day, the weekday and the hour at which a period begins. A period uses those that apply to it.
    fn start(&mut self, fields: &MapFields<'_, '_>, period: &str, keys: &[&str]) -> (u8, u8, Weekday, u8) {
        let path = fields.path.key("starts");
        let starts = fields.get("starts").and_then(|node| self.fields(node, MapKind::STARTS, &path));
        let Some(starts) = starts else { return (1, 1, Weekday::Monday, 0) };
        let others = MapKind::STARTS.ours().filter(|key| !keys.contains(key));
        let message = |key: &str| format!("{key} does not apply to the period {period}");
        self.reject(&starts, others, message, &format!("remove it; this period has {}", one_of(keys)));
        let month = self.number(&starts, "month", 1, 12).unwrap_or(1);
        let day = self.number(&starts, "day", 1, 31).unwrap_or(1);
        let weekday = self.word(&starts, "weekday", "weekday", &Weekday::ALL).unwrap_or(Weekday::Monday);
        (month, day, weekday, self.number(&starts, "hour", 0, 23).unwrap_or(0))
    }
}
