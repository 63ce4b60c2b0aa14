//! A callback server that speaks TLS: rustls without the project's code.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use kit::http::{Message, read_message};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};

use super::authorities::{Authority, Identity};

/// What a server has seen.
#[derive(Default)]
pub struct Seen {
    /// The callbacks, each with the number of its connection.
    pub callbacks: Vec<(usize, Message)>,
    /// The connections whose handshake has ended well.
    pub handshakes: Vec<HandshakeKind>,
    /// The names that were asked for; `None`: none.
    pub names: Vec<Option<String>>,
    /// How many connections ended with a close_notify.
    pub told_ends: usize,
    /// Why handshakes failed.
    pub failures: Vec<String>,
}

/// What a server does behind an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It waits for the next callback.
    GoesOn,
    /// It closes, and says so.
    Closes,
    /// It closes and says nothing.
    Breaks,
}

/// A callback server.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// What a server is made with.
pub struct Setup<'a> {
    /// Where it listens.
    pub at: SocketAddr,
    /// Its certificate.
    pub identity: &'a Identity,
    /// The versions that it speaks.
    pub versions: &'a [&'static SupportedProtocolVersion],
    /// Whose certificates clients must show.
    pub asks: Option<&'a Authority>,
    /// Its answer.
    pub answer: &'static str,
    /// What it does then.
    pub then: Then,
}

impl<'a> Setup<'a> {
    pub fn of(identity: &'a Identity) -> Setup<'a> {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let versions = rustls::ALL_VERSIONS;
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        Setup { at, identity, versions, asks: None, answer, then: Then::GoesOn }
    }

    pub fn start(self) -> Server {
        let certificate = CertificateDer::from_pem_slice(self.identity.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(self.identity.key.as_bytes()).expect("a key");
        let builder = ServerConfig::builder_with_protocol_versions(self.versions);
        let builder = match self.asks {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(CertificateDer::from_pem_slice(
                    authority.pem().as_bytes(),
                ));
                let verifier = WebPkiClientVerifier::builder(roots.into()).build();
                builder.with_client_cert_verifier(verifier.expect("an authority"))
            }
        };
        let certificate = certificate.expect("a certificate");
        let mut config = builder.with_single_cert(vec![certificate], key).expect("they fit");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind(self.at).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (seen, config) = (Arc::<Mutex<Seen>>::default(), Arc::new(config));
        let all = Arc::clone(&seen);
        let Setup { answer, then, .. } = self;
        // The threads end with the process.
        thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let (seen, config) = (Arc::clone(&all), Arc::clone(&config));
                thread::spawn(move || serve(number, stream, config, &seen, (answer, then)));
            }
        });
        Server { address, seen }
    }
}

fn serve(
    number: usize,
    mut stream: TcpStream,
    config: Arc<ServerConfig>,
    seen: &Mutex<Seen>,
    (answer, then): (&str, Then),
) {
    let lock = || seen.lock().expect("nobody panics with it");
    let mut connection = ServerConnection::new(config).expect("a server");
    while connection.is_handshaking() {
        if let Err(error) = connection.complete_io(&mut stream) {
            return lock().failures.push(error.to_string());
        }
    }
    assert_eq!(connection.alpn_protocol(), Some(&b"http/1.1"[..]));
    lock().handshakes.extend(connection.handshake_kind());
    lock().names.push(connection.server_name().map(str::to_owned));
    let mut stream = StreamOwned::new(connection, stream);
    let mut buffer = Vec::new();
    loop {
        match read_message(&mut stream, &mut buffer) {
            Ok(callback) => lock().callbacks.push((number, callback)),
            Err(_) => {
                // The library tells an end without close_notify as an error of its own.
                let is_told = matches!(std::io::Read::read(&mut stream, &mut [0]), Ok(0));
                return lock().told_ends += usize::from(is_told);
            }
        }
        if stream.write_all(answer.as_bytes()).is_err() || then == Then::Breaks {
            return;
        }
        if then == Then::Closes {
            stream.conn.send_close_notify();
            let _ = stream.flush();
            return;
        }
    }
}

impl Server {
    /// The URI of a path at this server.
    pub fn uri(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.address.port())
    }

    /// What the server has seen.
    pub fn with<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().expect("nobody panics with it"))
    }
}
