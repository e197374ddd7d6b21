//! What each rule has decided about one request.

use smallvec::SmallVec;
use tollgate::telemetry::Event;
use tollgate::{DecidedBy, Decision, Outcome, SharedDecision};

use crate::engine::state::Part;

/// The rules of one request. Most requests have one or two.
pub(in crate::engine) type Few<T> = SmallVec<[T; 2]>;

/// What made the decision of a shared rule, and the store's mark of it.
#[derive(Copy, Clone, Debug)]
pub(super) struct SharedOrigin {
    pub(super) by: DecidedBy,
    mark: u64,
}

impl SharedOrigin {
    pub(super) const fn of(decided: &SharedDecision) -> Self {
        Self { by: decided.by(), mark: decided.mark() }
    }

    /// Whether the decision's numbers describe the limit. They do if the server decided, and not if this process
    /// decided from the part that it holds.
    pub(super) const fn knows_remaining(self) -> bool {
        matches!(self.by, DecidedBy::Server)
    }

    /// Returns the event that is recorded instead of the decision.
    pub(super) const fn event(self) -> Option<Event> {
        self.by.event()
    }
}

/// A rule's decision about a request.
#[derive(Copy, Clone, Debug)]
pub(in crate::engine) struct Decided {
    pub(in crate::engine) rule: u32,
    pub(in crate::engine) descriptor: u32,
    pub(in crate::engine) part: Part,
    pub(super) soft: bool,
    /// `None` for a rule without a limit, and for a shared rule that was not asked.
    pub(in crate::engine) decision: Option<Decision>,
    /// Which side decided, for a shared rule.
    pub(super) by: Option<SharedOrigin>,
}

impl Decided {
    /// The entry of a rule that denies, and that this process counts.
    #[inline]
    pub(super) const fn new(rule: u32, descriptor: u32, decision: Decision) -> Self {
        Self { decision: Some(decision), ..Self::not_yet(rule, descriptor, Part::Enforced) }
    }

    /// The entry of a rule that has not decided yet.
    #[inline]
    pub(super) const fn not_yet(rule: u32, descriptor: u32, part: Part) -> Self {
        Self { rule, descriptor, part, soft: false, decision: None, by: None }
    }

    #[inline]
    pub(super) fn outcome(&self) -> Outcome {
        self.decision.as_ref().map_or(Outcome::Allowed, Decision::outcome)
    }

    /// Returns the answer of a shared rule.
    pub(super) fn shared(&self) -> Option<SharedDecision> {
        let SharedOrigin { by, mark } = self.by?;
        Some(SharedDecision::new(self.decision?, by).with_mark(mark))
    }

    /// Whether a shared rule was decided without its server.
    pub(super) fn is_without_server(&self) -> bool {
        self.by.and_then(SharedOrigin::event).is_some()
    }
}
