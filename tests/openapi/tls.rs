//! Over TLS who only looks needs a token as well.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::contract::Contract;
use super::node::{Node, Tokens};
use super::wire::{Answer, Ask, connect, exchange};

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    let closed = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, closed).expect("its own");
}

fn ask(node: &Node, config: &Arc<ClientConfig>, ask: &Ask) -> Answer {
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let to = node.admin_tls.expect("it is told at the start");
    let mut stream: StreamOwned<ClientConnection, TcpStream> =
        StreamOwned::new(session, connect(to));
    exchange(&mut stream, ask.text().as_bytes(), ask.method == "HEAD")
}

pub fn looks_without_a_token(contract: &Contract) {
    let folder = tempfile::tempdir().expect("a folder");
    let names = vec!["localhost".to_owned()];
    let signed = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    write(&cert, &signed.cert.pem());
    write(&key, &signed.signing_key.serialize_pem());
    let tokens = Tokens::make();
    let node = Node::start(&format!(
        "[admin]\nlisten_tls = '127.0.0.1:0'\n[tls]\ncert = {cert:?}\nkey = {key:?}\n{}",
        tokens.config()
    ));
    let mut roots = RootCertStore::empty();
    roots.add(signed.cert.der().clone()).expect("an authority");
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let config = Arc::new(config);
    for operation in contract.operations.iter().filter(|one| one.method == "get") {
        let look = contract.example(&operation.id, &[]);
        let is_open = ["console", "access"].contains(&&*operation.id);
        for look in [look.clone(), look.with("Accept: application/problem+json")] {
            let answer = ask(&node, &config, &look);
            contract.judge(&look, &answer);
            if answer.status != if is_open { 200 } else { 401 } {
                contract.note(format!("{} over TLS: {answer:?}", operation.id));
            }
        }
    }
    let look = contract.example("cluster", &[]).with(&tokens.reader);
    assert_eq!(ask(&node, &config, &look).status, 200);
}
