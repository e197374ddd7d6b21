//! The order of the start and of the end.
//!
//! # The end
//! 1. At SIGTERM, health reports that the server wants no requests. It still answers, so that gateways that have not noticed
//!    yet see no error.
//! 2. After `--drain`, it accepts no connection, and asks all connections to end. All requests in flight are answered.
//! 3. After `--drain-deadline` more, it cuts off the connections that are left.
//! 4. Counts that belong to a Redis server are sent there, and the state is written.
//!
//! At SIGINT, somebody at a terminal waits for the end, so step 2 begins at once, and clients that are late have a tenth of a
//! second. A second signal goes to step 3 at once, and step 4 is as short.

use std::convert::Infallible;
use std::future::pending;
use std::panic::resume_unwind;
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tollgate_rules::{Rules, Watcher};

use super::answer::Answerer;
use super::arguments;
use super::connections::{Bounds, Protocol, ServerContext, ServerPhase};
use super::denials::Denials;
use super::endpoint::{Backend, Endpoint, EndpointFlags};
use super::endpoints;
use super::health::Health;
use super::listen::Listener;
use super::load::{self, NoteLoad};
use super::log;
use super::outage::RedisWatch;
use super::process::{self, ReadAgain};
use super::redis;
use super::state::{StateFile, StateWriter};
use super::stats::Stats;
use super::tls::{Files, Tls};
use super::traces::Traces;
use super::variables::Translation;
use super::xds::{self, Xds};
use crate::flags::ServeArgs;
use crate::xds::flags::XdsStore;
use tollgate_report::error::{Error, plain};
use tollgate_report::human;

/// How long the start waits for the first rules.
const FIRST_RULES: Duration = Duration::from_secs(20);

/// How often files are read again, and denials are written to the log.
const SECOND: Duration = Duration::from_secs(1);

/// The most connections to the debug page, and to the metrics page.
const PAGES: u32 = 64;

/// How long the Redis server has to take what this process holds. Also how long a load may delay the end, and an endpoint of a program
/// that does not write its state.
const FLUSH: Duration = Duration::from_secs(2);

/// How long connections have to notice that they are cut off. Also how long the end may take after a second signal.
const CUT: Duration = Duration::from_millis(200);

/// Serves until a signal ends it.
///
/// # Errors
/// If something cannot be used at the start, or if connections were cut off at the end.
pub fn run(args: &ServeArgs, added: &dyn EndpointFlags, taken: &Translation) -> Result<(), Error> {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(args.process.threads.map_or_else(cores, usize::from))
        .thread_name("tollgate-serve")
        .enable_all()
        .build()
        .map_err(|error| Error::run(format!("cannot start threads: {error}")))?;
    let ended = runtime.block_on(serve(args, added, taken));
    match &ended {
        // Nothing that is left matters: all connections have ended or were cut off.
        Ok(()) | Err(Error::CutOff(_)) => runtime.shutdown_background(),
        // The tasks of the endpoints that were started remove their sockets.
        Err(_) => runtime.shutdown_timeout(CUT),
    }
    ended
}

