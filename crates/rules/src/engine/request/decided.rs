//! What each rule has decided about one request.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;
use tollgate::telemetry::Event;
use tollgate::{DecidedBy, Decision, Outcome, SharedDecision};

use crate::descriptor::spare::{self, Spare};
use crate::engine::state::Role;

/// Things of which most requests have one or two.
pub(in crate::engine) type ShortList<T> = SmallVec<[T; 2]>;

/// The decisions of one request. An answer is moved often, so they have memory of their own, and the list is one pointer. The thread
/// uses that memory again for its next answer.
#[derive(Debug)]
pub(in crate::engine) struct DecidedList(Option<OwnList>);

/// A list behind one pointer.
#[allow(
    clippy::box_collection,
    reason = "an answer moves the pointer, and its thread keeps both blocks of memory"
)]
type OwnList = Box<Vec<Decided>>;

/// The longest list whose memory is used again. It takes 7 KB.
const LONGEST_SPARE: usize = 64;

/// The list of an answer that has no memory yet.
static EMPTY: Vec<Decided> = Vec::new();

thread_local! {
    /// The memory of an answer that this thread has dropped.
    static SPARE: Spare<OwnList> = const { Spare::new(None) };
}

impl DecidedList {
    /// Creates an empty list.
    #[inline]
    pub(in crate::engine) fn new() -> Self {
        Self(spare::take(&SPARE))
    }
}

impl Drop for DecidedList {
    #[inline]
    fn drop(&mut self) {
        spare::leave(&SPARE, self.0.take(), |list| {
            let is_short = list.capacity() <= LONGEST_SPARE;
            if is_short {
                list.clear();
            }
            is_short
        });
    }
}

impl Deref for DecidedList {
    type Target = Vec<Decided>;

    #[inline(always)]
    fn deref(&self) -> &Vec<Decided> {
        self.0.as_deref().unwrap_or(&EMPTY)
    }
}

impl DerefMut for DecidedList {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Vec<Decided> {
        self.0.get_or_insert_with(new_list)
    }
}

#[cold]
fn new_list() -> OwnList {
    Box::default()
}

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
    pub(in crate::engine) role: Role,
    pub(super) soft: bool,
    /// `None` for a rule without a limit, and for a shared rule that was not asked.
    pub(in crate::engine) decision: Option<Decision>,
    /// Which side decided, for a shared rule.
    pub(super) by: Option<SharedOrigin>,
}

impl Decided {
    /// The entry of a rule that has not decided yet.
    #[inline]
    pub(super) const fn not_yet(rule: u32, descriptor: u32, role: Role) -> Self {
        Self { rule, descriptor, role, soft: false, decision: None, by: None }
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
