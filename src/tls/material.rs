//! The texts of certificates and keys (PEM, RFC 7468), read. The files are somebody else's.

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};

/// Most bytes of a file of certificates or of a key. A chain has some kilobytes, a bundle of all
/// public authorities 250 KB.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Which text is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Text {
    /// The own certificate and those between it and the authority.
    Certificates,
    /// The private key of the own certificate.
    Key,
    /// The authorities of the other end.
    Authorities,
}

/// What is wrong with a text. The sentence says what was expected, and shows nothing of a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MaterialError {
    /// There is no certificate.
    #[error(
        "expected one or more certificates in PEM (-----BEGIN CERTIFICATE-----), the own one \
         first, found {0}"
    )]
    NoCertificate(String),
    /// There is no key.
    #[error(
        "expected a private key in PEM, not encrypted (-----BEGIN PRIVATE KEY-----), found none \
         that can be read"
    )]
    NoKey,
    /// The key is of a kind that is not known.
    #[error(
        "expected a key of ECDSA (P-256, P-384, P-521), Ed25519 or RSA (2048 bits or more), found \
         another; make one: openssl ecparam -name prime256v1 -genkey -noout"
    )]
    UnknownKey,
    /// The key belongs to another certificate.
    #[error(
        "it does not fit the first certificate beside it; name the key with which that certificate \
         was asked for, and put the own certificate first"
    )]
    OtherKey,
    /// The own certificate cannot be used.
    #[error("expected an X.509 certificate of version 3 first, found {0}")]
    BadCertificate(String),
    /// The authorities cannot be used.
    #[error(
        "expected the certificates of authorities in PEM (-----BEGIN CERTIFICATE-----), found {0}"
    )]
    BadAuthorities(String),
    /// The own certificate is none with which other nodes take this one.
    #[error(
        "expected the certificate of a node, from the authority of the cluster and good for \
         clients and for servers (chronos cluster certs --node), found another: {0}"
    )]
    NoNode(String),
    /// The library has no randomness.
    #[error("the system gives no random bytes: {0}")]
    NoRandomness(String),
}

impl MaterialError {
    /// Which text is wrong.
    pub fn text(&self) -> Text {
        match self {
            Self::NoCertificate(_)
            | Self::BadCertificate(_)
            | Self::NoNode(_)
            | Self::NoRandomness(_) => Text::Certificates,
            Self::NoKey | Self::UnknownKey | Self::OtherKey => Text::Key,
            Self::BadAuthorities(_) => Text::Authorities,
        }
    }
}

/// The certificates and the key that belong together.
pub(super) fn identity(
    certificate_text: &[u8],
    key: &[u8],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, MaterialError> {
    let chain = certificates(certificate_text).map_err(MaterialError::NoCertificate)?;
    // The reader's error may quote the file, so the error is not told.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| MaterialError::NoKey)?;
    let key = provider.key_provider.load_private_key(key);
    let identity = CertifiedKey::new(chain, key.map_err(|_| MaterialError::UnknownKey)?);
    match identity.keys_match() {
        Ok(()) => Ok(identity),
        Err(rustls::Error::InconsistentKeys(_)) => Err(MaterialError::OtherKey),
        Err(error) => Err(MaterialError::BadCertificate(error.to_string())),
    }
}

/// The authorities of a text, at least one.
pub(super) fn authorities(text: &[u8]) -> Result<RootCertStore, MaterialError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(text).map_err(MaterialError::BadAuthorities)? {
        let added = roots.add(authority);
        added.map_err(|error| MaterialError::BadAuthorities(error.to_string()))?;
    }
    Ok(roots)
}

/// All certificates of a text, at least one.
fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|_| "text that is no PEM")?;
    if found.is_empty() { Err("none".into()) } else { Ok(found) }
}

/// One hash of several texts, by which two readings are compared.
pub(super) fn hash(texts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}
