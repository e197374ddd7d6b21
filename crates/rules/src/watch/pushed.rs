//! Rules that the program pushes itself.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tollgate::{Clock, DefaultClock, IntoClock};

use super::loader::{Followed, Loader};
use crate::engine::{Rules, RulesBuilder, RulesError};
use crate::source::Fetched;

/// The maximum length of a pushed text, in bytes: 256 MiB.
const MAX_PUSHED: usize = 256 << 20;

/// Puts rules in force that the program itself receives, for example over a stream of a control plane. Created by
/// [`RulesBuilder::pushed`]. A text in JSON may be a list with the rules of several domains.
///
/// Checks, reports, [`Rules::last_error`] and the last good copy are those of a polled [`Source`](crate::Source).
/// Use a `Source` if the rules can be fetched at any time.
///
/// # Examples
/// ```
/// use tollgate_rules::{Fetched, Format, RuleText, Rules, Version};
///
/// let mut pushed = Rules::builder().pushed("control plane", None);
/// assert_eq!(pushed.rules().reloads().successes, 0); // no rules yet
///
/// let text = r#"[{ "domain": "shop", "descriptors": [{ "key": "user", "rate_limit": { "unit": "day", "requests_per_unit": 9 } }] }]"#;
/// let loaded = pushed.push(Ok(Fetched::Text(RuleText::new(Version::tag("1"), Format::Json, text))));
/// assert!(matches!(loaded, Some(Ok(_))));
/// // The rules stay while the control plane is away.
/// let away = pushed.push(Err("the connection is lost".into()));
/// assert!(matches!(away, Some(Err(_))));
/// assert_eq!(pushed.rules().reloads().rules, 1);
/// # Ok::<(), tollgate_rules::RulesError>(())
/// ```
pub struct Pushed<C = DefaultClock> {
    rules: Arc<Rules<C>>,
    loader: Loader,
}

impl<C: IntoClock> RulesBuilder<C> {
    /// Creates rules without any domain, into which the program pushes texts. `name` is the name of their origin in
    /// messages and in the copy, and must not contain passwords. `copy` is the file of the last good copy; see
    /// [`Follow::copy`](crate::Follow::copy).
    ///
    /// Until the first load, [`ReloadCounts::successes`](crate::telemetry::ReloadCounts::successes) is 0, and no domain
    /// has a limit.
    #[must_use]
    pub fn pushed(self, name: &str, copy: Option<PathBuf>) -> Pushed<C::Clock> {
        Pushed { rules: Arc::new(self.build()), loader: Loader::new(name.to_owned(), copy, MAX_PUSHED) }
    }
}

impl<C: Clock> Pushed<C> {
    /// Returns the rules.
    #[must_use]
    pub const fn rules(&self) -> &Arc<Rules<C>> {
        &self.rules
    }

    /// Loads the last good copy. `why` is the reason for messages and for [`Rules::last_error`], which has it until a
    /// text is pushed. `None` if there is no copy. Blocks the thread while it reads the file.
    ///
    /// # Errors
    /// If the copy cannot be used. Its rules are then not in force.
    pub fn load_copy(&mut self, why: &str) -> Result<Option<Followed>, RulesError> {
        self.loader.load_copy(&self.rules, &RulesError::new(why.to_owned()))
    }

    /// Takes what the origin gave, as a source's [`fetch`](crate::Source::fetch) would return it. An error means
    /// that it is away. Blocks the thread while it loads, and while it writes the copy. A text of up to 256 MiB is
    /// loaded.
    ///
    /// Returns `None` if the text is that of the rules in force already, and if an error is the same as before. Returns
    /// the error if the text cannot be used or the origin is away; the rules in force then stay.
    pub fn push(
        &mut self,
        fetched: Result<Fetched, Box<dyn Error + Send + Sync>>,
    ) -> Option<Result<Followed, RulesError>> {
        self.loader.take(&self.rules, fetched)
    }
}

impl<C> fmt::Debug for Pushed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pushed").field("name", &self.loader.name).finish_non_exhaustive()
    }
}
