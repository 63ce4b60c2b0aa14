//! Certificates: an authority, and what it signs.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

/// A certificate with its key.
pub struct Identity {
    /// The certificate in PEM.
    pub certificate: String,
    /// Its key in PEM.
    pub key: String,
    der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl Authority {
    pub fn new() -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
        parameters.distinguished_name.push(DnType::CommonName, "an authority");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages.push(KeyUsagePurpose::KeyCertSign);
        let key = KeyPair::generate().expect("randomness");
        let certificate = parameters.self_signed(&key).expect("its own");
        Authority { issuer: Issuer::new(parameters, key), certificate }
    }

    /// The authority's certificate in PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A server's certificate for localhost.
    pub fn server(&self) -> Identity {
        self.sign(ExtendedKeyUsagePurpose::ServerAuth, None)
    }

    /// A server's certificate whose time ended in that year.
    pub fn expired(&self, year: i32) -> Identity {
        self.sign(ExtendedKeyUsagePurpose::ServerAuth, Some(year))
    }

    /// A client's certificate.
    pub fn client(&self) -> Identity {
        self.sign(ExtendedKeyUsagePurpose::ClientAuth, None)
    }

    fn sign(&self, purpose: ExtendedKeyUsagePurpose, ended: Option<i32>) -> Identity {
        self.sign_with(purpose, |parameters| {
            if let Some(year) = ended {
                parameters.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
                parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
            }
        })
    }

    /// A server's certificate with something else in it.
    pub fn sign_as(&self, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        self.sign_with(ExtendedKeyUsagePurpose::ServerAuth, change)
    }

    fn sign_with(
        &self,
        purpose: ExtendedKeyUsagePurpose,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Identity {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut parameters = CertificateParams::new(names).expect("good names");
        parameters.distinguished_name.push(DnType::CommonName, "localhost");
        parameters.use_authority_key_identifier_extension = true;
        parameters.extended_key_usages.push(purpose);
        change(&mut parameters);
        let key = KeyPair::generate().expect("randomness");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("signed");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
        }
    }

    /// A server's certificate that signs itself.
    pub fn own(name: &str) -> Identity {
        let parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("randomness");
        let certificate = parameters.self_signed(&key).expect("its own");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
        }
    }

    /// What a client of this authority's servers is made with.
    pub fn trusting(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&Identity>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("an authority");
        let builder = ClientConfig::builder_with_protocol_versions(versions);
        let builder = builder.with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::try_from(identity.key_der.clone()).expect("a key");
                builder.with_client_auth_cert(vec![identity.der.clone()], key).expect("they fit")
            }
        };
        Arc::new(config)
    }
}

/// Files of a server in a folder.
pub struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    pub fn new(identity: &Identity) -> Files {
        let files = Files { folder: tempfile::tempdir().expect("a folder") };
        files.put(identity);
        files
    }

    /// Replaces certificate and key.
    pub fn put(&self, identity: &Identity) {
        self.write("cert.pem", &identity.certificate, 0o644);
        self.write("key.pem", &identity.key, 0o600);
    }

    /// Writes a file beside and moves it into its place, so that nobody reads half of it.
    pub fn write(&self, name: &str, text: &str, mode: u32) {
        let (new, path) = (self.path("new"), self.path(name));
        std::fs::write(&new, text).expect("written");
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).expect("its own");
        std::fs::rename(new, path).expect("moved");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The configuration that names the files, with more lines of `[tls]`.
    pub fn config(&self, more: &str) -> String {
        let (cert, key) = (self.path("cert.pem"), self.path("key.pem"));
        format!(
            "[node]\nlisten_tls = '127.0.0.1:0'\n[tls]\ncert = '{}'\nkey = '{}'\n{more}\n",
            cert.display(),
            key.display()
        )
    }
}
