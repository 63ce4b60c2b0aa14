//! Servers whose certificate is itself one of those that a client was told to believe. The usual
//! recipe for a self-signed certificate (`openssl req -x509`) makes that of an authority (CA:TRUE),
//! which the library takes for no server's. Who names this very certificate means this server.

use std::sync::Arc;

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{Error, RootCertStore};

use super::material::MaterialError;
use super::validity::Validity;

/// Checks certificates as the library does, and takes those that are believed themselves.
#[derive(Debug)]
pub(super) struct PinnedVerifier {
    inner: Arc<WebPkiServerVerifier>,
    believed: Vec<CertificateDer<'static>>,
}

impl PinnedVerifier {
    /// `text` has the certificates in PEM from which `roots` was read.
    pub(super) fn new(
        text: &[u8],
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, MaterialError> {
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let inner = inner.map_err(|error| MaterialError::BadAuthorities(error.to_string()))?;
        let believed = CertificateDer::pem_slice_iter(text).filter_map(Result::ok).collect();
        Ok(Self { inner, believed })
    }

    /// Whether this certificate is believed itself, has this name, and holds now.
    fn is_pinned(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> bool {
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let holds = |validity: Validity| validity.complaint(now_s).is_none();
        let has_name = |parsed: ParsedCertificate<'_>| verify_server_name(&parsed, name).is_ok();
        self.believed.iter().any(|believed| **believed == **certificate)
            && Validity::of(certificate).is_some_and(holds)
            && ParsedCertificate::try_from(certificate).is_ok_and(has_name)
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(certificate, between, name, ocsp, now);
        match verified {
            Err(_) if self.is_pinned(certificate, name, now) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    super::signatures_are_judged_by!(inner);
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
    use rustls::crypto::aws_lc_rs;

    use super::*;

    #[test]
    fn a_certificate_of_an_authority_is_taken_where_it_is_believed_itself() {
        let made = |is_ca: bool, until: i32| {
            let mut params = CertificateParams::new(["node.example".to_owned()]).expect("a name");
            let authority = IsCa::Ca(BasicConstraints::Unconstrained);
            params.is_ca = if is_ca { authority } else { IsCa::NoCa };
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(until, 1, 1);
            params.self_signed(&KeyPair::generate().expect("a key")).expect("signed")
        };
        let now = || UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_790_000_000));
        let taken = |believed: &rcgen::Certificate, shown: &rcgen::Certificate, name: &str| {
            let mut roots = RootCertStore::empty();
            roots.add(believed.der().clone()).expect("an authority");
            let provider = Arc::new(aws_lc_rs::default_provider());
            let verifier = PinnedVerifier::new(believed.pem().as_bytes(), roots, provider);
            let name = ServerName::try_from(name.to_owned()).expect("a name");
            let verifier = verifier.expect("a certificate");
            verifier.verify_server_cert(shown.der(), &[], &name, &[], now()).is_ok()
        };
        for is_ca in [true, false] {
            let own = made(is_ca, 2040);
            assert!(taken(&own, &own, "node.example"), "CA:{is_ca}");
            assert!(!taken(&own, &own, "other.example"), "another name");
            assert!(!taken(&made(is_ca, 2040), &own, "node.example"), "another certificate");
            let over = made(is_ca, 2021);
            assert!(!taken(&over, &over, "node.example"), "it has expired");
        }
    }
}
