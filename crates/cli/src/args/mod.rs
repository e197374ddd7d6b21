//! The command line.

pub mod rules;
pub mod shared;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use tollgate::{LimitKind, Quota, QuotaError};

use self::rules::{RulesArgs, RulesCommand};
use crate::algorithm::{self, WindowOptions};
use crate::input::Selection;
use crate::store::StoreArgs;
use tollgate_report::error::Error;
use tollgate_report::{decimal, human};

/// The quota if the command line has none.
pub const DEFAULT_LIMIT: Quota = Quota::per_minute(60);

/// Rate limits for gateways and programs: serve them, check their rules, and try them on access logs
///
/// `serve` answers the questions of gateways, HTTP clients and Redis clients whether a request is within its limits, and
/// `ctl` changes single keys of a running service. `rules` checks and explains files of limits. `replay` runs an access
/// log through every algorithm or through such a file and shows which requests would have been denied, and `suggest`
/// finds the smallest limit that denies few of them.
#[derive(Parser, Debug)]
#[command(name = "tollgate", version, propagate_version = true, arg_required_else_help = true, max_term_width = 80, after_help = EXAMPLES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Replay requests through one or more algorithms and compare what each admits and denies
    ///
    /// Reads web server logs, JSON lines, CSV or TSV (plain, gzip or zstd), takes the time and the client of every
    /// request, and runs the limiter at the log's own times. Without a file it replays a generated day.
    #[command(after_help = REPLAY_EXAMPLES_SHORT, after_long_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Find the smallest limit that denies no more than a given share of requests, of clients, or of both
    ///
    /// Replays the requests with one limit after another, by bisection, and then tries the neighbours of the answer.
    /// With several periods it finds several limits that apply together.
    #[command(after_help = SUGGEST_EXAMPLES)]
    Suggest(SuggestArgs),
    /// Check and explain files of rate limiting rules, and keep them on a Redis server
    #[command(arg_required_else_help = true, after_help = RULES_EXAMPLES)]
    Rules {
        /// The command for the files.
        #[command(subcommand)]
        command: RulesCommand,
    },
    /// The service, and its client.
    #[cfg(feature = "serve")]
    #[command(flatten)]
    Service(tollgate_serve::Command<tollgate_resp::ServeResp>),
    /// Answer the questions of gateways: the rate limit service of Envoy's protocol (not in this build)
    #[cfg(not(feature = "serve"))]
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Serve {
        /// The arguments, which this program does not read.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        line: Vec<std::ffi::OsString>,
    },
    /// Print a script that completes commands, flags and values in a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write a page for each command into a folder
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// Folder for the pages of all commands [default: standard output, with the page of the program]
        folder: Option<PathBuf>,
    },
}

const EXAMPLES: &str = "\
Examples:
  A generated day through every algorithm:
    tollgate replay
  Your own log, at 100 requests a minute for each address:
    tollgate replay access.log --limit 100/60s
  The smallest limit that denies requests of at most one client in a hundred:
    tollgate suggest access.log --deny-clients 1%
  Check that a server can load these rules, and see what they would have denied:
    tollgate rules check limits.yaml
    tollgate replay access.log --rules limits.yaml

Exit codes: 0 done, 1 the input or the run failed, 2 the command line is wrong,
3 replay is done, but more than a tenth of the lines were skipped.";

const RULES_EXAMPLES: &str = "\
Examples:
  tollgate rules check limits.yaml
  tollgate rules explain limits.yaml edge path=/login remote_address=192.0.2.1
  tollgate replay access.log --rules limits.yaml
  tollgate rules push limits.yaml --to redis://127.0.0.1:6379

The language of rule files: tollgate rules check --help";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tollgate completions bash \\
    > ~/.local/share/bash-completion/completions/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish

For zsh, ~/.zfunc is in fpath before compinit runs:
  fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit";

const MAN_EXAMPLES: &str = "\
Examples:
  tollgate man | man -l -
  tollgate man ~/.local/share/man/man1
  man tollgate-replay";

const REPLAY_EXAMPLES_SHORT: &str = "Examples and details: tollgate replay --help";

