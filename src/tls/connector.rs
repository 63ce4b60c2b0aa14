//! What a client asks of servers and shows to them: authorities, versions, tickets, its own
//! certificate. Made from the texts of files; the files are somebody else's.

// May panic: expectations 1.
// Why it does not: configured 1.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use super::material::{MaterialError, authorities, hash, identity};
use super::pinned::PinnedVerifier;

/// Whom a client believes.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// The certificates of authorities, in PEM.
    These(&'a [u8]),
    /// The authorities of the system.
    System,
}

/// The texts of the files.
#[derive(Clone, Copy)]
pub struct ClientMaterial<'a> {
    /// Whose certificates are good.
    pub trust: Trust<'a>,
    /// The own certificate with those between it and the authority, and its key, in PEM. It is
    /// shown to servers that ask for one. `None`: there is none.
    pub identity: Option<(&'a [u8], &'a [u8])>,
}

/// What connections are dialled with. Servers are checked: their certificates must come from the
/// authorities, be in their time and have the server's name.
pub struct Connector {
    config: Arc<ClientConfig>,
    /// A hash of all texts: two connectors of one hash are the same.
    hash: [u8; 32],
}

impl Connector {
    /// Reads the texts. Tickets of this connector's connections are of use to no other connector.
    pub fn new(material: &ClientMaterial<'_>) -> Result<Self, MaterialError> {
        Self::of_versions(material, rustls::ALL_VERSIONS, None)
    }

    /// What a node dials other nodes with. All of them speak the newest version.
    /// `verifier` judges their certificates.
    pub(super) fn of_nodes(
        material: &ClientMaterial<'_>,
        verifier: Arc<dyn ServerCertVerifier>,
    ) -> Result<Self, MaterialError> {
        Self::of_versions(material, &[&TLS13], Some(verifier))
    }

    fn of_versions(
        material: &ClientMaterial<'_>,
        versions: &[&'static SupportedProtocolVersion],
        verifier: Option<Arc<dyn ServerCertVerifier>>,
    ) -> Result<Self, MaterialError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let own = match material.identity {
            Some((certificates, key)) => Some(identity(certificates, key, &provider)?),
            None => None,
        };
        let roots = match material.trust {
            Trust::These(text) => authorities(text)?,
            Trust::System => system_authorities()?,
        };
        let trusted = hash_of_authorities(&roots);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(versions);
        let builder = builder.expect("the provider has suites of both versions");
        // "Dangerous" is what the library calls any other judge than its own.
        let builder = match (verifier, material.trust) {
            (None, Trust::System) => builder.with_root_certificates(roots),
            (None, Trust::These(text)) => {
                let pinned = Arc::new(PinnedVerifier::new(text, roots, provider)?);
                builder.dangerous().with_custom_certificate_verifier(pinned)
            }
            (Some(own), _) => builder.dangerous().with_custom_certificate_verifier(own),
        };
        let mut config = match own {
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // No byte of a request before the handshake is over: such bytes can be sent again by
        // anybody who has seen them.
        config.enable_early_data = false;
        config.resumption = Resumption::in_memory_sessions(TICKETS_MAX);
        let (certificates, key) = material.identity.unwrap_or_default();
        Ok(Self { config: Arc::new(config), hash: hash(&[&trusted, certificates, key]) })
    }

    /// The same connector with no tickets yet. Connectors that share their tickets share a lock,
    /// too.
    pub fn with_own_tickets(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::in_memory_sessions(TICKETS_MAX);
        Self { config: Arc::new(config), hash: self.hash }
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }
}

/// Of how many servers tickets are kept.
const TICKETS_MAX: usize = 4_096;

impl PartialEq for Connector {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Connector {}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// A hash of what certificates are checked with.
fn hash_of_authorities(roots: &RootCertStore) -> [u8; 32] {
    let parts = roots.roots.iter().flat_map(|root| {
        [root.subject.as_ref(), root.subject_public_key_info.as_ref()]
            .into_iter()
            .chain(root.name_constraints.as_ref().map(AsRef::as_ref))
    });
    hash(&parts.collect::<Vec<_>>())
}

/// The authorities that the system believes.
fn system_authorities() -> Result<RootCertStore, MaterialError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(MaterialError::BadAuthorities(
            "none on this system (Debian: the package ca-certificates)".into(),
        ));
    }
    Ok(roots)
}
