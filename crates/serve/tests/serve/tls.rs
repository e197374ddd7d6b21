//! TLS, client certificates, and certificates that change.

use std::sync::Arc;

use rcgen::SanType;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
pub(crate) use tollgate_testing::service::tls::{Authority, Pair, dns, install};

use crate::client::{ASK, Grpc, LIMIT, bytes, comes_true, get, http, wait_for_stat};
use crate::server::{Place, Server};

fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().unwrap())
}

/// The flags of these files.
pub(crate) const TLS: &str = "--tls-cert $/tls.crt --tls-key $/tls.key";

/// Returns a place with the certificates of an authority.
pub(crate) fn certified() -> (Place, Authority) {
    let (place, authority) = (Place::new(), Authority::new());
    install(&place, &authority.server());
    place.write("ca.crt", authority.pem());
    (place, authority)
}

fn serve(place: &Place, args: &str, test: impl AsyncFnOnce(&mut Server)) {
    place.serve(&format!("{TLS} {args}"), test);
}

/// Connects with the trust in an authority, and with a certificate of its own.
async fn connect(server: &Server, trusted: &Authority, own: Option<&Pair>) -> Result<Grpc, String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(server.address("grpc")).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())?;
    Grpc::try_over(stream).await.map_err(|error| error.to_string())
}

/// Connects with the trust in an authority.
pub(crate) async fn tls_client(server: &Server, trusted: &Authority) -> Grpc {
    connect(server, trusted, None).await.unwrap()
}

/// Connects and asks. With TLS 1.3, a client learns only then that the server refuses its certificate.
async fn ask(server: &Server, trusted: &Authority, own: Option<&Pair>) -> Result<(), String> {
    let mut grpc = connect(server, trusted, own).await?;
    grpc.try_call(LIMIT, &bytes(ASK)).await.map(drop).map_err(|error| error.to_string())
}

/// Waits until a client is answered, or is not answered any more.
pub(crate) async fn wait_for(server: &Server, trusted: &Authority, own: Option<&Pair>, answered: bool) {
    let changes = comes_true(async || ask(server, trusted, own).await.is_ok() == answered);
    assert!(changes.await, "the answer stays {}: {}", !answered, server.log());
}

#[test]
fn tls_endpoint_answers_only_tls() {
    let (place, authority) = certified();
    serve(&place, "", async |server| {
        assert!(server.start_line().contains("with TLS"), "{}", server.start_line());
        ask(server, &authority, None).await.unwrap();
        assert!(ask(server, &Authority::new(), None).await.is_err());
        let plain = TcpStream::connect(server.address("grpc")).await.unwrap();
        let plain = Grpc::try_over(plain).await;
        assert!(plain.is_err() || plain.unwrap().try_call(LIMIT, &bytes(ASK)).await.is_err());
        // The client ends the first handshake, so the server may notice it later.
        wait_for_stat(&server.address("debug"), "tollgate_service_handshakes_failed_total", 2).await;
    });
}

// G109
#[test]
fn clients_need_an_allowed_name() {
    let (place, authority) = certified();
    let names = "--client-san gateway.example --client-san spiffe://example/gateway";
    serve(&place, &format!("--client-ca $/ca.crt {names}"), async |server| {
        for (name, allowed) in [
            (dns("gateway.example"), true),
            (uri("spiffe://example/gateway"), true),
            (dns("other.example"), false),
            (uri("spiffe://example/gateway2"), false),
            (dns("*.example"), false),
        ] {
            let own = authority.issue(std::slice::from_ref(&name));
            assert_eq!(ask(server, &authority, Some(&own)).await.is_ok(), allowed, "{name:?}");
        }
        let several = authority.issue(&[dns("a.example"), dns("gateway.example")]);
        ask(server, &authority, Some(&several)).await.unwrap();
    });
}

// G109
#[test]
fn changed_certificates_serve_new_connections() {
    let ((place, old), new) = (certified(), Authority::new());
    serve(&place, "--log info", async |server| {
        let mut before = connect(server, &old, None).await.unwrap();
        before.ok(LIMIT, &bytes(ASK)).await;
        install(&place, &new.server());
        wait_for(server, &new, None, true).await;
        assert!(ask(server, &old, None).await.is_err());
        // The old connection lives on.
        before.ok(LIMIT, &bytes(ASK)).await;
        server.wait_for_line("tls.crt are in force");
    });
}

