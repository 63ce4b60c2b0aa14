//! Certificates of nodes, good and bad, and both sides of TLS as a stranger plays them.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use kit::client::PATIENCE;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose as Purpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use socket2::{Domain, Socket, Type};

use super::harness::Cluster;

/// What a certificate is good for, or what is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A node's.
    Good,
    /// Its time is over.
    Expired,
    /// Its time has not begun.
    Future,
    /// It signs itself.
    SelfSigned,
    /// It is of another authority.
    OtherAuthority,
    /// It has the name of another member.
    OtherName,
    /// It is of another node on the same host.
    OtherPort,
    /// It has no host, but the whole name of the member.
    WholeName,
    /// It is a client's.
    ClientsOnly,
    /// It is a server's that dials nobody.
    ServersOnly,
}

/// All that are no good in at least one direction.
pub const BAD: [Kind; 7] = [
    Kind::Expired,
    Kind::Future,
    Kind::SelfSigned,
    Kind::OtherAuthority,
    Kind::OtherName,
    Kind::OtherPort,
    Kind::ClientsOnly,
];

/// A certificate with its key.
pub struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Identity {
    fn chain(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        (vec![self.certificate.der().clone()], key)
    }
}

/// An authority that signs certificates of nodes.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

impl Authority {
    pub fn new() -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages.push(KeyUsagePurpose::KeyCertSign);
        let key = KeyPair::generate().expect("randomness");
        let certificate = parameters.self_signed(&key).expect("its own");
        Authority { issuer: Issuer::new(parameters, key), certificate }
    }

    /// A certificate with this name or address; with a port, where the kind is about ports. Other
    /// names and other authorities are chosen by the caller.
    pub fn sign(&self, name: &str, kind: Kind) -> Identity {
        let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
        let mut parameters = CertificateParams::new(vec![host.to_owned()]).expect("a good name");
        let member = match kind {
            Kind::OtherPort => Some(format!("{host}:1")),
            Kind::WholeName => Some(name.to_owned()),
            _ => None,
        };
        if let Some(member) = member {
            let uri = format!("chronos://{member}").try_into().expect("ASCII");
            parameters.subject_alt_names.push(SanType::URI(uri));
        }
        if kind == Kind::WholeName {
            parameters.subject_alt_names.remove(0);
        }
        parameters.extended_key_usages = match kind {
            Kind::ClientsOnly => vec![Purpose::ClientAuth],
            Kind::ServersOnly => vec![Purpose::ServerAuth],
            _ => vec![Purpose::ClientAuth, Purpose::ServerAuth],
        };
        match kind {
            Kind::Expired => parameters.not_after = date_time_ymd(2020, 1, 1),
            Kind::Future => parameters.not_before = date_time_ymd(2090, 1, 1),
            _ => {}
        }
        let key = KeyPair::generate().expect("randomness");
        let certificate = match kind {
            Kind::SelfSigned => parameters.self_signed(&key).expect("its own"),
            _ => parameters.signed_by(&key, &self.issuer).expect("signed"),
        };
        Identity { certificate, key }
    }

    /// What trusts this authority alone.
    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("an authority");
        roots
    }

    /// The dialler's side, which shows this.
    pub fn dialler(&self, identity: Option<&Identity>) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        Arc::new(match identity.map(Identity::chain) {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).expect("they fit"),
            None => builder.with_no_client_auth(),
        })
    }

    /// The side of a node that is dialled, which shows this.
    pub fn acceptor(&self, identity: &Identity) -> Arc<ServerConfig> {
        let verifier = WebPkiClientVerifier::builder(Arc::new(self.roots())).build();
        let builder = ServerConfig::builder().with_client_cert_verifier(verifier.expect("roots"));
        let (chain, key) = identity.chain();
        Arc::new(builder.with_single_cert(chain, key).expect("they fit"))
    }

    /// Writes the files of a node, and gives it the lines that name them.
    pub fn equip(&self, cluster: &mut Cluster, place: usize, mode: &str, identity: &Identity) {
        let path = |what: &str| cluster.folder().join(format!("node{}.{what}", place + 1));
        let (cert, key, ca) = (path("cert"), path("key"), path("ca"));
        let write = |path: &Path, text: String| std::fs::write(path, text).expect("written");
        write(&cert, identity.certificate.pem());
        write(&key, identity.key.serialize_pem());
        write(&ca, self.certificate.pem());
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("its own");
        let lines = format!(
            "\n[cluster]\ntls = {mode}\ntls_cert = {}\ntls_key = {}\ntls_ca = {}\n",
            cert.display(),
            key.display(),
            ca.display()
        );
        cluster.set_local(place, &lines);
    }
}

/// The host in a member's name.
pub fn host_of(name: &str) -> &str {
    name.rsplit_once(':').expect("a port").0
}

/// A connection from this address to a node.
pub fn connect(from: SocketAddr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(from.ip(), 0).into()).expect("a loopback address");
    socket.connect_timeout(&to.into(), PATIENCE).expect("it listens");
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("a TCP socket");
    stream
}

/// TLS from this address to a node, before the handshake.
pub fn dial(
    config: &Arc<ClientConfig>,
    from: SocketAddr,
    to: SocketAddr,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::from(to.ip());
    let session = ClientConnection::new(config.clone(), name).expect("a client");
    StreamOwned::new(session, connect(from, to))
}
