//! The command line of the commands for rule files.

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand, ValueEnum};
use tollgate::rules::Charging;

use super::descriptor::DescriptorArg;
use crate::input::Selection;

/// `tollgate rules`.
#[derive(Subcommand, Debug)]
pub enum RulesCommand {
    /// Check files of rules, and show what they say
    ///
    /// Reads each file, by its ending as YAML, JSON or TOML, in the language of Envoy's rate limit service and ours beyond it.
    /// Everything that is wrong is told with file, line and column, and what would be right; so is what is allowed but
    /// hardly meant, as a wildcard that is never reached. Files that are right are shown as the rules that a server would load.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
}

const CHECK_EXAMPLES: &str = "\
A file of rules, limits.yaml:
  domain: edge
  descriptors:
    - key: remote_address             # each address apart
      rate_limit: { unit: second, requests_per_unit: 10 }
    - key: remote_address
      value: 198.51.100.20            # but for this one, which has no limit
    - key: path
      value: /login
      descriptors:                    # requests with both entries, in this order
        - key: remote_address
          rate_limit: { unit: minute, requests_per_unit: 5 }

Examples:
  tollgate rules check limits.yaml
  tollgate rules check edge.yaml api.toml --json
  tollgate rules check rules/*.yaml --merge-domains
  tollgate rules check limits.yaml --log access.log --descriptor path=bare_path,remote_address=ip

Exit codes: 0 the files can be used, 1 they cannot, 2 the command line is wrong. Warnings change nothing about that.";

/// `tollgate rules check`.
#[derive(Args, Debug)]
#[command(mut_arg("files", log), mut_arg("key", no_key), mut_args(only_with_log))]
pub struct CheckArgs {
    /// Files of rules, whose names end in .yaml, .yml, .json or .toml
    #[arg(value_name = "FILE", required = true)]
    pub rules: Vec<PathBuf>,

    /// Let several files be of one domain: their descriptors come one after another
    ///
    /// Without it each domain is in one file. Descriptors that occur twice are wrong either way.
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

    /// As what its requests are described.
    #[command(flatten)]
    pub mapping: MappingArgs,
}

/// The rule files of a replay.
fn log(files: Arg) -> Arg {
    files
        .long("log")
        .num_args(1)
        .help("Log in which to look for rules that apply to no request; repeat it for several files")
        .long_help(
            "Log in which to look for rules that apply to no request; repeat it for several files; - is standard input\n\n\
             Every request is described and decided as by `tollgate replay --rules`. Each rule that applied to none is a \
             warning: its keys or values may be misspelt, or another rule hides it.",
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

/// Through rules instead of `--limit`.
#[derive(Args, Debug)]
pub struct RulesArgs {
    /// Replay through the rules of this file, instead of --limit; repeat it for several files
    ///
    /// The file is YAML, JSON or TOML, in the language of Envoy's rate limit service and ours beyond it, as `tollgate rules check`
    /// reads it. Every request is described as --descriptor says and decided as a server would, in the log's own time; who is
    /// denied is told by rule and by key.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Rules",
        conflicts_with_all = ["limit", "algorithm", "burst", "sub_windows", "strict_windows", "store", "memory", "overflow", "key"]
    )]
    pub rules: Vec<PathBuf>,

    /// What requests are.
    #[command(flatten)]
    pub mapping: MappingArgs,

    /// What requests that are refused are charged [default: as the files say]
    #[arg(long, value_enum, value_name = "HOW", requires = "rules", help_heading = "Rules")]
    pub charging: Option<ChargingArg>,

    /// Let several files be of one domain: their descriptors come one after another
    #[arg(long, requires = "rules", help_heading = "Rules")]
    pub merge_domains: bool,
}

/// As what requests of a log are described to rules.
#[derive(Args, Clone, Debug)]
pub struct MappingArgs {
    /// One descriptor of every request, as KEY=FIELD[,KEY=FIELD…]; repeat it for several [default: what the rules ask for]
    ///
    /// Each entry is a key of the rules and the log's field that has its value: path=bare_path,remote_address=ip. KEY:=TEXT has the
    /// text itself for a value: generic_key:=api. Keys, fields and texts with a comma, an equals sign or a quote in them are put in
    /// single quotes: KEY:='a,b'; a quote in quotes is written twice. The order counts, as it does for rules.
    ///
    /// Fields are as for --key: of log format, ip, user, method, path, bare_path (without the query) and so on; of JSON, dotted paths.
    /// A request that lacks a field, or where it is empty or -, does not have that descriptor, as with Envoy. Text that is not
    /// UTF-8 is read with \xNN for each wrong byte.
    ///
    /// By default there is one descriptor for each list of keys that leads to a rule. Fields are those of the same name, or
    /// with a usual one: remote_address is ip or client, path is bare_path; generic_key has the rule's own value.
    #[arg(long, value_name = "KEY=FIELD,…", requires = "rules", help_heading = "Rules")]
    pub descriptor: Vec<DescriptorArg>,

    /// The domain whose rules are asked; needed if the files have several
    #[arg(long, value_name = "DOMAIN", requires = "rules", help_heading = "Rules")]
    pub domain: Option<String>,

    /// Field of the request's domain, instead of --domain; a domain without rules is counted, and admits
    #[arg(long, value_name = "FIELD", requires = "rules", conflicts_with = "domain", help_heading = "Rules")]
    pub domain_field: Option<String>,

    /// Field of the client's tier, for rules with limits for each tier
    #[arg(long, value_name = "FIELD", requires = "rules", help_heading = "Rules")]
    pub tier: Option<String>,
}

/// What is charged for requests that are refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum ChargingArg {
    /// All limits of a request are charged, or none.
    AllOrNothing,
    /// Every limit counts every request, refused ones too, as Envoy's service does.
    CountFirst,
}

impl From<ChargingArg> for Charging {
    fn from(arg: ChargingArg) -> Self {
        match arg {
            ChargingArg::AllOrNothing => Self::AllOrNothing,
            ChargingArg::CountFirst => Self::CountFirst,
        }
    }
}