const REPLAY_EXAMPLES: &str = "\
Examples:
  A generated day through every algorithm:
    tollgate replay
  A web server's logs, one of them compressed, at 100 requests a minute for each
  address:
    tollgate replay access.log.2.gz access.log.1 --limit 100/60s
  Two limits on every request, which must both admit it. The output shows how
  often each of them denies:
    tollgate replay access.log --limit 10/s --limit 300/h \\
      --algorithm sliding-window
  JSON lines with nested fields, a separate limit for each user on each route,
  and a chart:
    tollgate replay requests.jsonl --time ts --key user.id+route --limit 5/min \\
      --chart denied.svg
  CSV with date and time in two columns, IPv6 clients by their /56, and JSON
  output:
    zcat log.csv.gz | tollgate replay - --time date+time --key ip \\
      --ipv6-prefix 56 --json
  Check that the compact store needs no more than 64 KiB for this traffic:
    tollgate replay access.log --limit 100/60s --store compact --memory 64KiB
  The same for the sketch store, if there are more busy clients than the compact
  store has room for:
    tollgate replay access.log --limit 100/60s --store sketch --memory 64KiB
  The requests that a rule file would deny, by rule and by key; see below:
    tollgate replay access.log --rules limits.yaml
  A page with charts and tables, to send to others:
    tollgate replay access.log --limit 100/60s --report report.html
  The smallest limit that denies at most one request in a thousand:
    tollgate suggest access.log --deny-requests 0.1%
  The same for two limits, per hour and per second, so that no client uses an
  hour's units in one second:
    tollgate suggest access.log --deny-requests 0.1% --period 1h --period 1s

Rule files, such as limits.yaml:
    domain: edge
    descriptors:
      - key: remote_address             # each address separately
        rate_limit: { unit: second, requests_per_unit: 10 }
      - key: path
        value: /login
        descriptors:                    # requests with both, in this order
          - key: remote_address
            rate_limit: { unit: minute, requests_per_unit: 5 }
  Rules decide by descriptors: lists of keys and values that describe a request.
  The program derives the fields of the log from the keys, or you name them:
    tollgate replay access.log --rules limits.yaml \\
      --descriptor remote_address=ip \\
      --descriptor path=path,remote_address=ip
  Nested JSON, a constant, tiers, and a chart:
    tollgate replay requests.jsonl --rules limits.yaml --rules more.toml \\
      --domain api --descriptor generic_key:=api,tenant=user.tenant \\
      --tier user.plan --chart denied.svg
  The same rules, charged as in Envoy's service, with JSON output and one byte
  per request:
    tollgate replay access.log --rules limits.yaml --charging count-first \\
      --json --decisions out.bin

Exit codes: 0 done, 1 the input or the run failed, 2 the command line is wrong,
3 done, but more than a tenth of the lines were skipped.";

const SUGGEST_EXAMPLES: &str = "\
Examples:
  tollgate suggest access.log
  tollgate suggest access.log --deny-clients 1% --period 1h --algorithm all
  tollgate suggest access.log --deny-clients 1% --deny-requests 5%
  tollgate suggest requests.jsonl --key user.id --deny-requests 0.05% \\
    --period 10s --burst 50
  tollgate suggest access.log --deny-requests 0.1% --period 1h --period 1s
  tollgate suggest access.log --store compact --memory 256KiB
  tollgate suggest access.log --store sketch --memory 64KiB \\
    --algorithm sliding-window

Exit codes: 0 done, 1 the input or the run failed, or more than a tenth of the
lines were skipped, 2 the command line is wrong.";

/// The algorithms, and their settings.
#[derive(Args, Debug)]
pub struct AlgorithmArgs {
    /// Algorithm to replay through; repeat the flag for several [default: all for replay; for suggest gcra, or
    /// fixed-window with --store sketch]
    #[arg(long, value_parser = algorithm::parser(), value_name = "NAME", help_heading = "Limiter")]
    pub algorithm: Vec<Option<LimitKind>>,

    /// Units that may be used at once, for gcra, token-bucket and leaky-bucket [default: the limit]
    #[arg(long, value_name = "UNITS", value_parser = whole::<u64>, allow_negative_numbers = true, help_heading = "Limiter")]
    pub burst: Option<u64>,

    /// Settings of window algorithms.
    #[command(flatten)]
    pub windows: WindowOptions,

    /// The store.
    #[command(flatten)]
    pub stores: StoreArgs,
}

impl AlgorithmArgs {
    /// Whether the user named each algorithm, instead of `all`.
    pub fn by_name(&self) -> bool {
        !self.algorithm.is_empty() && !self.algorithm.contains(&None)
    }
}

