//! Rules from a control plane: state of the world, over an aggregated stream of discovery.
//!
//! | file | does |
//! |---|---|
//! | `connect` | TCP, TLS and HTTP/2 to the control plane |
//! | `take` | from a message to rules in force, and to the answer of the message |
//! | `follow` | the stream, and the pauses between two of them |
//!
//! ```text
//! connect ─► request ─► message ─► rules in force ─► ACK ─┐
//!    ▲                   ▲    └─► refused ─► NACK ────────┤
//!    └── pause ◄── end ──┴────────────────────────────────┘
//! ```
//! This is a source of rules and no endpoint: it listens nowhere. Its thread gives way to those that answer.

mod connect;
pub mod flags;
mod follow;
pub mod take;

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tollgate_redis::Client;
use tollgate_rules::{Rules, RulesSnapshot};

use self::connect::Connector;
use self::follow::Stream;
use self::take::Taker;
use super::load::{self, NoteLoad};
use super::process;
use super::stats::{Stats, XdsStats};
use crate::flags::ServeArgs;
use crate::xds::flags::{HeaderField, XdsStore};
use tollgate_report::error::Error;

/// What follows the control plane as long as it exists. The drop waits for a load in progress.
pub struct Xds {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Xds {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What will follow the control plane.
pub struct XdsStart {
    taker: Taker,
    connector: Connector,
    name: String,
    headers: Vec<HeaderField>,
}

/// Prepares to follow the control plane, whose first rules take the usage of the snapshot over. `None` without `--xds`.
///
/// # Errors
/// If a flag or a certificate cannot be used.
pub fn prepare(
    args: &ServeArgs,
    redis: Option<&Client>,
    snapshot: &mut Option<RulesSnapshot>,
) -> Result<Option<XdsStart>, Error> {
    let Some(target) = &args.xds.xds else { return Ok(None) };
    let is_shared = args.xds.xds_store == XdsStore::Redis;
    if is_shared && args.rules.redis.is_none() {
        return Err(Error::usage("--xds-store redis needs --redis"));
    }
    let headers = args.xds.headers()?;
    let connector = Connector::new(&args.xds, target)?;
    let name = format!("the control plane {target}");
    let builder = load::builder(&args.rules, redis.cloned(), args.endpoints.kuadrant, snapshot.take())?;
    let builder = builder.allow_removals(true);
    // Another node has other rules, so it must not begin with this copy.
    let of = format!("{name} for the node {:?}", args.xds.xds_node_id);
    let pushed = builder.pushed(&of, args.xds.xds_copy.clone());
    Ok(Some(XdsStart { taker: Taker::new(pushed, is_shared), connector, name, headers }))
}

impl XdsStart {
    /// Returns the rules, which are not loaded yet.
    pub fn rules(&self) -> &Arc<Rules> {
        self.taker.pushed.rules()
    }

    /// Starts to follow the control plane.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(self, args: &ServeArgs, note: NoteLoad, stats: &Arc<Stats>) -> Result<Xds, Error> {
        stats.xds.get_or_init(|| XdsStats { name: self.name.clone(), ..XdsStats::default() });
        let stream = Stream::new(&args.xds, self, note, Arc::clone(stats));
        let (stop, stopped) = oneshot::channel();
        let runtime = Handle::current();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    never = stream.run() => match never {},
                    _ = stopped => {}
                }
            });
        };
        Ok(Xds { stop: Some(stop), thread: Some(process::spawn("tollgate-xds", run)?) })
    }
}
