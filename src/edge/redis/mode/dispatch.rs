//! What the modes that decide in this process have in common: how their questions are carried, whom an answer wakes, how they are made.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::edge::redis::guard::Guard;
use crate::edge::redis::protocol::Error;
use crate::edge::redis::protocol::{BlockingTransport, Call, Reply, Transport};

/// Waiters of keys share these.
const BELLS: usize = 256;

type Carried = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>;

/// Asks what a call says, under a limiter's guard: whatever the transport, so that limiters are one type.
pub(crate) type Carry = Box<dyn Fn(Call) -> Carried + Send + Sync>;

/// The same in the thread that asks.
pub(crate) type BlockingCarry = Box<dyn Fn(&Call) -> Result<Reply, Error> + Send + Sync>;

pub(crate) fn by<T: Transport>(transport: T, guard: &Arc<Guard>) -> Carry {
    let (transport, guard) = (Arc::new(transport), Arc::clone(guard));
    Box::new(move |call| {
        let (transport, guard) = (Arc::clone(&transport), Arc::clone(&guard));
        Box::pin(async move { guard.ask(&*transport, &call).await })
    })
}

pub(crate) fn by_blocking<T: BlockingTransport>(transport: T, guard: &Arc<Guard>) -> BlockingCarry {
    let guard = Arc::clone(guard);
    Box::new(move |call| guard.ask_blocking(&transport, call))
}

/// What tasks wait by for an answer about a key. Keys share them, so whoever wakes looks again.
pub(crate) struct Bells {
    bells: Box<[Arc<Notify>]>,
    hasher: ahash::RandomState,
}

impl Bells {
    pub(crate) fn new() -> Self {
        let bells = (0..BELLS).map(|_| Arc::default()).collect();
        Self { bells, hasher: ahash::RandomState::new() }
    }

    pub(crate) fn of(&self, key: &[u8]) -> &Arc<Notify> {
        let hash = self.hasher.hash_one(key);
        #[expect(clippy::cast_possible_truncation, reason = "less than there are bells")]
        let index = (hash % BELLS as u64) as usize;
        &self.bells[index]
    }

    /// Wakes all who wait.
    pub(crate) fn ring(&self) {
        for bell in &self.bells {
            bell.notify_waiters();
        }
    }
}

/// Makes `build` of a mode's builder: with the clock that is the default, which is made with the limiter, and with another.
macro_rules! builds {
    (async $builder:ident => $limiter:ident by $make:ident) => {
        $crate::edge::redis::mode::dispatch::builds! {
            $builder => $limiter by $make of $crate::edge::redis::Client, $crate::edge::redis::InProcess;
            "Makes the limiter. Its task is spawned on the present tokio runtime.",
            "There is no runtime, or a quota is beyond what the shared state can reckon with."
        }
    };
    (blocking $builder:ident => $limiter:ident by $make:ident) => {
        $crate::edge::redis::mode::dispatch::builds! {
            $builder => $limiter by $make of $crate::edge::redis::BlockingClient, $crate::edge::redis::BlockingInProcess;
            "Makes the limiter, and starts its thread.",
            "The thread cannot be started, or a quota is beyond what the shared state can reckon with."
        }
    };
    ($builder:ident => $limiter:ident by $make:ident of $($client:ty),+; $what:literal, $errors:literal) => {
        $(
            impl $builder<$client> {
                #[doc = $what]
                ///
                /// # Errors
                #[doc = $errors]
                pub fn build(self) -> Result<$limiter, $crate::edge::redis::BuildError> {
                    $make(self.clock($crate::base::clock::QuantaClock::new()))
                }
            }

            impl<C: $crate::base::clock::Clock + Send + Sync + 'static> $builder<$client, C> {
                #[doc = $what]
                ///
                /// # Errors
                #[doc = $errors]
                pub fn build(self) -> Result<$limiter<C>, $crate::edge::redis::BuildError> {
                    $make(self)
                }
            }
        )+
    };
}

pub(crate) use builds;
