//! Rules at a time that the caller gives.

use super::Rules;
use super::answer::Answer;
use super::error::RulesError;
use super::load_report::LoadReport;
use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::edge::rules::Config;
use crate::edge::rules::matching::Descriptor;
use crate::limiter::At;

impl<C: Clock> At<'_, Rules<C>> {
    /// [`Rules::check`] at this time.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check(self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.check_n(domain, descriptors, 1)
    }

    /// [`Rules::check_n`] at this time.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_n(self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.limiter.decide_by_name(domain, descriptors, hits, CheckTime::given(self.now))
    }

    /// [`Rules::replace`] at this time: for requests whose times the caller gives. Usage is read as of this time, or as
    /// of the latest charge if that is later.
    ///
    /// # Errors
    /// Same as [`Rules::reload`].
    pub fn replace(self, configs: impl IntoIterator<Item = Config>) -> Result<LoadReport, RulesError> {
        self.limiter.load(|| CheckTime::given(self.now), |_| Ok(configs.into_iter().collect()))
    }
}
