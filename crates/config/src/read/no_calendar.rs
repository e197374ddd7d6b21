//! Refuses calendars in builds without the feature `calendar`.

use tollgate::Calendar;

use super::checker::Checker;
use super::keys::MapFields;

impl Checker {
    /// Reports that this build has no calendars.
    pub(super) fn calendar(&mut self, fields: &MapFields<'_, '_>) -> Option<(&'static str, Calendar)> {
        let remedy = "build it with the feature `calendar`, or write unit, which counts in UTC";
        self.wrong(fields, "period", "this program was built without calendars", remedy);
        None
    }
}
