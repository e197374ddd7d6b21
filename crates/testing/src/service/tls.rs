//! Certificates for one test.

use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType,
};

use super::process::{Place, Program};

/// An authority that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let mut params = CertificateParams::new([]).unwrap();
        // Clients that trust two authorities need two names.
        params
            .distinguished_name
            .push(DnType::CommonName, format!("authority {}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn issue(&self, names: &[SanType]) -> Pair {
        let mut params = CertificateParams::new([]).unwrap();
        params.subject_alt_names = names.to_vec();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        Pair { cert: cert.pem(), key: key.serialize_pem() }
    }

    pub fn server(&self) -> Pair {
        self.issue(&[dns("localhost")])
    }
}

pub fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

/// Writes the certificate and the key of the server.
pub fn install<P: Program>(place: &Place<P>, pair: &Pair) {
    place.write("tls.crt", &pair.cert);
    place.write("tls.key", &pair.key);
}
