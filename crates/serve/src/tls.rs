//! TLS 1.2 and 1.3, with certificates that are read again when their files change.
//!
//! All files are read together and compared by content, and a change counts when it is read twice. If they cannot be used together, such as a certificate with
//! the key of another, the earlier ones stay in force. New connections get the new certificates. No session can be
//! resumed across a change, so a client whose authority was removed cannot connect again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use webpki::EndEntityCert;

use super::listen::Io;
use super::log;
use super::peer::Peer;
use super::process::ReadAgain;
use super::read_twice::ReadTwice;
use super::stats::Stats;
use tollgate_report::error::{Error, read_file};

/// Where the certificates are.
#[derive(Clone, Debug)]
pub struct Files {
    /// The server's certificate, with those between it and its authority.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients. With them, each client needs a certificate.
    pub client_ca: Option<PathBuf>,
}

/// The contents of the files.
#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The certificates in force.
pub struct Tls {
    files: Files,
    /// The names of clients that may call. Empty: all names.
    names: Vec<String>,
    in_force: Mutex<Arc<ServerConfig>>,
    /// The contents of the files, or why they could not be read.
    seen: Mutex<ReadTwice<Result<Contents, String>>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file cannot be read, or if they do not belong together.
    pub fn load(files: Files, names: Vec<String>) -> Result<Self, Error> {
        let contents = files.read().map_err(Error::run)?;
        let config = config(&files, &contents).map_err(Error::run)?;
        let (in_force, seen) = (Mutex::new(config), Mutex::new(ReadTwice::new(Ok(contents))));
        Ok(Self { files, names, in_force, seen })
    }

    /// Whether each client needs a certificate.
    pub const fn asks_clients(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Returns a call of [`reload_if_changed`](Self::reload_if_changed).
    pub fn read_again(self: Arc<Self>, stats: &Arc<Stats>) -> ReadAgain {
        let stats = Arc::clone(stats);
        Arc::new(move || self.reload_if_changed(&stats))
    }

    /// Reads the files again, and puts them in force if the change was read twice and they belong together. One reading is not
    /// enough, because a list of certificates that is half written has the first ones, and those belong to the key.
    pub fn reload_if_changed(&self, stats: &Stats) {
        // Locked before the files are read: an earlier reading must not replace a later one.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(read) = seen.take(self.files.read()) else { return };
        let config = read.as_ref().map_err(Clone::clone).and_then(|contents| config(&self.files, contents));
        match config {
            Ok(config) => {
                *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = config;
                stats.tls_loads.add();
                log::info(format_args!(
                    "the changed certificates of {} are in force",
                    self.files.cert.display()
                ));
            }
            Err(why) => {
                stats.tls_errors.add();
                log::warn(format_args!("{why}; the earlier certificates stay in force"));
            }
        }
    }

    /// Does the handshake, and checks the client's names. The stream knows them.
    ///
    /// # Errors
    /// If the handshake fails, or if the client has no allowed name.
    pub async fn accept(&self, stream: Io) -> io::Result<Io> {
        let config = Arc::clone(&self.in_force.lock().unwrap_or_else(PoisonError::into_inner));
        let secured = TlsAcceptor::from(config).accept(stream).await?;
        let names = secured.get_ref().1.peer_certificates().and_then(names_of);
        if self.names.is_empty() || names.iter().flatten().any(|name| self.names.contains(name)) {
            return Ok(Io::new(secured).of_client(names.map(Peer::Names)));
        }
        Err(io::Error::other("the client's certificate has no name that --client-san allows"))
    }
}

/// Returns the DNS and URI names of a client's certificate.
fn names_of(chain: &[CertificateDer<'_>]) -> Option<Vec<String>> {
    let client = EndEntityCert::try_from(chain.first()?).ok()?;
    Some(client.valid_dns_names().chain(client.valid_uri_names()).map(str::to_owned).collect())
}

impl Files {
    fn read(&self) -> Result<Contents, String> {
        Ok(Contents {
            cert: read_file(&self.cert)?,
            key: read_file(&self.key)?,
            client_ca: self.client_ca.as_deref().map(read_file).transpose()?,
        })
    }
}

/// Reads the certificates of a file.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(format!("{} has no certificate in PEM", path.display())),
        Err(error) => Err(format!("{} is no list of certificates in PEM: {error}", path.display())),
    }
}

