//! The events that meters count.

/// An event of a request that a rule applies to.
///
/// The first seven events are outcomes: each request has exactly one. The other events are marks, which a request may
/// have in addition.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Event {
    /// `allowed`: the request was admitted and counted.
    Allowed,
    /// `denied`: the request was denied.
    Denied,
    /// `shadow_denied`: a dry run would have denied the request.
    ShadowDenied,
    /// `unlimited`: the request was admitted without counting.
    Unlimited,
    /// `error_open`: the shared state was unavailable, and the request was admitted.
    ErrorOpen,
    /// `error_closed`: the shared state was unavailable, and the request was denied.
    ErrorClosed,
    /// `error_local`: the shared state was unavailable, and this process decided alone.
    ErrorLocal,
    /// Admitted units above four fifths of the limit.
    NearLimit,
    /// Units above the limit.
    OverLimit,
    /// Admitted units above the soft limit.
    SoftLimited,
    /// Units that were denied because their key is blocked, with those whose denial started the block.
    Blocked,
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
    pub(super) const MARKS: [Self; 4] = [Self::NearLimit, Self::OverLimit, Self::SoftLimited, Self::Blocked];
    pub(super) const COUNT: usize = Self::DECISIONS.len() + Self::MARKS.len();

    /// Returns the index of the event, in the order of declaration.
    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name: the label `decision` in `tollgate_requests_total`, or the mark's own name.
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
            Self::Blocked => "blocked",
        }
    }

    /// Whether the event is an outcome.
    #[must_use]
    pub const fn is_decision(self) -> bool {
        !matches!(self, Self::NearLimit | Self::OverLimit | Self::SoftLimited | Self::Blocked)
    }
}
