//! The command line of `tollgate serve`. Each flag is also a variable, `TOLLGATE_` and the flag's name.

pub mod process;
pub mod redis;
pub mod state;
pub mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{Arg, Args, ValueEnum};

use tollgate::telemetry::NearLimit;
use tollgate_http::{Dialect, Reset};

use self::process::ServeProcess;
use self::redis::ServeRedis;
use self::state::ServeState;
pub use self::values::Address;
use self::values::{size, some_count, some_time, truth};
use crate::duration;
use crate::log::{Level, LogFormat};
use crate::xds::flags::XdsArgs;
use tollgate_report::charging::ChargingArg;
use tollgate_report::decimal::{self, Scaled};

/// Examples and forms of addresses before all flags.
pub const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\n{all-args}";

/// The help of `-h`, which is one screen. `--help` has all flags. `{endpoints}` and `{security}` stand for the lines of flags that a program
/// adds.
pub const SHORT_HELP: &str = "\
Examples:
  tollgate serve                               An example on this machine
  tollgate serve limits.yaml --metrics :9090   The rules of a file, and metrics
  tollgate serve limits.yaml --check           Check rules and flags, and stop

Arguments:
  [FILE|FOLDER]...   Files and folders of rules [default: a built-in example]

Endpoints:
  --grpc ADDRESS     Gateways: Envoy's protocol [default: :8081]
  --http ADDRESS     /json and /healthcheck [default: :8080]
  --debug ADDRESS    Debug pages, for a browser or curl [default: 6070]
  --metrics ADDRESS  Metrics for Prometheus [default: off]
{endpoints}  --admin ADDRESS    Operators, for tollgate ctl; or unix:PATH [default: off]
  ADDRESS is HOST:PORT, PORT (on loopback), :PORT (on all interfaces), or off.
  The built-in example is on loopback only.

Security:
  --tls-cert FILE --tls-key FILE   TLS of the gRPC endpoint
  --client-ca FILE                 Authorities of certificates of clients
{security}
Rules:
  --redis URL        Server for rules with `store: redis`
  --xds HOST:PORT    Control plane that sends the rules, instead of files
  --shadow           Dry run: count and report, and deny nothing

Operation:
  --state FILE       Keep the usage of clients for the next start
  --deadline TIME    Longest time for an answer [default: 15ms]
  --drain TIME       Time after SIGTERM before the end begins [default: 5s]
  --log LEVEL        off, error, warn, info or debug [default: warn]

Each flag is also a variable: TOLLGATE_GRPC for --grpc.
All flags, signals and exit codes: tollgate serve --help";

/// The examples of the help.
pub const EXAMPLES: &str = "\
Examples:
  A built-in example on this machine, to try it out:
    tollgate serve
  The rules of a file, or of all files in a folder, such as a mounted ConfigMap:
    tollgate serve limits.yaml
    tollgate serve /etc/tollgate/rules --metrics :9090
  The rules of a control plane, such as Envoy Gateway:
    tollgate serve --xds envoy-gateway:18001 --xds-copy /var/lib/rules
  Check everything and stop:
    tollgate serve limits.yaml --check
  TLS with client certificates:
    tollgate serve limits.yaml --tls-cert tls.crt --tls-key tls.key \\
      --client-ca ca.crt
  The flags that mean the same as the variables of Envoy's Go service in this
  environment:
    tollgate serve --explain-env

Each ADDRESS has one of these forms:
  10.0.0.1:8081, [::1]:8081   this address
  8081                        on loopback, so that only this machine reaches it
  :8081                       on all interfaces, as 0.0.0.0:8081
  off                         nowhere

Each flag can also be set by a variable: TOLLGATE_GRPC for --grpc,
TOLLGATE_TLS_CERT for --tls-cert, TOLLGATE_RULES for the paths (separated as in
PATH). Flags have priority over these variables, and these variables over those
of the Go service.