/// Reads the authorities of a file.
pub fn authorities(path: &Path, pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path, pem)? {
        roots
            .add(authority)
            .map_err(|error| format!("{} has an unusable certificate: {error}", path.display()))?;
    }
    Ok(roots)
}

/// Reads a certificate and its key, and lets `take` take them.
fn identity<T>(
    (cert, cert_pem): (&Path, &[u8]),
    (key, key_pem): (&Path, &[u8]),
    take: impl FnOnce(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) -> Result<T, rustls::Error>,
) -> Result<T, String> {
    let chain = certificates(cert, cert_pem)?;
    let private = PrivateKeyDer::from_pem_slice(key_pem)
        .map_err(|error| format!("{} has no key in PEM: {error}", key.display()))?;
    let (cert, key) = (cert.display(), key.display());
    take(chain, private)
        .map_err(|error| format!("the certificate {cert} and the key {key} cannot be used together: {error}"))
}

/// Returns the TLS of a client that trusts these authorities. Its own certificate and key are in files, if it has them.
pub fn client_config(roots: RootCertStore, own: Option<(&Path, &Path)>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some((cert, key)) = own else { return Ok(builder.with_no_client_auth()) };
    identity((cert, &read_file(cert)?), (key, &read_file(key)?), |chain, private| {
        builder.with_client_auth_cert(chain, private)
    })
}

fn config(files: &Files, contents: &Contents) -> Result<Arc<ServerConfig>, String> {
    let Files { cert, key, client_ca } = files;
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match (client_ca, &contents.client_ca) {
        (Some(path), Some(pem)) => {
            let roots = Arc::new(authorities(path, pem)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder
                .with_client_cert_verifier(verifier.map_err(|error| format!("{}: {error}", path.display()))?)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = identity((cert, &contents.cert), (key, &contents.key), |chain, private| {
        builder.with_single_cert(chain, private)
    })?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    /// Every part of a list of certificates, as a reader can see it while another program writes the file. The first
    /// certificate alone belongs to the key, but clients need the second one too.
    // G109
    #[test]
    fn lists_of_certificates_that_are_half_written_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let issue = || {
            let mut params = CertificateParams::new([]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            let key = KeyPair::generate().unwrap();
            let names = vec!["localhost".to_owned()];
            let cert = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
            (format!("{}{}", cert.pem(), issuer.pem()), key.serialize_pem())
        };
        let (whole, key) = issue();
        let [cert, key_file] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        fs::write(&cert, &whole).unwrap();
        fs::write(&key_file, &key).unwrap();
        let files = Files { cert: cert.clone(), key: key_file.clone(), client_ca: None };
        let (tls, stats) = (Tls::load(files, Vec::new()).unwrap(), Stats::default());
        for cut in (0..whole.len()).step_by(7) {
            fs::write(&cert, &whole.as_bytes()[..cut]).unwrap();
            tls.reload_if_changed(&stats);
        }
        fs::write(&cert, &whole).unwrap();
        tls.reload_if_changed(&stats);
        tls.reload_if_changed(&stats);
        assert_eq!((stats.tls_loads.get(), stats.tls_errors.get()), (0, 0));
        let (whole, key) = issue();
        fs::write(&cert, &whole).unwrap();
        fs::write(&key_file, &key).unwrap();
        tls.reload_if_changed(&stats);
        tls.reload_if_changed(&stats);
        assert_eq!((stats.tls_loads.get(), stats.tls_errors.get()), (1, 0));
    }
}