// G109
#[test]
fn mismatched_pair_keeps_the_old_one() {
    let (place, authority) = certified();
    serve(&place, "", async |server| {
        let next = Authority::new();
        let pair = next.server();
        place.write("tls.crt", &pair.cert);
        wait_for_stat(&server.address("debug"), "tollgate_service_tls_reload_errors_total", 1).await;
        ask(server, &authority, None).await.unwrap();
        server.wait_for_line("cannot be used together");
        place.write("tls.key", &pair.key);
        wait_for(server, &next, None, true).await;
    });
}

// G109
#[test]
fn clients_need_certificates_of_an_authority_in_force() {
    let ((place, old), new) = (certified(), Authority::new());
    serve(&place, "--client-ca $/ca.crt", async |server| {
        let (theirs, ours) = (old.issue(&[dns("a")]), new.issue(&[dns("a")]));
        ask(server, &old, Some(&theirs)).await.unwrap();
        assert!(ask(server, &old, None).await.is_err() && ask(server, &old, Some(&ours)).await.is_err());
        // Both, and then only the new one.
        place.write("ca.crt", old.pem() + &new.pem());
        wait_for(server, &old, Some(&ours), true).await;
        ask(server, &old, Some(&theirs)).await.unwrap();
        place.write("ca.crt", new.pem());
        wait_for(server, &old, Some(&theirs), false).await;
        ask(server, &old, Some(&ours)).await.unwrap();
    });
}

// G109
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn incomplete_files_keep_the_old_ones() {
    let (place, authority) = certified();
    serve(&place, "--client-ca $/ca.crt", async |server| {
        let (own, debug) = (authority.issue(&[dns("a")]), server.address("debug"));
        let mut errors = 0;
        for name in ["ca.crt", "tls.crt", "tls.key"] {
            let whole = std::fs::read(place.path(name)).unwrap();
            for part in [None, Some(0), Some(whole.len() / 2)] {
                match part {
                    None => std::fs::remove_file(place.path(name)).unwrap(),
                    Some(end) => place.write(name, &whole[..end]),
                }
                errors += 1;
                wait_for_stat(&debug, "tollgate_service_tls_reload_errors_total", errors).await;
                ask(server, &authority, Some(&own)).await.unwrap();
                assert!(ask(server, &authority, None).await.is_err());
            }
            place.write(name, whole);
            wait_for_stat(&debug, "tollgate_service_tls_reload_total", errors / 3).await;
        }
        server.wait_for_line("cannot read");
    });
}

// G109
#[test]
fn plain_json_beside_tls_must_be_asked_for() {
    const ASK_JSON: &str = r#"{"domain":"rl","descriptors":[{"entries":[{"key":"once","value":"x"}]}]}"#;
    let (place, _) = certified();
    serve(&place, "", async |server| {
        assert_eq!(http(&server.address("http"), "POST", "/json", ASK_JSON).await.status, 200);
    });
    if std::net::TcpListener::bind("0.0.0.0:8080").is_err() {
        println!("SKIPPED: another process listens on 8080, the default port of HTTP");
        return;
    }
    let args = place.fill(&format!("--grpc 127.0.0.1:0 --debug off --drain 0s {TLS}"));
    Server::start_with(&[&place.rules()], &args, &[]).during(async |_| {
        let refused = http("127.0.0.1:8080", "POST", "/json", ASK_JSON).await;
        assert_eq!(refused.status, 403);
        assert!(refused.body.contains("--http"), "{}", refused.body);
        assert_eq!(get("127.0.0.1:8080", "/healthcheck").await.status, 200);
    });
}

#[test]
fn certificates_that_do_not_match_end_the_start() {
    let (place, authority) = certified();
    place.write("tls.key", authority.server().key);
    let files = [place.name("tls.crt"), place.name("tls.key")];
    place.run(TLS).fails(1, &["cannot be used together", &files[0], &files[1]]);
}

#[test]
fn socket_stays_plain_beside_tls() {
    let (place, _) = certified();
    serve(&place, "--grpc-socket $/socket", async |_| {
        let stream = tokio::net::UnixStream::connect(place.path("socket")).await.unwrap();
        Grpc::over(stream).await.ok(LIMIT, &bytes(ASK)).await;
    });
}
