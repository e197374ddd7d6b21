//! The command line of the commands for rule files.

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand};

use super::shared::{DiffArgs, EXAMPLES, PullArgs, PushArgs};
use crate::input::Selection;
use tollgate_report::charging::ChargingArg;
use tollgate_report::descriptor::{DescriptorArg, RequestArgs};

/// `tollgate rules`.
#[derive(Subcommand, Debug)]
pub enum RulesCommand {
    /// Check files of rules, and show their contents
    ///
    /// Reads each file as YAML, JSON or TOML, by its file extension. The language is that of Envoy's rate limit service
    /// with this library's extensions. Prints every error with file, line, column and remedy. Also warns of rules that
    /// are valid but probably not intended, such as a wildcard that is never used, or a value that no request has. Shows the rules that a server would
    /// load from the files.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Box<CheckArgs>),
    /// Show which rules apply to a request, and why others do not
    ///
    /// Reads a file of rules as `tollgate rules check` does, and shows each rule that applies to the request, with its
    /// counter and its figures. Also shows the rules that nearly apply, each with the reason. All counters are new,
    /// so the answer is that to a client's first request.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Check a file of rules, and write it to a Redis or Valkey server that processes follow
    ///
    /// Prints what changed. Each push is a new version. If somebody else pushed a version in between, nothing is
    /// written. The server keeps the last five versions before the present one.
    #[command(after_help = EXAMPLES)]
    Push(PushArgs),
    /// Print the rules on a server
    ///
    /// Prints the text to standard output, and its version, who pushed it and when to standard error.
    // Here, `--version` is the version of the rules.
    #[command(disable_version_flag = true, after_help = EXAMPLES)]
    Pull(PullArgs),
    /// Show the rules that a push would add, change and remove
    #[command(after_help = EXAMPLES)]
    Diff(DiffArgs),
}

const CHECK_EXAMPLES: &str = "\
A rule file, limits.yaml:
  domain: edge
  descriptors:
    - key: remote_address             # each address separately
      rate_limit: { unit: second, requests_per_unit: 10 }
    - key: remote_address
      value: 198.51.100.20            # this address has no limit
    - key: path
      value: /login
      descriptors:                    # requests with both, in this order
        - key: remote_address
          rate_limit: { unit: minute, requests_per_unit: 5 }

