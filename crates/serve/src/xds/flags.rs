//! The flags of rules from a control plane.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};

use crate::duration;
use crate::flags::values::{size, some_time, truth};
use tollgate_report::decimal;
use tollgate_report::error::Error;

/// Rules from a control plane.
#[derive(Args, Debug)]
#[command(next_help_heading = "Rules from a control plane")]
pub struct XdsArgs {
    /// Control plane that sends the rules over xDS, such as envoy-gateway:18001; no files are then read
    ///
    /// It sends all rules at once, over an aggregated stream (state of the world). Rules that cannot be used are refused
    /// with the reason, and the earlier ones stay in force. Until the first rules, health checks fail and answers by rules
    /// are UNAVAILABLE. After 20 s without rules, the service ends with an error, unless there is a copy, or
    /// --start-without-rules. Example: --xds envoy-gateway:18001 --xds-tls --xds-ca ca.crt --xds-cert tls.crt --xds-key
    /// tls.key
    #[arg(long = "xds", conflicts_with = "paths", value_parser = address, value_name = "HOST:PORT")]
    pub xds: Option<Target>,

    /// Name of this node, by which the control plane chooses the rules
    #[arg(long, default_value = "default", value_name = "ID")]
    pub xds_node_id: String,

    /// Metadata of this node, as KEY=VALUE,KEY=VALUE
    #[arg(long, value_delimiter = ',', value_parser = pair, value_name = "PAIRS")]
    pub xds_node_metadata: Vec<(String, String)>,

    /// Header fields of the stream, as NAME=VALUE,NAME=VALUE
    #[arg(long, hide_env_values = true, value_delimiter = ',', value_name = "PAIRS")]
    pub xds_headers: Vec<String>,

    /// File that keeps the last rules that were in force; the service starts with them while the control plane is away
    #[arg(long, requires = "xds", value_name = "FILE")]
    pub xds_copy: Option<PathBuf>,

    /// Where these rules are counted; a message of the control plane cannot say it
    #[arg(long, value_enum, default_value = "memory", value_name = "STORE")]
    pub xds_store: XdsStore,

    /// Use TLS to the control plane
    #[arg(long, requires = "xds", value_parser = truth)]
    pub xds_tls: bool,

    /// Authorities of the control plane's certificate, as PEM [default: those of the system]
    #[arg(long, requires = "xds_tls", value_name = "FILE")]
    pub xds_ca: Option<PathBuf>,

    /// Client certificate for the control plane, as PEM; read again for each connection
    #[arg(long, requires_all = ["xds_tls", "xds_key"], value_name = "FILE")]
    pub xds_cert: Option<PathBuf>,

    /// Key of that certificate, as PEM; read again for each connection
    #[arg(long, requires = "xds_cert", value_name = "FILE")]
    pub xds_key: Option<PathBuf>,

    /// Name that the control plane's certificate must have, as DNS name or address [default: the host of --xds]
    #[arg(long, requires = "xds_tls", value_name = "NAME")]
    pub xds_san: Option<String>,

    /// Pause after a connection that failed; it doubles with each failure, up to --xds-max-pause
    #[arg(long, default_value = "3s", value_parser = some_time, value_name = "TIME")]
    pub xds_retry: Duration,

    /// Pause after a stream that ended; it doubles with each end that no rules came before, up to --xds-max-pause
    #[arg(long, default_value = "10s", value_parser = some_time, value_name = "TIME")]
    pub xds_pause: Duration,

    /// Longest pause
    #[arg(long, default_value = "60s", value_parser = some_time, value_name = "TIME")]
    pub xds_max_pause: Duration,

    /// Share by which each pause is longer or shorter at random, from 0 to 1, so that many processes spread
    #[arg(long, default_value = "0.5", value_parser = share, value_name = "SHARE")]
    pub xds_spread: f64,

    /// Time without a frame after which a ping is sent, to notice a connection that is half open; servers in Go close
    /// connections with a ping more often than every 5 minutes, unless they allow it
    #[arg(long, default_value = "5m30s", value_parser = duration::parse, value_name = "TIME")]
    pub xds_ping: Duration,

    /// Largest message of the control plane
    #[arg(long, default_value = "64MiB", value_parser = size, value_name = "SIZE")]
    pub xds_max_message: usize,
}

impl XdsArgs {
    /// Returns the header fields. The parser of the command line would show a wrong one, which may be a password.
    ///
    /// # Errors
    /// If one cannot be sent. The text does not contain it.
    pub fn headers(&self) -> Result<Vec<HeaderField>, Error> {
        let fields = self.xds_headers.iter().filter(|text| !text.is_empty()).map(|text| field(text));
        fields.collect::<Result<_, _>>().map_err(|why| Error::usage(format!("--xds-headers: {why}")))
    }
}

/// A header field of the stream.
pub type HeaderField = (AsciiMetadataKey, AsciiMetadataValue);

/// Where the rules of a control plane are counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum XdsStore {
    /// In this process
    Memory,
    /// On the server of --redis, shared by all processes
    Redis,
}

/// The address of a control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its name or IP address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

fn address(text: &str) -> Result<Target, String> {
    let wrong = || format!("{text:?} is no address; expected one such as envoy-gateway:18001");
    // The form of gRPC libraries.
    let (host, port) = text.trim_start_matches("dns:///").rsplit_once(':').ok_or_else(wrong)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match bare {
        Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok() => {}
        None if !host.is_empty() && host.bytes().all(is_plain) => {}
        _ => return Err(wrong()),
    }
    let port = port.parse().map_err(|_| wrong())?;
    Ok(Target { host: bare.unwrap_or(host).to_owned(), port })
}

/// Parses a pair. The Go service writes it with either sign.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once(['=', ':']) {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("expected pairs such as name=value, separated by commas".to_owned()),
    }
}

/// Parses a header field.
fn field(text: &str) -> Result<HeaderField, String> {
    let wrong = || "expected header fields such as x-name=value, separated by commas".to_owned();
    let (name, value) = pair(text).map_err(|_| wrong())?;
    Ok((name.parse().map_err(|_| wrong())?, value.parse().map_err(|_| wrong())?))
}

fn share(text: &str) -> Result<f64, String> {
    match decimal::scaled(text.as_bytes(), 6) {
        Ok(decimal::Scaled { value: millionths @ 0..=1_000_000, .. }) => Ok(millionths as f64 / 1e6),
        _ => Err("expected a number from 0 to 1, such as 0.5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_pairs_have_two_forms() {
        let shown = |text| address(text).map(|target| target.to_string());
        assert_eq!(shown("dns:///eg:18001"), Ok("eg:18001".to_owned()));
        assert_eq!(shown("[::1]:1"), Ok("[::1]:1".to_owned()));
        for text in ["eg", ":1", "eg:x", "::1:1", "http://eg:1", "[eg]:1", "eg:70000"] {
            assert!(address(text).is_err(), "{text}");
        }
        assert_eq!(pair("a: b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(field("x y=a").is_err() && field("x=\n").is_ok() && field("x=a\nb").is_err());
        assert!(field("x-bin=a").is_err() && field("X-Token=a").is_ok());
        assert!(pair("a").is_err() && pair("=b").is_err() && share("1.1").is_err());
        assert_eq!(share("0.25"), Ok(0.25));
    }
}
