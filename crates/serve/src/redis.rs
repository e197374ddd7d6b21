//! The client of the Redis server.

use std::path::PathBuf;

use tollgate_redis::{Client, CredentialsFile};

use super::log;
use crate::flags::ServeRules;
use tollgate_report::error::{Error, read_file};

/// Creates the client of the Redis server. Sends nothing yet.
///
/// # Errors
/// If the address, a certificate or the file of the password cannot be used.
pub fn client(args: &ServeRules) -> Result<Option<Client>, Error> {
    let Some(url) = &args.redis else { return Ok(None) };
    let failed = |error: &dyn std::fmt::Display| Error::usage(format!("--redis: {error}"));
    let build = builder(args)?;
    // In an address of Sentinels, commas separate them.
    let nodes: Vec<&str> = if url.contains("-sentinel://") { vec![url] } else { url.split(',').collect() };
    let client = match nodes[..] {
        [one] => Client::open_with(one.trim(), build),
        _ => {
            let clients: Result<Vec<_>, _> = nodes.iter().map(|node| build(node.trim())).collect();
            Client::cluster_from_redis(&clients.map_err(|error| failed(&error))?)
        }
    };
    let client = client.map_err(|error| failed(&error))?;
    renewed(client, args).map(Some)
}

/// Returns what creates a client of the library for one address.
fn builder(args: &ServeRules) -> Result<impl Fn(&str) -> redis::RedisResult<redis::Client>, Error> {
    let read = |path: &PathBuf| read_file(path).map_err(Error::run);
    let root_cert = args.redis_ca.as_ref().map(read).transpose()?;
    let client_tls = match (&args.redis_cert, &args.redis_key) {
        (Some(cert), Some(key)) => {
            Some(redis::ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
        }
        _ => None,
    };
    let has_certificates = root_cert.is_some() || client_tls.is_some();
    let certificates = redis::TlsCertificates { client_tls, root_cert };
    Ok(move |url: &str| {
        if has_certificates {
            redis::Client::build_with_tls(url, certificates.clone())
        } else {
            redis::Client::open(url)
        }
    })
}

/// Sets the age of connections, and the file of the password.
fn renewed(mut client: Client, args: &ServeRules) -> Result<Client, Error> {
    let settings = &args.connection;
    if !settings.redis_connection_age.is_zero() {
        client = client.max_connection_age(settings.redis_connection_age);
    }
    let Some(path) = &settings.redis_password_file else { return Ok(client) };
    let mut file = CredentialsFile::new(path);
    if let Some(user) = &settings.redis_user {
        file = file.user(user);
    }
    file.read().map_err(|error| Error::run(format!("--redis-password-file {}: {error}", path.display())))?;
    let path = path.clone();
    Ok(client.credentials(file).on_refused_credentials(move |error| {
        log::warn(format_args!(
            "the user and password of {} are not in use: {error}; open connections to the Redis server stay in use",
            path.display()
        ));
    }))
}