/// Calls `load` on a thread that gives way, because a thread that `load` starts has the priority of its caller.
fn quietly<T: Send>(load: impl FnOnce() -> T + Send) -> T {
    let runtime = runtime::Handle::current();
    let run = move || {
        let _entered = runtime.enter();
        process::give_way();
        load()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Reads the certificates of the gRPC endpoint, if it has any.
///
/// # Errors
/// If they cannot be used.
pub fn tls(args: &ServeArgs) -> Result<Option<Arc<Tls>>, Error> {
    let (Some(cert), Some(key)) = (&args.tls.tls_cert, &args.tls.tls_key) else { return Ok(None) };
    let files = Files { cert: cert.clone(), key: key.clone(), client_ca: args.tls.client_ca.clone() };
    Tls::load(files, args.tls.client_san.clone()).map(|tls| Some(Arc::new(tls)))
}

async fn serve(args: &ServeArgs, added: &dyn EndpointFlags, taken: &Translation) -> Result<(), Error> {
    let mut signals = Signals::new()?;
    let starting = tokio::spawn(end_the_start());
    let mut loads = Loads::default();
    let started = Service::start(args, added, taken, &mut loads).await;
    starting.abort();
    if started.is_err() {
        std::mem::take(&mut loads).end(CUT).await;
    }
    let (mut service, opened) = started?;
    let ended = tokio::select! {
        closing = signals.wait_for_end(service.read_again()) => closing,
        Err(error) = service.report(args, taken, opened) => Err(error),
    };
    match ended {
        Ok(closing) => {
            process::tell_systemd("STOPPING=1");
            service.end(args, loads, closing, &mut signals).await
        }
        Err(error) => {
            service.phase.send_replace(ServerPhase::Cutting);
            let _ = timeout(CUT, service.ended.recv()).await;
            // An endpoint with limits of its own needs no rules.
            finish(service.state, &mut signals).await;
            loads.end(CUT).await;
            Err(error)
        }
    }
}

/// Ends the process at the first signal to end. A start can hang, as with rules on a file system that is away, and no client was promised
/// an answer before it is done.
async fn end_the_start() {
    if let Ok(mut signals) = Signals::new() {
        signals.wait_for_either().await;
        log::info("ended before the start was done");
        log::flush();
        exit(0);
    }
}

/// What the log says of the endpoints, and what wakes at each load.
struct Opened {
    endpoints: Vec<String>,
    /// How the example is asked.
    example: Option<String>,
    loaded: mpsc::UnboundedReceiver<()>,
}

/// What loads rules after the start. The drop waits for a load, and a file system that hangs must hang neither a start that fails nor the
/// end.
#[derive(Default)]
struct Loads {
    /// Watches the rules, unless they are the example.
    watcher: Option<Watcher>,
    /// Follows the control plane, if the rules are from one.
    xds: Option<Xds>,
}

impl Loads {
    /// Waits for a load for at most so long.
    async fn end(self, most: Duration) {
        let _ = timeout(most, spawn_blocking(|| drop(self))).await;
    }
}

/// A service that runs.
struct Service {
    backend: Backend,
    /// The files that are read again, beside those of rules.
    read_again: Vec<ReadAgain>,
    /// Notes loads of files, unless the rules are from elsewhere.
    note: Option<NoteLoad>,
    /// Writes the state, if there is a file for it.
    state: Option<StateWriter>,
    phase: watch::Sender<ServerPhase>,
    /// Ends when the last connection has ended.
    ended: mpsc::Receiver<()>,
}

impl Service {
    /// Opens all endpoints. What loads rules belongs to the caller, also if something fails after that.
    async fn start(
        args: &ServeArgs,
        added: &dyn EndpointFlags,
        taken: &Translation,
        loading: &mut Loads,
    ) -> Result<(Self, Opened), Error> {
        let tls = tls(args)?;
        let stats = Arc::new(Stats::default());
        let mut endpoints = endpoints::asked(args, added, tls.as_ref(), taken, &stats)?;
        let health = Health::new().await;
        let (loads, loaded) = mpsc::unbounded_channel();
        let state = StateFile::open(&args.state)?;
        let mut snapshot = state.as_ref().map(StateFile::read).transpose()?.flatten();
        for endpoint in &mut endpoints {
            endpoint.service.prepare(state.as_ref())?;
        }
        let redis = redis::client(&args.rules)?;
        let prepared = xds::prepare(args, redis.as_ref(), &mut snapshot)?;
        let rules = match &prepared {
            Some(prepared) => Arc::clone(prepared.rules()),
            None => load::load(&args.rules, redis.clone(), args.endpoints.kuadrant, snapshot)?,
        };
        let noted = Arc::clone(&rules);
        let replaced = load::free_replaced(&rules)?;
        let note: NoteLoad = Arc::new(move |result| {
            let _ = replaced.send(());
            load::note(result, &noted);
            let _ = loads.send(());
        });
        let seen = Arc::clone(&note);
        let watch = || Rules::watch(&rules, move |result| seen(&result));
        let watcher = if args.rules.paths.is_empty() { None } else { Some(quietly(watch)) };
        loading.watcher = watcher.transpose().map_err(|error| Error::run(error.to_string()))?;
        let answerer = Arc::new(Answerer::new(Arc::clone(&rules), arguments::settings(args)?));
        let traces = Traces::start(&args.process, &stats)?;
        if let Some(client) = &redis {
            let watch = RedisWatch::new(client, args, &rules)?;
            stats.redis.get_or_init(|| watch.state());
            tokio::spawn(watch.run());
        }
        loading.xds = prepared.map(|prepared| prepared.start(args, Arc::clone(&note), &stats)).transpose()?;
        let (phase, watched) = watch::channel(ServerPhase::Serving);
        let (alive, ended) = mpsc::channel(1);
        let bounds = Bounds {
            connections: args.bounds.max_connections,
            streams: args.bounds.max_streams,
            age: args.bounds.connection_age,
            grace: args.bounds.connection_grace,
        };
        let context = ServerContext { bounds, stats: Arc::clone(&stats), phase: watched, alive };
        // All are open before the first one is used.
        let mut open = Vec::new();
        for endpoint in endpoints {
            open.push((endpoint.place.listen(endpoint.name).await?, endpoint));
        }
        let described = |(listener, endpoint): &(Listener, Endpoint)| {
            listener.described(endpoint.name, endpoint.tls.is_some())
        };
        let opened = Opened {
            endpoints: open.iter().map(described).collect(),
            example: open.iter().find_map(|(listener, endpoint)| Some(endpoint.example?(listener))),
            loaded,
        };
        let kept = open
            .iter()
            .filter_map(|(_, endpoint)| Some((endpoint.name, endpoint.service.state()?)))
            .collect();
        let state = state.map(|state| state.keep(&rules, kept, &stats)).transpose()?;
        let backend = Backend { rules, answerer, stats, health, traces };
        let mut read_again = Vec::from_iter(tls.map(|tls| tls.read_again(&backend.stats)));
        let is_page = |(_, endpoint): &(_, Endpoint)| endpoint.protocol == Protocol::Pages;
        let (pages, open): (Vec<_>, Vec<_>) = open.into_iter().partition(is_page);
        for (listener, endpoint) in open {
            read_again.extend(endpoint.start(listener, &context, &backend)?);
        }
        serve_pages(pages, &backend, bounds, &mut read_again)?;
        let note = loading.watcher.is_some().then_some(note);
        Ok((Self { backend, read_again, note, state, phase, ended }, opened))
    }

    /// Reports the start, the health and what the state had: after the first rules, unless the service may start without them, and after each load.
    ///
    /// # Errors
    /// If there are no rules in time. Otherwise, it does not return.
    async fn report(
        &self,
        args: &ServeArgs,
        taken: &Translation,
        mut opened: Opened,
    ) -> Result<Infallible, Error> {
        let has_rules = || args.rules.start_without_rules || self.backend.rules.reloads().successes > 0;
        if !has_rules() {
            log::info(format_args!(
                "waits for the first rules, and health checks fail until then: {}",
                opened.endpoints.join(", ")
            ));
            let wait = async { while !has_rules() && opened.loaded.recv().await.is_some() {} };
            timeout(FIRST_RULES, wait).await.map_err(|_| {
                let why = self.backend.rules.last_error().map(|error| error.to_string());
                let why = why.unwrap_or_else(|| "the control plane has not answered".to_owned());
                let within = FIRST_RULES.as_secs();
                Error::run(format!(
                    "no rules within {within} s: {why}; to start without rules, add --start-without-rules"
                ))
            })?;
        }
        let wants_rules = args.rules.unhealthy_without_rules;
        let report = || self.backend.health.set(!wants_rules || self.backend.rules.reloads().rules > 0);
        report().await;
        let note = || self.state.as_ref().is_some_and(StateWriter::note);
        let mut is_noted = note();
        announce(&self.backend.rules, args, taken, &opened);
        if args.rules.redis.is_some() && args.xds.xds_store == XdsStore::Memory {
            warn_of_idle_redis(&self.backend.rules);
        }
        process::tell_systemd("READY=1");
        while opened.loaded.recv().await.is_some() {
            report().await;
            // The first rules may have come only now.
            is_noted = is_noted || note();
        }
        pending().await
    }

    /// Returns a function that reads all files again.
    fn read_again(&self) -> impl Fn() + Send + 'static {
        let (rules, files, note) =
            (Arc::clone(&self.backend.rules), self.read_again.clone(), self.note.clone());
        move || {
            process::read_all(&files);
            if let Some(note) = &note {
                note(&rules.reload());
            }
        }
    }

    /// Ends the service. The top of this file lists the steps.
    async fn end(
        mut self,
        args: &ServeArgs,
        loads: Loads,
        closing: ServerPhase,
        signals: &mut Signals,
    ) -> Result<(), Error> {
        self.backend.health.drain().await;
        let (all_ended, most) = tokio::select! {
            all_ended = self.drain(args, closing) => (all_ended, FLUSH),
            () = signals.wait_for_either() => (false, CUT),
        };
        if !all_ended {
            self.phase.send_replace(ServerPhase::Cutting);
            let _ = timeout(CUT, self.ended.recv()).await;
        }
        let flush = async {
            loads.end(most).await;
            let _ = timeout(most, self.backend.traces.end()).await;
            timeout(most, self.backend.rules.close()).await.is_ok()
        };
        let is_flushed = tokio::select! {
            is_flushed = flush => is_flushed,
            () = signals.wait_for_either() => false,
        };
        if !is_flushed && is_shared(&self.backend.rules) {
            log::warn("some units were not reported to the Redis server in time; they expire there");
        }
        finish(self.state, signals).await;
        let cut = self.backend.stats.cut.get();
        if all_ended || cut == 0 {
            log::info("ended");
            return Ok(());
        }
        Err(Error::CutOff(format!(
            "{} cut off, because requests or clients did not end in time",
            human::counted(cut, "connection")
        )))
    }

    /// Asks all connections to end. Returns whether they did in time.
    async fn drain(&mut self, args: &ServeArgs, closing: ServerPhase) -> bool {
        if closing == ServerPhase::Leaving {
            log::always("ending: requests in flight are answered; another Ctrl+C ends at once");
        } else {
            log::info("draining: health checks fail now, and requests are still answered");
            sleep(args.drain()).await;
            log::info("closing: no new connections, and the present ones are asked to end");
        }
        self.backend.health.end_watches().await;
        self.phase.send_replace(closing);
        timeout(args.end.drain_deadline, self.ended.recv()).await.is_ok()
    }
}

/// Writes the state of the end, unless a signal comes.
async fn finish(state: Option<StateWriter>, signals: &mut Signals) {
    let Some(state) = state else { return };
    tokio::select! {
        left = state.finish(FLUSH) => for path in left {
            log::warn(format_args!(
                "cannot write the state {}: its endpoint does not come to an end; a restart loses its usage since the last write",
                path.display()
            ));
        },
        () = signals.wait_for_either() => log::warn("the state of the end was not written: a second signal came"),
    }
}

/// Writes the line at the start, and how to ask the example.
fn announce(rules: &Rules, args: &ServeArgs, taken: &Translation, opened: &Opened) {
    let mut domains = 0_u64;
    let mut last = None;
    rules.for_each(|domain, _, _| {
        if last.as_deref() != Some(domain) {
            domains += 1;
            last = Some(domain.to_owned());
        }
    });
    let count = human::counted(rules.reloads().rules, "rule");
    let from = match (&args.xds.xds, &args.rules.paths[..]) {
        (Some(target), _) => format!("the control plane {target}"),
        (None, []) => "the built-in example".to_owned(),
        (None, paths) => paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
    };
    let of = human::counted(domains, "domain");
    let names = Vec::from_iter(taken.taken());
    let variables = match names.is_empty() {
        true => String::new(),
        false => format!("; variables of the Go service: {}", names.join(", ")),
    };
    log::always(format_args!(
        "tollgate {} serves {count} of {of} from {from}: {}{variables}",
        env!("CARGO_PKG_VERSION"),
        opened.endpoints.join(", "),
    ));
    if args.is_example() {
        log::always_warn(
            "this is an example on loopback, 5 requests a minute for each address; name a file or folder to serve \
             your own rules",
        );
    }
    if let Some(example) = opened.example.as_ref().filter(|_| args.is_example()) {
        log::always(example);
    }
}

/// Whether a rule uses the Redis server.
fn is_shared(rules: &Rules) -> bool {
    let mut shared = false;
    rules.for_each(|_, rule, _| shared |= rule.is_shared());
    shared
}

/// Writes a warning if no rule uses the Redis server.
fn warn_of_idle_redis(rules: &Rules) {
    if !is_shared(rules) {
        log::warn("the Redis server is not used: no rule has `store: redis`, so this process counts alone");
    }
}

/// Starts the endpoints of pages, and their thread, which ends with the process. It also lets files be read again, and logs denials.
/// Adds what reads files of these endpoints again.
///
/// # Errors
/// If an endpoint or the thread cannot be started.
fn serve_pages(
    pages: Vec<(Listener, Endpoint)>,
    backend: &Backend,
    bounds: Bounds,
    read_again: &mut Vec<ReadAgain>,
) -> Result<(), Error> {
    let runtime = runtime::Builder::new_current_thread().thread_name("tollgate-admin").enable_all().build();
    let runtime = runtime.map_err(|error| Error::run(format!("cannot start a thread: {error}")))?;
    let (phase, watched) = watch::channel(ServerPhase::Serving);
    let (alive, _) = mpsc::channel(1);
    let bounds = Bounds { connections: PAGES, streams: PAGES, ..bounds };
    let context = ServerContext { bounds, stats: Arc::default(), phase: watched, alive };
    let (read, asked) = std::sync::mpsc::sync_channel(1);
    let started = start_pages(pages, &context, backend, &runtime, read_again).and_then(|()| {
        let files = read_again.to_vec();
        // A file system that hangs must not hang the pages. Not a thread of the runtime for blocking work, which would start at some time
        // after the service: it has all its threads when it says that it serves.
        process::spawn("tollgate-files", move || asked.iter().for_each(|()| process::read_all(&files)))
    });
    if let Err(error) = started {
        runtime.shutdown_background();
        return Err(error);
    }
    let rules = Arc::clone(&backend.rules);
    let run = async move {
        let mut second = interval(SECOND);
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut denials = Denials::default();
        loop {
            tokio::select! {
                _ = second.tick() => {
                    denials.write(&rules);
                    // While a second has not been served, the next one asks for nothing more.
                    let _ = read.try_send(());
                }
                () = phase.closed() => return,
            }
        }
    };
    // All endpoints of pages may be off. Files are read again, and denials are logged, in any case.
    process::spawn("tollgate-pages", move || {
        let _context = context;
        runtime.block_on(run);
    })
    .map(drop)
}

/// Starts endpoints in another runtime. They serve as soon as it runs.
fn start_pages(
    pages: Vec<(Listener, Endpoint)>,
    context: &ServerContext,
    backend: &Backend,
    runtime: &Runtime,
    read_again: &mut Vec<ReadAgain>,
) -> Result<(), Error> {
    for (listener, page) in pages {
        // A listener belongs to the runtime that created it.
        let listener = listener.move_to(runtime.handle()).map_err(|error| Error::run(plain(&error)))?;
        let _entered = runtime.enter();
        read_again.extend(page.start(listener, context, backend)?);
    }
    Ok(())
}

/// The signals that the server obeys.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    more_lines: Signal,
    usual_lines: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        let listen =
            |kind| signal(kind).map_err(|error| Error::run(format!("cannot receive signals: {error}")));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
            more_lines: listen(SignalKind::user_defined1())?,
            usual_lines: listen(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the signal to end, and returns how. At SIGHUP, reads everything again on a thread for that, because a load
    /// takes time.
    ///
    /// # Errors
    /// If the thread cannot be started.
    async fn wait_for_end(&mut self, read_again: impl Fn() + Send + 'static) -> Result<ServerPhase, Error> {
        let (hang_ups, heard) = std::sync::mpsc::sync_channel(1);
        process::spawn("tollgate-hang-up", move || heard.iter().for_each(|()| read_again()))?;
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Ok(ServerPhase::Closing),
                _ = self.interrupt.recv() => return Ok(ServerPhase::Leaving),
                // If one is waiting already, its reading comes after this signal.
                _ = self.hang_up.recv() => drop(hang_ups.try_send(())),
                _ = self.more_lines.recv() => log::set_level(log::level().more()),
                _ = self.usual_lines.recv() => log::set_level(log::first_level()),
            }
        }
    }

    /// Waits for a signal to end.
    async fn wait_for_either(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::future::ready;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::mpsc;

    use clap::Parser as _;
    use http::StatusCode;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;
    use tollgate_testing::service::PATIENCE;
    use tower::service_fn;

    use super::*;
    use crate::connections::{Failure, Listening};
    use crate::endpoint::{EndpointService, NoFlags, Place};
    use crate::http::text;

    fn fault() {
        panic!("a fault of the program")
    }

    fn parse(line: &[&str]) -> ServeArgs {
        let line = ["tollgate", "serve"].iter().chain(line);
        match crate::Program::<NoFlags>::parse_from(line).command {
            crate::Command::Serve(args) => args.split().1,
            crate::Command::Ctl { .. } => unreachable!("the command is serve"),
        }
    }

    /// Starts pages of a program at a socket.
    async fn serve(
        socket: &std::path::Path,
        start: impl EndpointService + 'static,
        read_again: &mut Vec<ReadAgain>,
    ) -> Result<(), Error> {
        let args = parse(&[]);
        let (stats, rules) =
            (Arc::default(), Arc::new(Rules::from_yaml("domain: d\ndescriptors: []\n").unwrap()));
        let answerer = Arc::new(Answerer::new(Arc::clone(&rules), arguments::settings(&args).unwrap()));
        let (health, traces) = (Health::new().await, Traces::start(&args.process, &stats).unwrap());
        let backend = Backend { rules, answerer, stats, health, traces };
        let bounds = Bounds { connections: 10, streams: 10, age: Duration::ZERO, grace: Duration::ZERO };
        let endpoint =
            Endpoint::new("mine", Place::Socket(socket.to_owned(), 0o600, "mine"), Protocol::Pages, start);
        let listener = endpoint.place.listen("mine").await.unwrap();
        serve_pages(vec![(listener, endpoint)], &backend, bounds, read_again)
    }

    /// Pages that cannot start, after the file of the rules hangs.
    #[derive(Clone, Debug)]
    struct Hanging(PathBuf, mpsc::Sender<File>);

    impl EndpointFlags for Hanging {
        fn endpoints(
            &self,
            _: &ServeArgs,
            _: Option<&Arc<Tls>>,
            _: &Arc<Stats>,
        ) -> Result<Vec<Endpoint>, Error> {
            let (Self(rules, pipes), socket) = (self.clone(), self.0.with_extension("socket"));
            let start = move |_: Listening, _: &Backend| {
                let pipe = rules.with_extension("pipe");
                assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
                fs::rename(pipe, &rules).unwrap();
                // This waits for the load, which then waits for what is never written.
                pipes.send(File::options().write(true).open(rules).unwrap()).unwrap();
                Err(Error::run("no file with colours"))
            };
            Ok(vec![Endpoint::new("mine", Place::Socket(socket, 0o600, "mine"), Protocol::Pages, start)])
        }
    }

    /// Cause: what loads rules was dropped where the start failed, and waited there for a load. Trigger: rules on a file system that
    /// hangs, and then an error. Symptom: the log never had the error, and a signal ended the process with success.
    // G108
    #[test]
    fn start_that_fails_waits_for_no_load() {
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("limits.yaml");
        fs::write(&rules, "domain: d\ndescriptors: []\n").unwrap();
        let ((pipes, _pipe), (ends, ended)) = (mpsc::channel(), mpsc::channel());
        thread::spawn(move || {
            let args = parse(&["--grpc", "0", "--http", "off", "--debug", "off", rules.to_str().unwrap()]);
            let (runtime, added) = (Runtime::new().unwrap(), Hanging(rules, pipes));
            let ended = runtime.block_on(super::serve(&args, &added, &Translation::default()));
            runtime.shutdown_background();
            ends.send(ended)
        });
        let ended = ended.recv_timeout(PATIENCE).expect("the start waits for the load");
        assert!(ended.unwrap_err().to_string().contains("no file with colours"));
    }

    /// Cause: pages were served from ports only, and nothing of theirs was read again. Trigger: pages of a program at a socket. Symptom: a
    /// client that connected waited for ever.
    #[tokio::test]
    async fn pages_of_a_program_are_served_at_a_socket_and_read_their_files_again() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let (reads, read) = mpsc::channel();
        let start = move |listening: Listening, _: &Backend| {
            listening.spawn(service_fn(|_| ready(Ok::<_, Failure>(text(StatusCode::OK, "mine")))));
            let again: ReadAgain = Arc::new(move || assert!(reads.send(()).is_ok()));
            Ok(Some(again))
        };
        // One that panics keeps none of the others from being called, now and later.
        let mut read_again: Vec<ReadAgain> = vec![Arc::new(fault)];
        self::serve(&socket, start, &mut read_again).await.unwrap();
        assert_eq!(read_again.len(), 2);
        let mut client = UnixStream::connect(&socket).await.unwrap();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let mut page = String::new();
        client.read_to_string(&mut page).await.unwrap();
        assert!(page.ends_with("mine"), "{page}");
        spawn_blocking(move || assert!(read.recv().is_ok() && read.recv().is_ok())).await.unwrap();
    }

    /// Cause: pages were started after the service, whose start had succeeded. Symptom: an endpoint that could not start was only a line
    /// in the log.
    #[tokio::test]
    async fn pages_that_cannot_start_end_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let start = |_: Listening, _: &Backend| Err(Error::run("no file with colours"));
        let ended = self::serve(&folder.path().join("socket"), start, &mut Vec::new()).await;
        assert!(ended.unwrap_err().to_string().contains("no file with colours"));
    }
}