Signals: SIGTERM drains; SIGINT (Ctrl+C) ends without --drain, after the
requests in flight; a second one ends at once. SIGHUP reads the rules and
certificates again. SIGUSR1 logs one level more, from warn to info to debug;
SIGUSR2 logs as --log says again.

Exit codes: 0 after a drain or a check, 1 a file or an address cannot be used,
2 a flag or a variable is wrong, 3 connections were cut off.";

/// No more flags than those of the service.
#[derive(Args, Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct NoFlags {}

/// `tollgate serve`, with the flags `E` of endpoints that a program adds.
#[derive(Args, Debug)]
#[command(next_line_help = true, mut_args(|arg| with_variable(arg).hide_short_help(true)))]
pub struct ServeArgs<E: Args = NoFlags> {
    /// Where the service listens, and what it offers there.
    #[command(flatten)]
    pub endpoints: ServeEndpoints,

    /// The endpoints that a program adds.
    #[command(flatten)]
    pub added: E,

    /// Where operators connect.
    #[command(flatten)]
    pub admin: crate::admin::flags::ServeAdmin,

    /// The certificates of the gRPC endpoint, and those of its clients.
    #[command(flatten)]
    pub tls: ServeTls,

    /// Where rules are from, and how they are used.
    #[command(flatten)]
    pub rules: ServeRules,

    /// The control plane that rules are from, if they are from one.
    #[command(flatten)]
    pub xds: XdsArgs,

    /// Where the service keeps what it has counted.
    #[command(flatten)]
    pub state: ServeState,

    /// What answers contain.
    #[command(flatten)]
    pub answers: ServeAnswers,

    /// The bounds of requests and of connections.
    #[command(flatten)]
    pub bounds: ServeBounds,

    /// How the process runs, and what it tells others about itself.
    #[command(flatten)]
    pub process: ServeProcess,

    /// How the service ends.
    #[command(flatten)]
    pub end: ServeEnd,

    /// What the log contains.
    #[command(flatten)]
    pub logs: ServeLogs,
}

/// Returns a flag that can also be set by its variable: `TOLLGATE_GRPC` for `--grpc`. What stops the program at once has none.
fn with_variable(arg: Arg) -> Arg {
    let id = arg.get_id().as_str();
    if arg.is_positional() || ["check", "explain_env", "healthcheck"].contains(&id) {
        return arg;
    }
    let name = format!("TOLLGATE_{}", id.to_ascii_uppercase());
    arg.env(name)
}

impl<E: Args> ServeArgs<E> {
    /// Returns the flags of added endpoints, and all others.
    pub fn split(self) -> (E, ServeArgs) {
        let Self { endpoints, added, admin, tls, rules, xds, state, answers, bounds, process, end, logs } =
            self;
        let args = ServeArgs {
            endpoints,
            added: NoFlags {},
            admin,
            tls,
            rules,
            xds,
            state,
            answers,
            bounds,
            process,
            end,
            logs,
        };
        (added, args)
    }

    /// Whether the rules are the built-in example.
    pub fn is_example(&self) -> bool {
        self.rules.paths.is_empty() && self.xds.xds.is_none()
    }

    /// Returns how long requests are answered after SIGTERM. Nothing has to notice that the example ends.
    pub fn drain(&self) -> Duration {
        let default = if self.is_example() { Duration::ZERO } else { Duration::from_secs(5) };
        self.end.drain.unwrap_or(default)
    }
}

/// Where rules are from, and how they are used.
#[derive(Args, Debug)]
#[command(next_help_heading = "Rules")]
pub struct ServeRules {
    /// Files of rules, and folders whose files (.yaml, .yml, .json, .toml) are read [default: a built-in example]
    #[arg(value_name = "FILE|FOLDER", help_heading = Resettable::Reset)]
    pub paths: Vec<PathBuf>,

    /// Let several files share one domain: their descriptors are appended in order
    #[arg(long, value_parser = truth)]
    pub merge_domains: bool,

    /// Which limits a denied request is charged to [default: the setting in each file, or count-denials]
    #[arg(long, value_enum, value_name = "HOW")]
    pub charging: Option<ChargingArg>,