Examples:
  tollgate rules check limits.yaml
  tollgate rules check edge.yaml api.toml --json
  tollgate rules check rules/*.yaml --merge-domains
  kubectl get configmap limits -o yaml | yq '.data[\"limits.yaml\"]' |
    tollgate rules check -
  tollgate rules check limits.yaml --log access.log \\
    --descriptor path=path,remote_address=ip

Exit codes: 0 the files can be used, 1 they cannot, 2 the command line is wrong,
3 they can, but more than a tenth of the log's lines were skipped. Warnings
do not change the exit code.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tollgate rules explain limits.yaml edge remote_address=192.0.2.1
  tollgate rules explain limits.yaml edge path=/login remote_address=192.0.2.1
  tollgate rules explain limits.yaml edge remote_address=192.0.2.1 \\
    --descriptor path=/login,remote_address=192.0.2.1 --cost 5 --json

Exit codes: 0 the rules are explained, whatever they decide, 1 the file cannot be
used, 2 the command line is wrong.";

/// `tollgate rules explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// File or folder of rules; - is standard input
    pub file: PathBuf,

    /// The request.
    #[command(flatten)]
    pub request: RequestArgs,

    /// Units that the request costs; 0 only asks
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    pub cost: u64,

    /// Let several files of the folder share one domain: their descriptors are appended in order
    #[arg(long)]
    pub merge_domains: bool,

    /// Print the answer and the rules as JSON instead of a table
    ///
    /// New fields may be added; these fields keep their names and meaning. Durations are in nanoseconds, shares in
    /// millionths of all keys. "others" is the number of rules that do not apply and are not listed.
    #[arg(long)]
    pub json: bool,
}

/// `tollgate rules check`.
#[derive(Args, Debug)]
#[command(mut_arg("files", log), mut_arg("key", no_key), mut_args(only_with_log))]
pub struct CheckArgs {
    /// Files of rules, whose names end in .yaml, .yml, .json or .toml; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub rules: Vec<PathBuf>,

    /// Let several files share one domain: their descriptors are appended in order
    ///
    /// Without it each domain must be in one file. Descriptors that occur twice are an error in both cases.
    #[arg(long)]
    pub merge_domains: bool,

    /// Print rules, warnings and errors as JSON instead of a table
    ///
    /// Durations are in nanoseconds, shares in millionths of all keys.
    #[arg(long)]
    pub json: bool,

    /// The log.
    #[command(flatten)]
    pub input: Selection,

    /// The descriptors of the log's requests.
    #[command(flatten)]
    pub mapping: MappingArgs,
}

/// Turns the input files into the flag `--log`.
fn log(files: Arg) -> Arg {
    files
        .long("log")
        .num_args(1)
        .help("Log in which to look for rules that apply to no request; repeat the flag for several files")
        .long_help(
            "Log in which to look for rules that apply to no request; repeat the flag for several files; - is standard input\n\n\
             Requests get descriptors and are decided as in `tollgate replay --rules`. The program warns of each rule that \
             applied to no request: its keys or values may be misspelt, or another rule hides it.",
        )
}

/// Flags that conflict with rules, because rules define the key.
fn no_key(key: Arg) -> Arg {
    key.hide(true).conflicts_with("rules")
}

/// Flags for reading a log, which need a log.
fn only_with_log(arg: Arg) -> Arg {
    match arg.get_help_heading() {
        Some("Input" | "Rules") => arg.requires("files"),
        _ => arg,
    }
}

/// Replay through rules instead of `--limit`.
#[derive(Args, Debug)]
pub struct RulesArgs {
    /// Replay through the rules of this file, instead of --limit; repeat the flag for several files
    ///
    /// The file is YAML, JSON or TOML, in the language of Envoy's rate limit service with this library's extensions, as
    /// `tollgate rules check` reads it. Every request gets the descriptors of --descriptor and is decided as on a
    /// server, at the log's own time. The output lists denied requests by rule and by key.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Rules",
        conflicts_with_all = ["limit", "algorithm", "burst", "sub_windows", "strict_windows", "store", "memory", "overflow", "key"]
    )]
    pub rules: Vec<PathBuf>,

    /// The descriptors of requests.
    #[command(flatten)]
    pub mapping: MappingArgs,

    /// Whether denied requests are charged [default: the setting in the files]
    #[arg(long, value_enum, value_name = "HOW", requires = "rules", help_heading = "Rules")]
    pub charging: Option<ChargingArg>,

    /// Let several files share one domain: their descriptors are appended in order
    #[arg(long, requires = "rules", help_heading = "Rules")]
    pub merge_domains: bool,
}

/// The descriptors of a log's requests, for rules.
#[derive(Args, Clone, Debug)]
pub struct MappingArgs {
    /// One descriptor of every request, as KEY=FIELD[,KEY=FIELD…]; repeat the flag for several [default: derived
    /// from the rules]
    ///
    /// Each entry is a key of the rules and the log field with its value: path=bare_path,remote_address=ip. KEY:=TEXT
    /// uses the text itself as the value: generic_key:=api. Put keys, fields and texts that contain a comma, an equals
    /// sign or a quote in single quotes: KEY:='a,b'; write a quote in quotes twice. The order matters, as it does for
    /// rules.
    ///
    /// Fields are as for --key: in log format, ip, user, method, path, bare_path (without the query, for a gateway that
    /// removes it) and so on; in JSON, dotted paths. If a request lacks a field, or the field is empty or -, the request does not have that
    /// descriptor, as with Envoy. Text that is not UTF-8 is read with \xNN for each invalid byte.
    ///
    /// By default there is one descriptor for each list of keys that leads to a rule. The fields have the same name as
    /// the key, or a usual one: remote_address is the field that has addresses, path is the path with its query, as in Envoy's :path;
    /// generic_key has the rule's own value.
    #[arg(long, value_name = "KEY=FIELD,…", requires = "rules", help_heading = "Rules")]
    pub descriptor: Vec<DescriptorArg>,

    /// The domain whose rules apply; required if the files have several
    #[arg(long, value_name = "DOMAIN", requires = "rules", help_heading = "Rules")]
    pub domain: Option<String>,

    /// Field of the request's domain, instead of --domain; requests of a domain without rules are counted and admitted
    #[arg(long, value_name = "FIELD", requires = "rules", conflicts_with = "domain", help_heading = "Rules")]
    pub domain_field: Option<String>,

    /// Field of the client's tier, for rules with different limits per tier
    #[arg(long, value_name = "FIELD", requires = "rules", help_heading = "Rules")]
    pub tier: Option<String>,
}
