//! The state of a key that moved to another server of a set.
//!
//! Before a call about such a key, the guard does the following:
//!
//! 1. It reads the key at its new server. If each limit has units there, the key was copied, and nothing more is needed.
//! 2. Otherwise it reads the key at the previous server.
//! 3. It posts the units that it finds to the new server, for each limit and window.
//!
//! *Copied once.* All processes post under one number, as one poster. The total of a poster is charged once in an epoch.
//! So a copy that is repeated charges nothing more.
//!
//! *Epochs.* For windows, the epoch is the window's index at the previous server. For GCRA, it is the theoretical arrival
//! time in microseconds. This time is the same in all readings of one state, and greater after each further charge.
//! Later readings find fewer units, because time pays for them, and charge nothing.
//!
//! *Rounding.* GCRA units are rounded up, so a copy can take less than one unit from the key.

use smallvec::SmallVec;

use super::Guard;
use super::health::Tally;
use crate::base::clock::Clock;
use crate::edge::redis::protocol::{
    Arithmetic, Call, Error, LimitState, Part, Place, Question, Reply, Transport,
};

/// The poster of all copies. Processes choose their numbers at random below 2^52, so another poster has this number with
/// a probability of 2^-52.
const POSTER: u64 = (1 << 52) - 1;

impl Guard {
    /// Copies the state of a key from its previous server, if it has none at its server. Takes at most half of the
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
        if matches!(call.ask, Question::Refund { .. }) {
            return Ok(());
        }
        let began_ns = self.clock.now().as_nanos();
        let rest = || {
            let taken_ns = self.clock.now().as_nanos().saturating_sub(began_ns);
            (self.settings.timeout / 2).saturating_sub(std::time::Duration::from_nanos(taken_ns))
        };
        let at = |server, ask| Call { ask, place: Place { server, before: None }, ..call.clone() };
        let server = call.place.server;
        let held = self.ask_within(transport, &at(server, Question::Peek { cost: 0 }), rest()).await?;
        if held.limits.iter().zip(call.plan.parts()).all(|(state, part)| is_complete(part, *state)) {
            return Ok(());
        }
        let Ok(old) = self.ask_within(transport, &at(before, Question::Peek { cost: 0 }), rest()).await
        else {
            self.servers[before].tallies.count(Tally::Uncopied);
            return Ok(());
        };
        for (index, part) in call.plan.parts().iter().enumerate() {
            let (Some(held), Some(state)) = (held.limits.get(index), old.limits.get(index)) else { continue };
            if is_complete(part, *held) {
                continue;
            }
            let Some(plan) = call.plan.single(index) else { continue };
            let plan = std::sync::Arc::new(plan);
            for ask in posts(part, *state, &old) {
                let post = Call { plan: std::sync::Arc::clone(&plan), ..at(server, ask) };
                let _ = self.ask_within(transport, &post, rest()).await?;
            }
        }
        Ok(())
    }
}

/// Returns whether a key has units in each count of a limit, so that no copy is missing.
fn is_complete(part: &Part, state: LimitState) -> bool {
    match (part.kind, state) {
        (_, LimitState::Pace { ahead }) => ahead > 0,
        (Arithmetic::Windows(windows), LimitState::Windows { previous, current, .. }) => {
            current > 0 && (previous > 0 || !windows.slides)
        }
        // The states of other algorithms cannot be posted.
        _ => true,
    }
}

/// Returns the posts that charge the units of a state.
fn posts(part: &Part, state: LimitState, reply: &Reply) -> SmallVec<[Question; 2]> {
    let counts: [(u64, u64); 2] = match (part.kind, state) {
        (Arithmetic::Pace(pace), LimitState::Pace { ahead }) => {
            let epoch = reply.now_us.saturating_add(ahead / pace.scale);
            [(epoch, ahead.div_ceil(pace.interval)), (0, 0)]
        }
        (Arithmetic::Windows(windows), LimitState::Windows { start_us, previous, current }) => {
            let epoch = start_us / windows.period_us;
            [(epoch.saturating_sub(1), previous), (epoch, current)]
        }
        _ => return SmallVec::new(),
    };
    let counted = counts.into_iter().filter(|(_, total)| *total > 0);
    counted.map(|(epoch, total)| Question::Post { process: POSTER, epoch, total }).collect()
}