    /// Dry run: count and report, and deny nothing
    #[arg(long, value_parser = truth)]
    pub shadow: bool,

    /// Make all rules quotas: a request is denied only if all of its limits deny it
    #[arg(long, value_parser = truth)]
    pub quota: bool,

    /// Share of a limit above which units count as near the limit, from 0 to 1
    #[arg(long, default_value = "0.8", value_parser = ratio, value_name = "RATIO")]
    pub near_limit: NearLimit,

    /// Start although there are no rules, or they have problems
    ///
    /// Until the first load succeeds, all answers are UNAVAILABLE. An empty folder can be loaded: no rules are then in
    /// force, and every request passes.
    #[arg(long, value_parser = truth)]
    pub start_without_rules: bool,

    /// Report as not serving while no domain has rules
    #[arg(long, value_parser = truth)]
    pub unhealthy_without_rules: bool,

    /// Redis or Valkey server for rules with store: redis, as redis://[[user]:password@]host[:port], or rediss:// for TLS;
    /// nodes of one Cluster are separated by commas. With Sentinels: redis-sentinel://[[user]:password@]host[:port],…/name
    ///
    /// `?auth=[user:]password` at the end sets the password of the Sentinels, and rediss-sentinel:// uses TLS.
    /// A comma in a password is written as %2C, and @ as %40.
    /// The variable TOLLGATE_REDIS hides a password from other users of this machine.
    #[arg(long, help_heading = "Rules on a Redis server", hide_env_values = true, value_name = "URL")]
    pub redis: Option<String>,

    /// Certificate authority for a rediss:// address [default: those of the system]
    #[arg(long, help_heading = "Rules on a Redis server", requires = "redis", value_name = "FILE")]
    pub redis_ca: Option<PathBuf>,

    /// Client certificate for a rediss:// address
    #[arg(long, help_heading = "Rules on a Redis server", requires_all = ["redis", "redis_key"], value_name = "FILE")]
    pub redis_cert: Option<PathBuf>,

    /// Key of that certificate
    #[arg(long, help_heading = "Rules on a Redis server", requires = "redis_cert", value_name = "FILE")]
    pub redis_key: Option<PathBuf>,

    /// How the service connects to the Redis server.
    #[command(flatten)]
    pub connection: ServeRedis,

    /// Check the rules, the certificates and the flags, print all problems, and stop
    #[arg(long)]
    pub check: bool,

    /// Print the flags that mean the same as the variables of Envoy's Go service in this environment, and stop
    #[arg(long)]
    pub explain_env: bool,
}

/// Where the service listens, and what it offers there.
#[derive(Args, Debug)]
#[command(next_help_heading = "gRPC")]
pub struct ServeEndpoints {
    /// Address for gRPC, or off [default: 0.0.0.0:8081, or off with --grpc-socket]
    #[arg(long, value_name = "ADDRESS")]
    pub grpc: Option<Address>,

    /// Unix socket for gRPC
    #[arg(long, value_name = "PATH")]
    pub grpc_socket: Option<PathBuf>,

    /// Permissions of the Unix socket, in octal
    #[arg(long, default_value = "0660", value_parser = mode, value_name = "MODE")]
    pub socket_mode: u32,

    /// Serve gRPC reflection, v1 and v1alpha
    #[arg(long, value_parser = truth)]
    pub reflection: bool,

    /// Serve Kuadrant's variant of the service too
    #[arg(long, value_parser = truth)]
    pub kuadrant: bool,

    /// Address for /json and /healthcheck, or off; beside TLS, /json answers only if this is set [default: 0.0.0.0:8080]
    #[arg(long, help_heading = "HTTP", value_name = "ADDRESS")]
    pub http: Option<Address>,