/// `tollgate replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// The requests.
    #[command(flatten)]
    pub input: Selection,

    /// Units per period for each key, such as 100/60s, 5/min, 1000/h or "10/s burst 50" [default: 60/min]
    ///
    /// Repeat the flag to apply several limits to every request: a request is admitted, and charged to all of them, only
    /// if all admit it. Units of time: ns, us, ms, s, min, h, d, week, month (30 days), year (365 days). Months of the calendar
    /// are in rules (period: month).
    #[arg(long, short, value_name = "LIMIT/PERIOD", allow_hyphen_values = true, help_heading = "Limiter")]
    pub limit: Vec<LimitArg>,

    /// Which algorithms.
    #[command(flatten)]
    pub algorithms: AlgorithmArgs,

    /// The rule files that replace limits.
    #[command(flatten)]
    pub by_rules: RulesArgs,

    /// Print the results as JSON instead of a table; with =FILE, write them there as well as the table
    ///
    /// Durations are in nanoseconds. Each result's "against_log" counts the decisions that differ from those of an
    /// exact sliding log. That log has the same limits and holds what the algorithm admitted. The value is null if
    /// times step back (--no-sort). In each entry of a result's "limits", "refused" is the number of requests that this
    /// limit denied. If several limits deny a request, it counts for the limit with the longest wait.
    ///
    /// With --store compact each result has the store's counters in an object "compact", with --store sketch in an
    /// object "sketch": memory_bytes, wrongly_denied, wrongly_admitted and, as chances from 0 to 1, saturation
    /// (false_positive, overcounted, denied); see --store.
    ///
    /// With --rules, "results" is one object, and "rules" has the content and the counts of each rule. "matched" counts
    /// the requests that the rule applies to: it "allowed" some of them, "denied" some, and would have denied some if
    /// it were enforced ("shadow_denied"). "unlimited_allowed" requests were admitted without being counted.
    /// "uncharged" requests were denied by another rule, matched a replaced rule, or cost nothing. "hits",
    /// "near_limit", "over_limit" and "soft_limited" are in units, as in the library's metrics. "evictions" and
    /// "debt_denials" are figures of a compact store. Keys are the values by which the rule counts, or "" if all
    /// requests share one counter. In the results, "unmatched" requests matched no rule. "undescribed" requests are the
    /// unmatched requests that lack a field for every descriptor.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", help_heading = "Output")]
    pub json: Option<PathBuf>,

    /// Write one byte per record in the order of replay, 1 admitted or 0 denied (one algorithm only)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub decisions: Option<PathBuf>,

    /// Draw admitted and denied requests over time, in an SVG file such as out.svg
    #[arg(long, value_name = "FILE", value_parser = chart_path, help_heading = "Output")]
    pub chart: Option<PathBuf>,

    /// Write a page to send around, such as report.html: results, a chart, the most denied keys, and the limit for 1 %
    ///
    /// The page is one HTML file that loads nothing. It shows the results by algorithm, admitted and denied requests over
    /// time with zoom, the most denied keys with their times, and the smallest limit that would have denied at most 1 % of
    /// requests; with --rules, the results by rule. Without a script in the browser it shows the same figures as pictures
    /// and tables.
    ///
    /// The page contains the most denied keys, which can be addresses of people. --top 0 leaves them out.
    #[arg(long, value_name = "FILE", value_parser = report_path, help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// How many of the most denied keys to list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>, allow_negative_numbers = true, help_heading = "Output")]
    pub top: usize,
}

impl ReplayArgs {
    /// Returns the files to be written.
    pub fn outputs(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.decisions, &self.chart, &self.report, &self.json].into_iter().flatten()
    }

    /// Returns the limits, each with its burst.
    ///
    /// # Errors
    /// Returns an error if a limit and the burst contradict each other.
    pub fn quotas(&self) -> Result<Vec<Quota>, Error> {
        let limits = match &self.limit[..] {
            [] => &[LimitArg { quota: DEFAULT_LIMIT, own_burst: false }][..],
            limits => limits,
        };
        limits.iter().map(|limit| limit.with_burst(self.algorithms.burst)).collect()
    }
}

/// `tollgate suggest`.
#[derive(Args, Debug)]
pub struct SuggestArgs {
    /// The requests.
    #[command(flatten)]
    pub input: Selection,

    /// Deny at most this share of all requests [default: 0.1%, unless --deny-clients is given]
    #[arg(long, value_name = "SHARE", help_heading = "Goal")]
    pub deny_requests: Option<Share>,

    /// Let at most this share of clients have a denied request; with --deny-requests, limits meet both goals
    ///
    /// A few clients can send most of the requests, so this goal alone may deny many requests.
    #[arg(long, value_name = "SHARE", help_heading = "Goal")]
    pub deny_clients: Option<Share>,

