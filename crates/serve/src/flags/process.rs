//! The flags of `tollgate serve` about its process: threads, health, and spans.

use clap::Args;
#[cfg(feature = "otlp")]
use clap::builder::BoolishValueParser;

/// How the process runs, and what it tells others about itself.
#[derive(Args, Debug)]
#[command(next_help_heading = "Process")]
pub struct ServeProcess {
    /// Threads that answer requests [default: one for each core that the process may use]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    pub threads: Option<u16>,

    /// Ask the service at the address of --http whether it wants requests, and stop: exit code 0 or 1; for the health check of
    /// a container
    #[arg(long)]
    pub healthcheck: bool,

    /// Where spans go, if any.
    #[cfg(feature = "otlp")]
    #[command(flatten)]
    pub otlp: ServeOtlp,
}

/// Where spans go.
#[cfg(feature = "otlp")]
#[derive(Args, Debug)]
#[command(next_help_heading = "Traces")]
pub struct ServeOtlp {
    /// Send a span for each call to an OpenTelemetry collector; the variables OTEL_… say where, as in
    /// OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub otlp: bool,

    /// Protocol of the collector [default: that of OTEL_EXPORTER_OTLP_PROTOCOL, or http]
    #[arg(long, value_enum, requires = "otlp", value_name = "PROTOCOL")]
    pub otlp_protocol: Option<OtlpProtocol>,

    /// Share of the traces that begin here, from 0 to 1; a caller's traceparent decides for its own calls [default: that of
    /// OTEL_TRACES_SAMPLER, or 1]
    #[arg(long, value_parser = share, requires = "otlp", value_name = "SHARE")]
    pub otlp_sample: Option<f64>,

    /// Attributes of this service, such as service.name=edge,service.namespace=shop; service.name is tollgate by default
    #[arg(long, value_delimiter = ',', value_parser = attribute, requires = "otlp", value_name = "NAME=VALUE")]
    pub otlp_attributes: Vec<(String, String)>,
}

/// How a collector is asked.
#[cfg(feature = "otlp")]
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum OtlpProtocol {
    /// Protobuf over HTTP/1.1, port 4318
    #[value(alias = "http/protobuf")]
    Http,
    /// gRPC, port 4317
    Grpc,
}

#[cfg(feature = "otlp")]
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1, such as 0.1".to_owned())
}

#[cfg(feature = "otlp")]
fn attribute(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) =
        pair.ok_or_else(|| format!("{text:?}: expected a name and a value, such as service.name=edge"))?;
    Ok((name.to_owned(), value.to_owned()))
}
