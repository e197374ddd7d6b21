//! Options of the write-back mode.

use std::time::Duration;

use tollgate_protocol::RegionPolicy;

use crate::client::{Connected, LimiterBuilder};

#[derive(Clone, Debug)]
pub(super) struct WriteBackOptions<T> {
    pub(super) interval: Duration,
    pub(super) processes: Option<u32>,
    /// The name of this region. Empty if there is only one region.
    pub(super) own: Box<str>,
    pub(super) others: Vec<(Box<str>, T)>,
    pub(super) policy: RegionPolicy,
    pub(super) exchange_interval: Duration,
}

impl<T: Connected> WriteBackOptions<T> {
    /// The options with the clients for async code.
    pub(super) fn split(self) -> WriteBackOptions<T::Transport> {
        let Self { interval, processes, own, others, policy, exchange_interval } = self;
        let others = others.into_iter().map(|(name, client)| (name, client.split().0)).collect();
        WriteBackOptions { interval, processes, own, others, policy, exchange_interval }
    }
}

/// Sets the options of the write-back mode, and builds the limiter. [`LimiterBuilder::write_back`] creates it.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds a limiter"]
pub struct WriteBackBuilder<T, C = ()> {
    pub(super) builder: LimiterBuilder<T>,
    pub(super) options: WriteBackOptions<T>,
    /// `()` stands for the default clock, which is created with the limiter.
    pub(super) clock: C,
}

impl<T> LimiterBuilder<T> {
    /// Chooses the write-back mode: this process decides, and posts to the server later. See
    /// [`WriteBackLimiter`](super::WriteBackLimiter).
    pub fn write_back(self) -> WriteBackBuilder<T> {
        let options = WriteBackOptions {
            interval: Duration::from_secs(1),
            processes: None,
            own: Box::default(),
            others: Vec::new(),
            policy: RegionPolicy::default(),
            exchange_interval: Duration::from_secs(5),
        };
        WriteBackBuilder { builder: self, options, clock: () }
    }
}

impl<T, C> WriteBackBuilder<T, C> {
    /// Sets the maximum time between the admission of a unit and its post. Default: one second. It is at least 1 ms.
    ///
    /// Windows shorter than four intervals are posted up to four times each. With GCRA, the time never exceeds half the
    /// time that refills a full burst. The limiter scans its keys at most once every 5 ms.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.options.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets the number of processes that share the limits. Default: the number in
    /// [`OnFailure::Local`](crate::OnFailure::Local), which is one unless it is set.
    ///
    /// For a new key or window, a process admits the limit divided by this number before the first answer of the
    /// server. If more processes exist, together they can admit more.
    pub fn processes(mut self, processes: u32) -> Self {
        self.options.processes = Some(processes.max(1));
        self
    }

    /// Shares the limits with other regions. Each region has its own server, and its processes post to that server. The
    /// regions exchange their totals, off the path of requests. See [`WriteBackLimiter`](super::WriteBackLimiter#several-regions).
    ///
    /// `own` is the name of this region, and `others` are the names and the servers of all other regions. All processes
    /// of all regions must use the same names. Then [`processes`](Self::processes) is the number of processes in this
    /// region.
    ///
    /// `build` refuses what regions do not support, and states the reason: algorithms without
    /// windows, Clusters and sets of servers, windows shorter than ten exchange intervals, and limits below the number of
    /// regions.
    ///
    /// # Examples
    /// ```
    /// use tollgate::Quota;
    /// use tollgate_redis::{InProcess, Limit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (frankfurt, tokyo) = (InProcess::default(), InProcess::default()); // or two `Client`s
    /// let limit = Limit::fixed_window(Quota::per_minute(600));
    /// let limiter =
    ///     frankfurt.limiter("api", limit).write_back().regions("frankfurt", [("tokyo", tokyo)]).build()?;
    /// assert!(limiter.check("203.0.113.7").is_allowed());
    /// assert!(!limiter.health_by_region()[0].1.is_cut_off);
    /// # Ok(())
    /// # }
    /// ```
    pub fn regions<'n>(mut self, own: &str, others: impl IntoIterator<Item = (&'n str, T)>) -> Self {
        self.options.own = own.into();
        self.options.others = others.into_iter().map(|(name, client)| (name.into(), client)).collect();
        self
    }

    /// Sets what a region may admit between two exchanges. Default: [`RegionPolicy::Share`].
    pub fn region_policy(mut self, policy: RegionPolicy) -> Self {
        self.options.policy = policy;
        self
    }

    /// Sets the time between two exchanges of a key, 10 % more or less. Default: five seconds. It is at least 10 ms and
    /// at most one hour.
    ///
    /// A shorter interval makes the excess and the early denials smaller, and costs more calls between the regions: at
    /// most `R − 1` for each used key, region and interval, for `R` regions.
    pub fn exchange_interval(mut self, interval: Duration) -> Self {
        self.options.exchange_interval = interval.clamp(Duration::from_millis(10), Duration::from_secs(3600));
        self
    }

    /// Sets the clock. Its origin must be the Unix epoch, with an error that is small compared to the length of the
    /// windows. Default: [`DefaultClock`](tollgate::DefaultClock).
    pub fn clock<D>(self, clock: D) -> WriteBackBuilder<T, D> {
        WriteBackBuilder { builder: self.builder, options: self.options, clock }
    }
}
