//! What a server shows to its clients and asks of them: certificate, key, versions, tickets, client
//! certificates. Made from the texts of files; the files are somebody else's.

// May panic: expectations 1.
// Why it does not: configured 1.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{ServerConfig, SupportedProtocolVersion};

use super::material::{MaterialError, authorities, hash, identity};
use super::validity::{Validity, is_of_authority};

/// Tickets that a client gets after each full handshake. A client that opens several connections
/// at once takes one for each.
const TICKETS_PER_HANDSHAKE: usize = 2;

/// Whether clients show certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientAuth {
    /// They are not asked.
    #[default]
    Off,
    /// They are asked, and need not have one. One that is shown must be good.
    Optional,
    /// Without a good one there is no connection.
    Required,
}

/// The texts of the files.
#[derive(Clone, Copy)]
pub struct Material<'a> {
    /// The certificate of the server and those between it and the authority, in PEM.
    pub certificates: &'a [u8],
    /// The private key of the first certificate, in PEM.
    pub key: &'a [u8],
    /// The certificates of the authorities that clients' certificates come from, in PEM.
    pub client_ca: &'a [u8],
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
}

/// What connections are accepted with.
pub struct Acceptor {
    config: Arc<ServerConfig>,
    validity: Option<Validity>,
    is_of_authority: bool,
    /// A hash of all texts: two acceptors of one hash are the same.
    hash: [u8; 32],
    /// A hash of what clients are asked for.
    asked_hash: [u8; 32],
}

impl Acceptor {
    /// Reads the texts. Tickets of this acceptor are those of no other.
    pub fn new(material: &Material<'_>) -> Result<Self, MaterialError> {
        let verifier = verifier(material, &Arc::new(aws_lc_rs::default_provider()))?;
        Self::of_versions(material, verifier, rustls::ALL_VERSIONS)
    }

    /// What a node accepts other nodes with. All of them speak the newest version.
    pub(super) fn of_nodes(
        material: &Material<'_>,
        verifier: Arc<dyn ClientCertVerifier>,
    ) -> Result<Self, MaterialError> {
        Self::of_versions(material, verifier, &[&TLS13])
    }

    fn of_versions(
        material: &Material<'_>,
        verifier: Arc<dyn ClientCertVerifier>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<Self, MaterialError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let identity = identity(material.certificates, material.key, &provider)?;
        let first = identity.cert.first();
        let validity = first.and_then(|certificate| Validity::of(certificate));
        let is_of_authority = first.is_some_and(|certificate| is_of_authority(certificate));
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(versions);
        let builder = builder.expect("the provider has suites of both versions");
        let mut config = builder
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // One maker of tickets for all cores, which changes its keys every six hours. What a client
        // could resume by a number would be a table that cores share, and no client of today needs.
        // None where clients show certificates: a ticket would outlive the certificate for which it
        // was given.
        if material.client_auth == ClientAuth::Off {
            config.ticketer = ticketer()?;
            config.send_tls13_tickets = TICKETS_PER_HANDSHAKE;
        } else {
            config.send_tls13_tickets = 0;
        }
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // No byte of a request before the handshake is over: such bytes can be sent again by
        // anybody who has seen them.
        config.max_early_data_size = 0;
        let asked_hash = hash(&[material.client_ca, &[material.client_auth as u8]]);
        let hash = hash(&[material.certificates, material.key, &asked_hash]);
        Ok(Self { config: Arc::new(config), validity, is_of_authority, hash, asked_hash })
    }

    /// Takes over the tickets of an acceptor that this one follows, so that clients go on with the
    /// tickets that they have. If clients are asked for other certificates now, their tickets are
    /// worth nothing: a ticket stands for the certificate that was shown for it.
    pub fn following(&self, former: &Acceptor) -> Self {
        let mut config = ServerConfig::clone(&self.config);
        if self.asked_hash == former.asked_hash {
            config.ticketer = Arc::clone(&former.config.ticketer);
        }
        let Self { validity, is_of_authority, hash, asked_hash, .. } = *self;
        Self { config: Arc::new(config), validity, is_of_authority, hash, asked_hash }
    }

    /// What to say of the certificate's time, if that is not now, in seconds since 1970.
    pub fn untimely(&self, now_s: i64) -> Option<String> {
        self.validity.and_then(|validity| validity.complaint(now_s))
    }

    /// What to say of the certificate, if some clients refuse it.
    pub fn complaint(&self) -> Option<&'static str> {
        self.is_of_authority.then_some(
            "the certificate is one of an authority (CA:TRUE), as openssl req -x509 makes them: \
             clients take it that are told to believe this very certificate (curl --cacert, \
             chronos --ca), and some do not. Make it with -addext basicConstraints=CA:FALSE",
        )
    }

    /// When the certificate expires, in seconds since 1970; 0 where that cannot be read.
    pub fn expires_s(&self) -> u64 {
        self.validity.map_or(0, |validity| validity.ends_s())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl PartialEq for Acceptor {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Acceptor {}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

/// What checks the certificates of clients.
fn verifier(
    material: &Material<'_>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, MaterialError> {
    if material.client_auth == ClientAuth::Off {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let roots = Arc::new(authorities(material.client_ca)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    let builder = match material.client_auth {
        ClientAuth::Optional => builder.allow_unauthenticated(),
        ClientAuth::Off | ClientAuth::Required => builder,
    };
    let verifier = builder.build();
    let verifier = verifier.map_err(|error| MaterialError::BadAuthorities(error.to_string()))?;
    Ok(verifier)
}

fn ticketer() -> Result<Arc<dyn ProducesTickets>, MaterialError> {
    aws_lc_rs::Ticketer::new().map_err(|error| MaterialError::NoRandomness(error.to_string()))
}
