//! What meters count.

/// What there is to count about a request under a rule.
///
/// The first seven are what became of it: one of them for each request. The others are marks besides.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Event {
    /// `allowed`: it went through, counted.
    Allowed,
    /// `denied`.
    Denied,
    /// `shadow_denied`: a dry run would have denied it.
    ShadowDenied,
    /// `unlimited`: it went through uncounted.
    Unlimited,
    /// `error_open`: it could not be decided, and went through.
    ErrorOpen,
    /// `error_closed`: it could not be decided, and was refused.
    ErrorClosed,
    /// `error_local`: it could not be decided where it should be, and was decided here.
    ErrorLocal,
    /// Units that went through above four fifths of the limit.
    NearLimit,
    /// Units above the limit.
    OverLimit,
    /// Units that went through above the soft limit.
    SoftLimited,
}

impl Event {
    pub(super) const DECISIONS: [Self; 7] = [
        Self::Allowed,
        Self::Denied,
        Self::ShadowDenied,
        Self::Unlimited,
        Self::ErrorOpen,
        Self::ErrorClosed,
        Self::ErrorLocal,
    ];
    pub(super) const MARKS: [Self; 3] = [Self::NearLimit, Self::OverLimit, Self::SoftLimited];
    pub(super) const COUNT: usize = Self::DECISIONS.len() + Self::MARKS.len();

    /// Its place in an array of all, in the order of their declaration.
    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// Its name: the label `decision` in `tollgate_requests_total`, or the mark's own name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::Unlimited => "unlimited",
            Self::ErrorOpen => "error_open",
            Self::ErrorClosed => "error_closed",
            Self::ErrorLocal => "error_local",
            Self::NearLimit => "near_limit",
            Self::OverLimit => "over_limit",
            Self::SoftLimited => "soft_limited",
        }
    }

    /// Whether it says what became of a request.
    #[must_use]
    pub const fn is_decision(self) -> bool {
        !matches!(self, Self::NearLimit | Self::OverLimit | Self::SoftLimited)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_a_place_of_its_own() {
        let all = Event::DECISIONS.into_iter().chain(Event::MARKS);
        assert!(all.clone().map(Event::index).eq(0..Event::COUNT));
        assert!(all.clone().map(Event::is_decision).eq((0..Event::COUNT).map(|index| index < 7)));
        let names: std::collections::HashSet<&str> = all.map(Event::as_str).collect();
        assert_eq!(names.len(), Event::COUNT);
    }
}