    /// Period of the limit to find: 1s, 60s, 10min, h, d, month; repeat the flag for several limits, one for each period
    ///
    /// A limit with a long period needs a second limit with a short one. Otherwise a client can use an hour's units in
    /// the first second: --period 1h --period 1s.
    ///
    /// The allowed denials are divided evenly. Limits are found from the longest period to the shortest. The k-th of n
    /// limits is the smallest one that, together with the limits before it, uses at most k/n of the goal. Then each
    /// limit is lowered, in the same order, as far as the goal allows with all others in force. So no limit of the
    /// answer could be lower by one.
    #[arg(long, value_name = "PERIOD", default_value = "60s", value_parser = period, help_heading = "Goal")]
    pub period: Vec<Duration>,

    /// Which algorithms.
    #[command(flatten)]
    pub algorithms: AlgorithmArgs,

    /// Print the results as JSON instead of a table; with =FILE, write them there as well as the table
    ///
    /// Durations are in nanoseconds. Each suggestion has its "limits", in the order of the --period flags, and what
    /// they deny together. "limit", "period_ns" and "burst" are those of the first limit; "tried" lists the limits that
    /// were tried instead of the first limit, with the other limits in force.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", help_heading = "Output")]
    pub json: Option<PathBuf>,
}

impl SuggestArgs {
    /// Returns the periods, in the order of the command line.
    ///
    /// # Errors
    /// Returns an error if two periods are the same.
    pub fn periods(&self) -> Result<&[Duration], Error> {
        let twice = self.period.iter().enumerate().find(|&(at, period)| self.period[..at].contains(period));
        match twice {
            None => Ok(&self.period),
            Some((_, &period)) => Err(Error::usage(format!(
                "--period: {} is given twice; give each limit a different period",
                human::duration(period)
            ))),
        }
    }
}

/// A quota from the command line, with a flag for whether the text names its burst.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LimitArg {
    quota: Quota,
    own_burst: bool,
}

impl FromStr for LimitArg {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Self, QuotaError> {
        Ok(Self { quota: text.parse()?, own_burst: text.contains("burst") })
    }
}

impl LimitArg {
    pub fn with_burst(self, burst: Option<u64>) -> Result<Quota, Error> {
        match burst {
            Some(burst) if !self.own_burst => {
                self.quota.try_burst(burst).map_err(|error| Error::usage(format!("--burst {burst}: {error}")))
            }
            _ => Ok(self.quota),
        }
    }
}

/// An exact share of a whole. A limit that denies exactly the share still meets it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// In billionths.
    pub billionths: u64,
}

impl Share {
    /// Returns whether `part` of `whole` is at most this share.
    pub fn allows(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 1_000_000_000 <= u128::from(whole) * u128::from(self.billionths)
    }
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, power) = match text.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 7),
            None => (text, 9),
        };
        match decimal::scaled(number.as_bytes(), power) {
            // Almost certainly one percent was meant.
            Ok(scaled) if scaled.value == 1_000_000_000 && power == 9 => {
                Err("a share of 1 is all of them; write 1%, or 100% for all")
            }
            Ok(scaled) if scaled.value <= 1_000_000_000 => Ok(Self { billionths: scaled.value }),
            _ => Err("expected a share from 0% to 100%, such as 0.1% or 0.001"),
        }
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.billionths / 10_000_000, self.billionths % 10_000_000);
        let digits = format!("{rest:07}");
        match digits.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            digits => write!(f, "{whole}.{digits}%"),
        }
    }
}

fn period(text: &str) -> Result<Duration, String> {
    let quota: Result<Quota, QuotaError> = format!("1/{text}").parse();
    quota
        .map(|quota| quota.period())
        .map_err(|_| "expected a period such as 60s, min, 100ms, 12h or 7d".to_owned())
}

/// Parses a number; the error states the valid range.
fn whole<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "expected a whole number, such as 20")
}

fn report_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("html" | "htm") => Ok(path),
        Some("svg") => {
            Err("a report is an HTML page: name a file such as report.html, or use --chart for an SVG"
                .to_owned())
        }
        _ => Err("expected a file name that ends in .html".to_owned()),
    }
}

fn chart_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("svg") => Ok(path),
        Some("png") => Err("charts are SVG: name a file such as out.svg. Browsers show it, and rsvg-convert makes a PNG of it".to_owned()),
        _ => Err("expected a file name that ends in .svg".to_owned()),
    }
}