    /// Address for the debug pages, or off; the pages show rules and denied keys
    ///
    /// Open the address in a browser to look at the service. Programs get the figures as text or JSON, such as with `curl
    /// 127.0.0.1:6070`, which lists them. An endpoint on loopback has no other names than localhost and IP addresses.
    #[arg(long, help_heading = "Debug pages", default_value = "127.0.0.1:6070", value_name = "ADDRESS")]
    pub debug: Address,

    /// Address for Prometheus metrics, such as :9090 or 9090, or off
    #[arg(long, help_heading = "Metrics", default_value = "off", value_name = "ADDRESS")]
    pub metrics: Address,

    /// Path of the metrics
    #[arg(long, help_heading = "Metrics", default_value = "/metrics", value_parser = page, value_name = "PATH")]
    pub metrics_path: String,

    /// Also publish the metrics under the names of Envoy's Go service
    #[arg(long, help_heading = "Metrics", value_parser = truth)]
    pub go_metrics: bool,

    /// Publish ratelimit_service_response_time_seconds in milliseconds, as versions of the Go service before April 2026 do
    #[arg(long, help_heading = "Metrics", value_parser = truth, requires = "go_metrics")]
    pub go_metrics_milliseconds: bool,
}

/// The certificates of the gRPC endpoint, and those of its clients.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub struct ServeTls {
    /// Certificate of the gRPC endpoint, as PEM; read again when it changes
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Key of that certificate, as PEM; read again when it changes
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Authorities of client certificates, as PEM; with it, each client needs a certificate; read again when it changes
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,

    /// Name that a client's certificate must have as a DNS or URI name, exactly; repeat the flag to allow several
    #[arg(long, value_delimiter = ',', requires = "client_ca", value_name = "NAME")]
    pub client_san: Vec<String>,
}

/// The bounds of requests and of connections.
#[derive(Args, Debug)]
#[command(next_help_heading = "Bounds")]
pub struct ServeBounds {
    /// Longest time for an answer; the caller's grpc-timeout can only shorten it
    #[arg(long, default_value = "15ms", value_parser = some_time, value_name = "TIME")]
    pub deadline: Duration,

    /// Requests that are decided at the same time; others are refused at once as UNAVAILABLE
    #[arg(long, default_value = "10000", value_parser = some_count, value_name = "N")]
    pub max_in_flight: usize,

    /// Connections to each endpoint; others are closed at once
    #[arg(long, default_value = "10000", value_parser = clap::value_parser!(u32).range(1..=1_000_000), value_name = "N")]
    pub max_connections: u32,

    /// Concurrent requests on one gRPC connection
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub max_streams: u32,

    /// Largest request message
    #[arg(long, default_value = "4MiB", value_parser = size, value_name = "SIZE")]
    pub max_message: usize,

    /// Descriptors of a request
    #[arg(long, default_value = "64", value_parser = some_count, value_name = "N")]
    pub max_descriptors: usize,

    /// Entries of a descriptor
    #[arg(long, default_value = "32", value_parser = some_count, value_name = "N")]
    pub max_entries: usize,

    /// Largest cost of a descriptor; a higher cost counts as this one [default: no bound]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub max_hits: Option<u64>,

    /// Let callers give units back (is_negative_hits), to rules in this process; every caller can then refill these rules
    #[arg(long, value_parser = truth)]
    pub allow_negative_hits: bool,

    /// Age at which a connection is closed gracefully, 10 % more or less, so that gateways spread over new replicas; 0 is
    /// never
    #[arg(long, default_value = "30m", value_parser = duration::parse, value_name = "TIME")]
    pub connection_age: Duration,

    /// Time for the requests of such a connection, before it is cut off
    #[arg(long, default_value = "1m", value_parser = duration::parse, value_name = "TIME")]
    pub connection_grace: Duration,
}

/// What answers contain.
#[derive(Args, Debug)]
#[command(next_help_heading = "Answers")]
pub struct ServeAnswers {
    /// Header fields about limits in answers
    #[arg(long, value_enum, default_value = "none", value_name = "DIALECT")]
    pub limit_headers: LimitHeadersArg,

