//! The flags of the endpoint for operators.

use std::path::PathBuf;

use clap::Args;

/// Where operators connect.
#[derive(Args, Debug)]
#[command(next_help_heading = "Operators")]
pub struct ServeAdmin {
    /// Where operators inspect and change single keys, for tollgate ctl: unix:PATH, such as unix:/run/tollgate/admin, an
    /// address, or both with a comma between them [default: off]
    ///
    /// A socket lets in the user of this process and root. An address needs --admin-token-file or --admin-client-ca. Each
    /// change is logged with who, what and why.
    #[arg(long, value_delimiter = ',', value_name = "unix:PATH|ADDRESS")]
    pub admin: Vec<String>,

    /// Tokens of operators: lines of NAME:TOKEN, each token 16 bytes or longer; read at each request
    #[arg(long, requires = "admin", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,

    /// Certificate of the endpoint for operators, as PEM; read again when it changes
    #[arg(long, requires_all = ["admin", "admin_key"], value_name = "FILE")]
    pub admin_cert: Option<PathBuf>,

    /// Key of that certificate
    #[arg(long, requires = "admin_cert", value_name = "FILE")]
    pub admin_key: Option<PathBuf>,

    /// Authorities of operators' certificates, as PEM; with it, each operator needs a certificate with a DNS or URI name
    #[arg(long, requires = "admin_cert", value_name = "FILE")]
    pub admin_client_ca: Option<PathBuf>,
}
