//! The states of a key that moved to another server of a set.
//!
//! Before a call about such a key, the guard does the following:
//!
//! 1. *Find.* It asks the key's new server whether each limit has a state or a mark there. If so, nothing more is needed.
//! 2. *Read.* Otherwise it reads the states at the previous server: texts of bytes, each with the rest of its life.
//! 3. *Write.* It stores them at the new server. For each limit without a state and without a mark, one step of a script
//!    stores the mark and the state, both with the life of the state.
//!
//! *Nothing is lost.* Only a process that has carried out these steps charges the new server. So the first charge there
//! finds the copy, and the state at the new server contains every unit of the state at the previous server.
//!
//! *Nothing is reset.* Several processes can copy a key at the same time, and a copy can be late. A state that exists is
//! never replaced, so a copy that arrives after a charge changes nothing. A refund can remove a state earlier than it
//! would have expired at the previous server. Then the mark prevents a second copy, which would charge the refunded units
//! again. When the mark expires, the state at the previous server has expired too.
//!
//! *Every algorithm* is copied in the same way, because no step reads the texts. The times in them are the previous
//! server's.

use tollgate::Clock;
use tollgate_protocol::{Call, Error, Place, Question, Transport};

use super::health::GuardCount;
use super::{Guard, Passage};

impl Guard {
    /// Copies the states of a key from its previous server, if they are not at its server. Takes at most half of the
    /// time-out.
    ///
    /// # Errors
    /// Returns an error if the key's server does not answer.
    pub(super) async fn copy<T: Transport>(
        &self,
        transport: &T,
        call: &Call,
        before: usize,
    ) -> Result<(), Error> {
        if matches!(call.ask, Question::Refund { .. }) || call.plan.parts().is_empty() {
            return Ok(());
        }
        let began_ns = self.clock.now().as_nanos();
        let rest = || (self.settings.timeout / 2).saturating_sub(self.since(began_ns));
        if self
            .run_within(transport, call, (rest(), Passage::IfClosed), || transport.has_states(call))
            .await?
        {
            return Ok(());
        }
        let old = Call { place: Place { server: before, before: None }, ..call.clone() };
        let Ok(states) = self
            .run_within(transport, &old, (rest(), Passage::IfClosed), || transport.read_states(&old))
            .await
        else {
            self.servers[before].tallies.count(GuardCount::Uncopied);
            return Ok(());
        };
        self.run_within(transport, call, (rest(), Passage::IfClosed), || {
            transport.write_states(call, &states)
        })
        .await
    }
}
