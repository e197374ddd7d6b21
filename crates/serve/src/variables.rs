//! The variables of Envoy's Go service (envoyproxy/ratelimit), as flags of this program.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use super::duration;

/// Where the Go service reads rules by default.
const RUNTIME_ROOT: &str = "/srv/runtime_data/current";

/// The variables that have a meaning, or a warning of their own, beside a Redis server only.
const PREFIX: &str = "CACHE_KEY_PREFIX";
const JITTER: &str = "EXPIRATION_JITTER_MAX_SECONDS";

/// The variables that have no effect here. A name that ends in `_` stands for all variables that begin with it.
const UNUSED: [&str; 15] = [
    PREFIX,
    "DISABLE_STATS",
    JITTER,
    "EXTRA_TAGS",
    "GRPC_SERVER_TLS_CA_CERT",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    "MEMCACHE_",
    "SETTINGS_PATH",
    "STATSD_",
    "STATS_FLUSH_INTERVAL",
    "UNLIMITED_REQUESTS_HITS",
    "USE_DOG_STATSD",
    "USE_DOG_STATSD_MOGRIFIERS",
    "USE_STATSD",
    "XDS_RESOURCE_",
];

/// The families of variables that have no effect here either, except those that are read. Newer versions of the Go service
/// add to them.
const FAMILIES: [&str; 5] = ["CONFIG_GRPC_XDS_", "PROMETHEUS_", "REDIS_", "TRACING_", "XDS_CLIENT_"];

/// Whether Kubernetes adds such a variable, for a service that is called `redis` or `tollgate`.
pub fn is_of_kubernetes(name: &str) -> bool {
    name.contains("_SERVICE_") || name.ends_with("_PORT") || name.contains("_PORT_")
}

/// A flag that stands for some variables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flag {
    /// The flag's name in the parser of the command line.
    pub id: &'static str,
    /// The arguments: the flag, and its value if it has one.
    pub args: Vec<String>,
    /// The variables that it stands for.
    pub from: Vec<&'static str>,
    /// What is shown of the value, if it may have a secret in it.
    pub shown: Option<String>,
}

/// The flags that stand for the variables of an environment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Translation {
    /// The flags.
    pub flags: Vec<Flag>,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

impl Translation {
    /// Translates an environment.
    ///
    /// # Errors
    /// Returns an error if a variable has an invalid value, or asks for something that this program does not have.
    pub fn of(environment: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut reader = Reader { environment, asked: RefCell::default(), out: Self::default() };
        reader.endpoints()?;
        reader.tls()?;
        reader.rules()?;
        reader.redis()?;
        reader.answers()?;
        #[cfg(feature = "otlp")]
        reader.traces()?;
        reader.unused()?;
        Ok(reader.out)
    }

    /// Returns the names of the variables that were taken.
    pub fn taken(&self) -> BTreeSet<&'static str> {
        self.flags.iter().flat_map(|flag| flag.from.iter().copied()).collect()
    }

    /// Returns what sets a flag: its variables, or the flag itself.
    pub fn source(&self, flag: &str) -> String {
        let taken = self.flags.iter().find(|taken| taken.args.first().is_some_and(|arg| arg == flag));
        taken.map_or_else(|| flag.to_owned(), |taken| taken.from.join(" and "))
    }
}

struct Reader<'e> {
    environment: &'e BTreeMap<String, String>,
    /// The names of all variables that were read.
    asked: RefCell<BTreeSet<String>>,
    out: Translation,
}

