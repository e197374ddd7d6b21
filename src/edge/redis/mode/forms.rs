//! The public methods that lease and write-back limiters share: how they are built, and how threads call them.

/// Defines `build` for a mode's builder: once with the default clock, which is created with the limiter, and once with
/// a given clock.
macro_rules! builds {
    ($builder:ident => $limiter:ident of $($client:ty),+; |$this:ident| $made:expr; $what:literal, $errors:literal) => {
        $(
            impl $builder<$client> {
                #[doc = $what]
                ///
                /// # Errors
                #[doc = $errors]
                pub fn build(self) -> Result<$limiter, $crate::edge::redis::BuildError> {
                    self.clock($crate::base::clock::QuantaClock::new()).build()
                }
            }

            impl<C: $crate::base::clock::Clock + Send + Sync + 'static> $builder<$client, C> {
                #[doc = $what]
                ///
                /// # Errors
                #[doc = $errors]
                pub fn build(self) -> Result<$limiter<C>, $crate::edge::redis::BuildError> {
                    let $this = self;
                    $made
                }
            }
        )+
    };
}

/// Defines `build` for the async limiter.
macro_rules! builds_here {
    ($builder:ident => $limiter:ident by $make:ident) => {
        $crate::edge::redis::mode::forms::builds! {
            $builder => $limiter of $crate::edge::redis::Client, $crate::edge::redis::InProcess;
            |this| $make($crate::edge::redis::client::Tasks::here()?, this);
            "Builds the limiter. Its task is spawned on the current tokio runtime.",
            "Returns an error if the caller is not in a tokio runtime, or if the server's script cannot count a quota exactly."
        }
    };
}

/// Defines `build` for the limiter for threads, and the methods that this limiter has in both modes.
macro_rules! blocking {
    ($builder:ident => $limiter:ident by $make:ident, $stats:ident) => {
        $crate::edge::redis::mode::forms::builds! {
            $builder => $limiter of $crate::edge::redis::BlockingClient, $crate::edge::redis::BlockingInProcess;
            |this| {
                let $builder { builder, options, clock } = this;
                let (builder, thread) = $crate::edge::redis::client::on_thread(builder);
                let tasks = $crate::edge::redis::client::Tasks::on(&thread)?;
                let inner = $make(tasks, $builder { builder, options: options.on_thread(), clock })?;
                Ok(OnThread { inner, thread })
            };
            "Builds the limiter. Its task runs on the client's thread.",
            "Returns an error if the thread cannot start, or if the server's script cannot count a quota exactly."
        }

        impl<C: Clock + Send + Sync + 'static> $limiter<C> {
            /// Checks one unit of a key in this process, and charges it if it is admitted. Never waits.
            #[inline]
            pub fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
                self.inner.check(key)
            }

            /// Like [`check`](Self::check), for `cost` units: charges all of them or none.
            #[inline]
            pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
                self.inner.check_n(key, cost)
            }

            /// Like [`check`](Self::check), but waits for the server if this process cannot decide. Prefer this method
            /// where a request can wait for a round trip.
            pub fn check_wait<K: Key + ?Sized>(&self, key: &K) -> Answer {
                self.check_n_wait(key, 1)
            }

            /// Like [`check_wait`](Self::check_wait), for `cost` units: charges all of them or none.
            pub fn check_n_wait<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
                self.inner.check_wait(key, cost, &self.thread)
            }

            /// Returns the counts since the limiter was built. O(keys).
            #[must_use]
            pub fn stats(&self) -> $stats {
                self.inner.stats()
            }

            /// Returns the health of the server.
            #[must_use]
            pub fn health(&self) -> Health {
                self.inner.health()
            }

            /// Returns the health of each server, if the client has [several](crate::edge::redis::Client::sharded).
            /// Otherwise returns an empty list.
            #[must_use]
            pub fn health_by_server(&self) -> Vec<(std::sync::Arc<str>, Health)> {
                self.inner.health_by_server()
            }
        }
    };
}

pub(crate) use {blocking, builds, builds_here};
