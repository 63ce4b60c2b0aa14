//! Both sides of the connections between the nodes of a cluster: each node shows a certificate of
//! the cluster's authority. Made from the texts of files; the files are somebody else's.
//!
//! A node's certificate is good for both sides, as a node dials and is dialled. A certificate that
//! is good for clients alone, of the same authority, is none of a node.

use std::sync::Arc;

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DistinguishedName, Error, RootCertStore};

use super::acceptor::{Acceptor, ClientAuth, Material};
use super::connector::{ClientMaterial, Connector, Trust};
use super::material::{MaterialError, authorities, hash, identity};
use super::names::{Member, has_members, is_of, is_of_host};

/// The texts of the files.
#[derive(Clone, Copy)]
pub struct NodeMaterial<'a> {
    /// The node's certificate and those between it and the authority, in PEM.
    pub certificates: &'a [u8],
    /// The private key of the first certificate, in PEM.
    pub key: &'a [u8],
    /// The certificates of the cluster's authority, in PEM.
    pub authorities: &'a [u8],
}

/// What a node dials other nodes with and accepts them with.
pub struct Nodes {
    /// For those that dial.
    pub acceptor: Arc<Acceptor>,
    /// For those that are dialled.
    pub connector: Arc<Connector>,
    own: CertificateDer<'static>,
    /// A hash of all texts: two of one hash are the same.
    hash: [u8; 32],
}

impl Nodes {
    /// Reads the texts. Error as well: the certificate is none of a node, or of another authority.
    pub fn new(material: &NodeMaterial<'_>) -> Result<Self, MaterialError> {
        let NodeMaterial { certificates, key, authorities: trusted } = *material;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let own = identity(certificates, key, &provider)?;
        let verifier = Arc::new(NodeVerifier::new(authorities(trusted)?)?);
        let Some((first, between)) = own.cert.split_first() else {
            return Err(MaterialError::NoCertificate("none".into()));
        };
        match verifier.verify_client_cert(first, between, UnixTime::now()) {
            Ok(_) => {}
            // A certificate of another time is used, and told of elsewhere.
            Err(Error::InvalidCertificate(error)) if is_untimely(&error) => {}
            Err(error) => return Err(MaterialError::NoNode(error.to_string())),
        }
        let first = first.clone();
        let client_auth = ClientAuth::Required;
        let accepting = Material { certificates, key, client_ca: trusted, client_auth };
        let acceptor = Acceptor::of_nodes(&accepting, verifier.clone())?;
        let (trust, identity) = (Trust::These(trusted), Some((certificates, key)));
        let connector = Connector::of_nodes(&ClientMaterial { trust, identity }, verifier)?;
        Ok(Self {
            acceptor: Arc::new(acceptor),
            connector: Arc::new(connector),
            own: first,
            hash: hash(&[certificates, key, trusted]),
        })
    }

    /// Whether the node's own certificate has whole names of members, and is good for these alone.
    pub fn have_members(&self) -> bool {
        has_members(&self.own)
    }

    /// Whether the node's own certificate is good for this node.
    pub fn are_of(&self, member: Member<'_>) -> bool {
        is_of(&self.own, member)
    }
}

impl PartialEq for Nodes {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Nodes {}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").finish_non_exhaustive()
    }
}

fn is_untimely(error: &CertificateError) -> bool {
    matches!(
        error,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    )
}

/// Checks the certificates of nodes: of those that dial as those of clients, and of all as those of
/// servers. Of a node that dials nothing is known yet. Of a node that is dialled the host is: who
/// dials it looks at its whole name when the handshake is over ([`Session::shows`]).
///
/// [`Session::shows`]: super::session::Session::shows
#[derive(Debug)]
pub(super) struct NodeVerifier {
    as_client: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl NodeVerifier {
    fn new(roots: RootCertStore) -> Result<Self, MaterialError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let roots = Arc::new(roots);
        let as_client =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider).build();
        let as_client =
            as_client.map_err(|error| MaterialError::BadAuthorities(error.to_string()))?;
        Ok(Self { as_client, roots, algorithms })
    }

    /// All but the name.
    fn verify_as_server(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let (roots, algorithms) = (&self.roots, self.algorithms.all);
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, between, now, algorithms)
    }
}

impl ClientCertVerifier for NodeVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.as_client.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.as_client.verify_client_cert(certificate, between, now)?;
        self.verify_as_server(certificate, between, now)?;
        Ok(verified)
    }

    super::signatures_are_judged_by!(as_client);
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_as_server(certificate, between, now)?;
        match is_of_host(certificate, host) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::NotValidForName.into()),
        }
    }

    super::signatures_are_judged_by!(as_client);
}