    /// Names of the three fields of --limit-headers ratelimit, as LIMIT,REMAINING,RESET
    #[arg(long, value_name = "NAMES")]
    pub limit_header_names: Option<String>,

    /// Add Retry-After to denials
    #[arg(long, value_parser = truth)]
    pub retry_after: bool,

    /// Add the request and the metadata of its rules to answers, as dynamic metadata
    #[arg(long, value_parser = truth)]
    pub dynamic_metadata: bool,

    /// Add a problem document to denials, which gateways send as the body
    #[arg(long, value_parser = truth)]
    pub problem_body: bool,

    /// Answer while the Redis server of a rule that could deny is away
    #[arg(long, value_enum, default_value = "rule", value_name = "HOW")]
    pub store_away: StoreAway,
}

/// How the service ends.
#[derive(Args, Debug)]
#[command(next_help_heading = "End")]
pub struct ServeEnd {
    /// Time after SIGTERM in which requests are still answered, while health checks fail [default: 5s, or 0 for the built-in
    /// example, which no gateway asks]
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub drain: Option<Duration>,

    /// Time after that for requests in flight, before their connections are cut off
    #[arg(long, default_value = "10s", value_parser = duration::parse, value_name = "TIME")]
    pub drain_deadline: Duration,
}

/// What the log contains.
#[derive(Args, Debug)]
#[command(next_help_heading = "Logs")]
pub struct ServeLogs {
    /// Least severity of log lines
    #[arg(long, value_enum, default_value = "warn", value_name = "LEVEL")]
    pub log: Level,

    /// Form of log lines
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// The header fields about limits.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum LimitHeadersArg {
    /// No fields
    None,
    /// RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, as Envoy's Go service sends them
    Ratelimit,
    /// RateLimit-Policy and RateLimit, as in the drafts 08 to 11 of the standard
    #[value(name = "draft-11")]
    Draft11,
    /// RateLimit and RateLimit-Policy, as in draft 07
    #[value(name = "draft-07")]
    Draft07,
    /// RateLimit-Limit, -Remaining, -Reset and -Policy, as in the drafts 00 to 06
    #[value(name = "draft-06")]
    Draft06,
    /// X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
    XRatelimit,
}

impl LimitHeadersArg {
    /// Returns the dialect of the library that these fields are.
    pub const fn dialect(self) -> Option<Dialect> {
        match self {
            Self::None | Self::Ratelimit => None,
            Self::Draft11 => Some(Dialect::Draft11),
            Self::Draft07 => Some(Dialect::Draft07),
            Self::Draft06 => Some(Dialect::Draft06),
            Self::XRatelimit => Some(Dialect::Legacy { reset: Reset::Delta }),
        }
    }
}

/// What the answer is while the Redis server is away.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum StoreAway {
    /// As the rule's on_failure says
    Rule,
    /// UNAVAILABLE: the gateway's failure mode decides
    Unavailable,
}

fn ratio(text: &str) -> Result<NearLimit, String> {
    match decimal::scaled(text.as_bytes(), 6) {
        Ok(Scaled { value: millionths @ 0..=1_000_000, .. }) => {
            Ok(NearLimit::per_million(u32::try_from(millionths).unwrap_or(u32::MAX)))
        }
        _ => Err("expected a number from 0 to 1, such as 0.8".to_owned()),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("expected permissions in octal, such as 0660".to_owned()),
    }
}

fn page(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err("expected a path that begins with /, such as /metrics".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_modes_have_bounds() {
        assert_eq!((size("4MiB"), size("512KiB"), size("7")), (Ok(4 << 20), Ok(512 << 10), Ok(7)));
        assert!([size("0"), size("9999MiB"), size("MiB"), size("4MB")].iter().all(Result::is_err));
        assert_eq!((mode("0660"), mode("777"), mode("0o600")), (Ok(0o660), Ok(0o777), Ok(0o600)));
        assert!([mode("1777"), mode("8"), mode("")].iter().all(Result::is_err));
    }
}