impl Reader<'_> {
    /// Returns a variable's value. An empty value is as none.
    fn get(&self, name: &str) -> Option<String> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.environment.get(name).filter(|value| !value.is_empty()).cloned()
    }

    /// Parses a boolean as Go does.
    fn is(&self, name: &str) -> Result<Option<bool>, String> {
        match self.get(name).as_deref() {
            None => Ok(None),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
            Some(other) => Err(format!("{name}={other}: expected true or false")),
        }
    }

    fn flag<const N: usize>(&mut self, id: &'static str, value: Option<String>, from: [&'static str; N]) {
        let args = [format!("--{}", id.replace('_', "-"))].into_iter().chain(value).collect();
        let from = from.into_iter().filter(|name| self.get(name).is_some()).collect();
        self.out.flags.push(Flag { id, args, from, shown: None });
    }

    /// Sets what is shown of the last flag's value, if that differs.
    fn hide(&mut self, shown: &str) {
        if let Some(flag) = self.out.flags.last_mut() {
            flag.shown = Some(shown.to_owned()).filter(|shown| flag.args.last() != Some(shown));
        }
    }

    /// Adds a flag with the value of a variable, if the variable is set.
    fn same(&mut self, id: &'static str, name: &'static str) {
        if let Some(value) = self.get(name) {
            self.flag(id, Some(value), [name]);
        }
    }

    /// Adds a flag without a value, if a variable is true.
    fn switch(&mut self, id: &'static str, name: &'static str) -> Result<(), String> {
        if self.is(name)? == Some(true) {
            self.flag(id, None, [name]);
        }
        Ok(())
    }

    /// Adds the flag of an endpoint, if one of its variables is set.
    fn address(&mut self, id: &'static str, names: [&'static str; 2], default: (&str, &str)) {
        let [host, port] = names.map(|name| self.get(name));
        if host.is_some() || port.is_some() {
            let host = host.unwrap_or_else(|| default.0.to_owned());
            let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
            let port = port.unwrap_or_else(|| default.1.to_owned());
            self.flag(id, Some(format!("{host}:{port}")), names);
        }
    }

    fn endpoints(&mut self) -> Result<(), String> {
        // There, a socket replaces the port.
        if self.get("GRPC_UDS").is_some() {
            self.same("grpc_socket", "GRPC_UDS");
        } else {
            self.address("grpc", ["GRPC_HOST", "GRPC_PORT"], ("0.0.0.0", "8081"));
        }
        self.address("http", ["HOST", "PORT"], ("0.0.0.0", "8080"));
        // The Go service serves its debug pages to everyone by default. Here, this takes DEBUG_HOST.
        self.address("debug", ["DEBUG_HOST", "DEBUG_PORT"], ("127.0.0.1", "6070"));
        self.same("connection_age", "GRPC_MAX_CONNECTION_AGE");
        self.same("connection_grace", "GRPC_MAX_CONNECTION_AGE_GRACE");
        if self.is("USE_PROMETHEUS")? == Some(true) {
            let address = self.get("PROMETHEUS_ADDR").unwrap_or_else(|| ":9090".to_owned());
            self.flag("metrics", Some(address), ["USE_PROMETHEUS", "PROMETHEUS_ADDR"]);
            self.flag("go_metrics", None, ["USE_PROMETHEUS"]);
            self.same("metrics_path", "PROMETHEUS_PATH");
            self.switch("go_metrics_milliseconds", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS")?;
        }
        Ok(())
    }

    fn tls(&mut self) -> Result<(), String> {
        if self.is("GRPC_SERVER_USE_TLS")? == Some(true) {
            for name in ["GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"] {
                if self.get(name).is_none() {
                    return Err(format!("GRPC_SERVER_USE_TLS is true, but {name} is not set"));
                }
            }
            self.same("tls_cert", "GRPC_SERVER_TLS_CERT");
            self.same("tls_key", "GRPC_SERVER_TLS_KEY");
            self.same("client_ca", "GRPC_CLIENT_TLS_CACERT");
            if self.get("GRPC_CLIENT_TLS_SAN").is_some() && self.get("GRPC_CLIENT_TLS_CACERT").is_none() {
                return Err("GRPC_CLIENT_TLS_SAN needs GRPC_CLIENT_TLS_CACERT".to_owned());
            }
            self.same("client_san", "GRPC_CLIENT_TLS_SAN");
        }
        Ok(())
    }

    fn rules(&mut self) -> Result<(), String> {
        let is_xds = match self.get("CONFIG_TYPE").as_deref() {
            None | Some("FILE") => false,
            Some("GRPC_XDS_SOTW") => true,
            Some(other) => return Err(format!("CONFIG_TYPE={other}: expected FILE or GRPC_XDS_SOTW")),
        };
        if is_xds {
            self.xds()?;
        }
        let parts = ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"];
        let [root, sub, app] = parts.map(|name| self.get(name));
        let named = root.is_some() || sub.is_some() || app.is_some();
        let mut path = PathBuf::from(root.unwrap_or_else(|| RUNTIME_ROOT.to_owned()));
        path.extend(sub);
        path.push(app.unwrap_or_else(|| "config".to_owned()));
        // Without a variable, the folder is the Go service's default. It counts only if it exists.
        if !is_xds && (named || Path::new(&path).is_dir()) {
            let from = parts.into_iter().filter(|name| self.get(name).is_some()).collect();
            let args = vec![path.to_string_lossy().into_owned()];
            self.out.flags.push(Flag { id: "paths", args, from, shown: None });
        }
        // Both are always as if they were true.
        self.is("RUNTIME_IGNOREDOTFILES")?;
        self.is("RUNTIME_WATCH_ROOT")?;
        self.switch("start_without_rules", "FORCE_START_WITHOUT_INITIAL_CONFIG")?;
        self.switch("unhealthy_without_rules", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED")?;
        self.switch("merge_domains", "MERGE_DOMAIN_CONFIG")?;
        self.switch("shadow", "SHADOW_MODE")?;
        self.switch("quota", "QUOTA_MODE")?;
        self.same("near_limit", "NEAR_LIMIT_RATIO");
        let name = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT";
        if let Some(stop) = self.is(name)? {
            let charging = if stop { "count-denials" } else { "count-first" };
            self.flag("charging", Some(charging.to_owned()), [name]);
        }
        Ok(())
    }

    /// Reads where the control plane is, from which rules come instead of from files.
    fn xds(&mut self) -> Result<(), String> {
        let url = self.get("CONFIG_GRPC_XDS_SERVER_URL").unwrap_or_else(|| "localhost:18000".to_owned());
        self.flag("xds", Some(url), ["CONFIG_TYPE", "CONFIG_GRPC_XDS_SERVER_URL"]);
        for (id, name) in [
            ("xds_node_id", "CONFIG_GRPC_XDS_NODE_ID"),
            ("xds_node_metadata", "CONFIG_GRPC_XDS_NODE_METADATA"),
            ("xds_headers", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"),
            ("xds_retry", "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL"),
            ("xds_pause", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL"),
            ("xds_max_pause", "XDS_CLIENT_BACKOFF_MAX_INTERVAL"),
            ("xds_max_message", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"),
        ] {
            // There, a size of 0 is the default.
            if self.get(name).is_some_and(|value| value != "0") {
                self.same(id, name);
                // They may be credentials.
                if id == "xds_headers" {
                    self.hide(HIDDEN);
                }
            }
        }
        let spread = self.get("XDS_CLIENT_BACKOFF_RANDOM_FACTOR");
        if self.is("XDS_CLIENT_BACKOFF_JITTER")? == Some(false) {
            self.flag("xds_spread", Some("0".to_owned()), ["XDS_CLIENT_BACKOFF_JITTER"]);
        } else if spread.is_some() {
            self.flag("xds_spread", spread, ["XDS_CLIENT_BACKOFF_RANDOM_FACTOR"]);
        }
        if self.is("CONFIG_GRPC_XDS_SERVER_USE_TLS")? == Some(true) {
            self.flag("xds_tls", None, ["CONFIG_GRPC_XDS_SERVER_USE_TLS"]);
            self.same("xds_cert", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT");
            self.same("xds_key", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY");
            self.same("xds_ca", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT");
            self.same("xds_san", "CONFIG_GRPC_XDS_SERVER_TLS_SAN");
        }
        Ok(())
    }

    fn redis(&mut self) -> Result<(), String> {
        match self.get("BACKEND_TYPE").as_deref() {
            None | Some("redis") => {}
            Some("memcache") => {
                return Err("BACKEND_TYPE=memcache: limits are counted in this process or in Redis; \
                     remove the variable, or set it to redis"
                    .to_owned());
            }
            Some(other) => return Err(format!("BACKEND_TYPE={other}: expected redis")),
        }
        let kind = self.get("REDIS_TYPE").unwrap_or_else(|| "SINGLE".to_owned()).to_ascii_uppercase();
        if !["SINGLE", "CLUSTER", "SENTINEL"].contains(&&*kind) {
            return Err(format!("REDIS_TYPE={kind}: expected SINGLE, CLUSTER or SENTINEL"));
        }
        let socket = self.get("REDIS_SOCKET_TYPE");
        if let Some(other) = socket.as_deref().filter(|kind| !["tcp", "unix"].contains(kind)) {
            return Err(format!("REDIS_SOCKET_TYPE={other}: expected tcp or unix"));
        }
        let Some(address) = self.get("REDIS_URL") else {
            return if kind == "SENTINEL" { Err(SENTINEL_URL.to_owned()) } else { Ok(()) };
        };
        let tls = self.is("REDIS_TLS")? == Some(true);
        let auths = ["REDIS_AUTH", "REDIS_SENTINEL_AUTH"];
        let auths =
            auths.map(|name| if name == auths[0] || kind == "SENTINEL" { self.get(name) } else { None });
        let url = |auths: [Option<&str>; 2]| redis_url(&kind, &address, tls, socket.as_deref(), auths);
        let whole = url(auths.each_ref().map(|auth| auth.as_deref()))?;
        // It is not known which part of such an address is a password, which may contain any sign.
        let shown = match address.contains(['@', '?', '%']) {
            true => HIDDEN.to_owned(),
            false => url(auths.each_ref().map(|auth| auth.as_ref().map(|_| HIDDEN)))?,
        };
        let mut from = ["REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_AUTH", "REDIS_TLS"];
        if kind == "SENTINEL" {
            from[2] = "REDIS_SENTINEL_AUTH";
        }
        self.flag("redis", Some(whole), from);
        self.hide(&shown);
        self.same("redis_prefix", PREFIX);
        self.reasons();
        if tls {
            self.redis_tls()?;
        }
        if let Some(timeout) = self.get("REDIS_TIMEOUT")
            && duration::parse(&timeout).map_err(|why| format!("REDIS_TIMEOUT: {why}"))?
                > Duration::from_millis(15)
        {
            self.out.warnings.push(format!(
                "REDIS_TIMEOUT={timeout} has no effect: an answer waits at most for --deadline, and a rule at most \
                 for its own `timeout`"
            ));
        }
        Ok(())
    }

    fn redis_tls(&mut self) -> Result<(), String> {
        self.same("redis_ca", "REDIS_TLS_CACERT");
        self.same("redis_cert", "REDIS_TLS_CLIENT_CERT");
        self.same("redis_key", "REDIS_TLS_CLIENT_KEY");
        if self.is("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION")? == Some(true) {
            let warning = "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION has no effect: the server's name is verified";
            self.out.warnings.push(warning.to_owned());
        }
        Ok(())
    }

    /// Warns of variables about Redis that cannot mean here what they mean there, and says why.
    fn reasons(&mut self) {
        if self.get(JITTER).is_some_and(|seconds| seconds.trim() != "0") {
            self.out.warnings.push(format!(
                "{JITTER} has no effect: a key on the server expires when its client owes nothing, and the scripts that \
                 decide this are the same in every process"
            ));
        }
        let is_startup = |name: &&String| name.starts_with("REDIS_STARTUP_");
        let names: Vec<String> = self.environment.keys().filter(is_startup).cloned().collect();
        if !names.is_empty() {
            self.out.warnings.push(format!(
                "{} have no effect: the service starts without waiting for Redis, connects when a request needs it, \
                 and tries again for as long as it runs; until then the `on_failure` of each rule decides",
                names.join(", ")
            ));
            self.asked.borrow_mut().extend(names);
        }
    }

    fn answers(&mut self) -> Result<(), String> {
        self.switch("dynamic_metadata", "RESPONSE_DYNAMIC_METADATA")?;
        if self.is("LIMIT_RESPONSE_HEADERS_ENABLED")? == Some(true) {
            self.flag("limit_headers", Some("ratelimit".to_owned()), ["LIMIT_RESPONSE_HEADERS_ENABLED"]);
            let names = ["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"];
            let [limit, remaining, reset] = names.map(|name| self.get(name));
            if limit.is_some() || remaining.is_some() || reset.is_some() {
                let or = |name: Option<String>, default: &str| name.unwrap_or_else(|| default.to_owned());
                let value = [
                    or(limit, "RateLimit-Limit"),
                    or(remaining, "RateLimit-Remaining"),
                    or(reset, "RateLimit-Reset"),
                ];
                self.flag("limit_header_names", Some(value.join(",")), names);
            }
        }
        if let Some(level) = self.get("LOG_LEVEL") {
            let level = level.to_ascii_lowercase();
            let own = match &*level {
                "panic" | "fatal" => "error",
                "warning" => "warn",
                "trace" => "debug",
                level => level,
            };
            self.flag("log", Some(own.to_owned()), ["LOG_LEVEL"]);
        }
        if let Some(format) = self.get("LOG_FORMAT") {
            self.flag("log_format", Some(format.to_ascii_lowercase()), ["LOG_FORMAT"]);
        }
        Ok(())
    }

    /// The collector's address is in a variable of OpenTelemetry, OTEL_EXPORTER_OTLP_ENDPOINT, for both services.
    #[cfg(feature = "otlp")]
    fn traces(&mut self) -> Result<(), String> {
        if self.is("TRACING_ENABLED")? != Some(true) {
            return Ok(());
        }
        self.flag("otlp", None, ["TRACING_ENABLED"]);
        self.same("otlp_protocol", "TRACING_EXPORTER_PROTOCOL");
        self.same("otlp_sample", "TRACING_SAMPLING_RATE");
        let names = ["TRACING_SERVICE_NAME", "TRACING_SERVICE_NAMESPACE", "TRACING_SERVICE_INSTANCE_ID"];
        let keys = ["service.name", "service.namespace", "service.instance.id"];
        let pairs =
            names.iter().zip(keys).filter_map(|(name, key)| Some(format!("{key}={}", self.get(name)?)));
        let pairs: Vec<String> = pairs.collect();
        if !pairs.is_empty() {
            self.flag("otlp_attributes", Some(pairs.join(",")), names);
        }
        Ok(())
    }

    fn unused(&mut self) -> Result<(), String> {
        // It is on by default there, so a file that switches it off needs no remark.
        let statsd = self.is("USE_STATSD")? == Some(true);
        let asked = self.asked.borrow();
        let is_unused = |name: &&String| {
            let is_of = |family: &&str| family.ends_with('_') && name.starts_with(*family);
            let is_listed = UNUSED.iter().any(|unused| *unused == **name || is_of(unused));
            let is_unread =
                || FAMILIES.iter().any(is_of) && !asked.contains(*name) && !is_of_kubernetes(name);
            let is_reported = || [PREFIX, JITTER].contains(&&***name) && asked.contains(*name);
            (is_listed && !is_reported() || is_unread()) && (statsd || *name != "USE_STATSD")
        };
        let names: Vec<&str> = self.environment.keys().filter(is_unused).map(String::as_str).collect();
        drop(asked);
        if !names.is_empty() {
            self.out.warnings.push(format!("these variables have no effect here: {}", names.join(", ")));
        }
        Ok(())
    }
}

/// Stands for a secret. An address shows it as it is.
pub const HIDDEN: &str = "***";

/// The signs that a part of an address must not have.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'*');

/// Returns the address of a Redis server. `auths` are for the server and for its Sentinels.
fn redis_url(
    kind: &str,
    address: &str,
    tls: bool,
    socket: Option<&str>,
    [auth, of_sentinels]: [Option<&str>; 2],
) -> Result<String, String> {
    if kind == "SENTINEL" {
        return sentinel_url(address, auth, of_sentinels, tls);
    }
    let path = address.strip_prefix("unix://").filter(|path| !path.contains('?')).unwrap_or(address);
    if socket.is_none_or(|kind| kind == "unix") && path.starts_with('/') {
        return Ok(unix_url(path, auth));
    }
    // A list is one of a Cluster's nodes; a single node of a Cluster is written twice, to be a list.
    let nodes: Vec<String> = address.split(',').map(|node| node_url(node, auth, tls)).collect();
    Ok(match (kind, &nodes[..]) {
        ("CLUSTER", [node]) => format!("{node},{node}"),
        _ => nodes.join(","),
    })
}

/// Returns the address of a Unix socket.
fn unix_url(path: &str, auth: Option<&str>) -> String {
    let Some(auth) = auth else { return format!("unix://{path}") };
    let (user, password) = auth.split_once(':').unwrap_or(("default", auth));
    format!("unix://{path}?user={}&pass={}", encoded(user), encoded(password))
}

/// Returns the address of a node, which may have its scheme already. TLS that is asked for stays, whatever the scheme.
fn node_url(node: &str, auth: Option<&str>, tls: bool) -> String {
    let (scheme, node) = match node.trim().split_once("://") {
        None => (if tls { "rediss" } else { "redis" }, node.trim()),
        Some(("redis", node)) if tls => ("rediss", node),
        Some((scheme @ ("redis" | "rediss"), node)) => (scheme, node),
        Some(_) => return node.trim().to_owned(),
    };
    let Some(auth) = auth.filter(|_| !node.contains('@')) else { return format!("{scheme}://{node}") };
    format!("{scheme}://{}@{node}", pair(auth))
}

const SENTINEL_URL: &str = "REDIS_TYPE=SENTINEL: expected REDIS_URL=NAME,HOST:PORT,HOST:PORT, the name of the master and its Sentinels";

/// Returns the address of Sentinels. `list` has the name of the master first, as in the Go service.
fn sentinel_url(
    list: &str,
    auth: Option<&str>,
    sentinel_auth: Option<&str>,
    tls: bool,
) -> Result<String, String> {
    let (name, hosts) = list
        .split_once(',')
        .filter(|(name, hosts)| !name.contains(':') && !hosts.is_empty())
        .ok_or(SENTINEL_URL)?;
    let hosts = hosts.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    let auth = auth.map_or_else(String::new, |auth| pair(auth) + "@");
    let of_sentinels = sentinel_auth.map_or_else(String::new, |auth| format!("?auth={}", pair(auth)));
    let scheme = if tls { "rediss-sentinel" } else { "redis-sentinel" };
    Ok(format!("{scheme}://{auth}{hosts}/{}{of_sentinels}", name.trim()))
}

/// Returns a user and a password, or a password alone, as a part of an address.
fn pair(auth: &str) -> String {
    let (user, password) = auth.split_once(':').unwrap_or(("", auth));
    format!("{}:{}", encoded(user), encoded(password))
}

/// Encodes a part of an address.
fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ENCODED)
}
