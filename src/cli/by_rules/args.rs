//! The command line of a replay through rules.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::mapping::DescriptorArg;
use crate::edge::rules::Charging;

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
