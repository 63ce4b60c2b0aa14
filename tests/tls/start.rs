//! Files that a node does not start with, and what it says.

use kit::children::Tied;

use super::authorities::{Authority, Files};
use super::harness::{Node, command, config_file};

/// What a node says that does not start with this configuration.
fn refusal(config: &str) -> String {
    let file = config_file(config);
    let output = command(&file, config).output_tied().expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(!told.contains("panicked") && !told.contains("PRIVATE KEY-----\\n"), "{told}");
    told
}

#[test]
fn files_that_cannot_be_used_are_told_with_the_remedy() {
    let authority = Authority::new();
    let (one, other) = (authority.server(), authority.server());
    let files = Files::new(&one);
    let config = files.config("");
    let key = files.path("key.pem");
    let told_of = |told: &str, what: &str| {
        let refusal = refusal(&config);
        assert!(refusal.contains(told), "{what}: expected `{told}` in `{refusal}`");
    };
    for mode in [0o640, 0o644, 0o604] {
        files.write("key.pem", &one.key, mode);
        told_of(&format!("type: chmod 600 {}", key.display()), "a key that others may read");
    }
    files.write("key.pem", &other.key, 0o600);
    told_of("it does not fit the first certificate", "another key");
    files.write("key.pem", &one.certificate, 0o600);
    told_of("key.pem: expected a private key in PEM", "no key");
    files.write("key.pem", "", 0o600);
    told_of("key.pem: expected a private key in PEM", "an empty file");
    std::fs::remove_file(&key).expect("there");
    told_of("key.pem: cannot be read", "no file");
    files.put(&one);
    files.write("cert.pem", &one.key, 0o644);
    told_of("found none", "a key in place of a certificate");
    files.write(
        "cert.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        0o644,
    );
    told_of("expected an X.509 certificate", "no certificate");
    std::fs::remove_file(files.path("cert.pem")).expect("there");
    told_of("cert.pem: cannot be read", "no file");
    std::fs::create_dir(files.path("cert.pem")).expect("a folder");
    told_of("cert.pem: cannot be read", "a folder");
}

#[test]
fn keys_that_contradict_each_other_are_told() {
    let files = Files::new(&Authority::new().server());
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    let (cert, key) = (cert.display(), key.display());
    for (config, told) in [
        (format!("[tls]\ncert = '{cert}'"), "belong together"),
        (format!("[tls]\nkey = '{key}'"), "belong together"),
        ("[node]\nlisten_tls = '127.0.0.1:0'".to_owned(), "needs a certificate"),
        (files.config("client_auth = 'required'"), "set [tls] client_ca"),
        (files.config("client_ca = '/nowhere'"), "set client_auth to"),
        (files.config("client_auth = 'optional'\nclient_ca = '/nowhere'"), "client_ca: /nowhere"),
        (
            files.config(&format!("client_auth = 'required'\nclient_ca = '{key}'")),
            "key.pem: expected the certificates",
        ),
        (
            format!(
                "[node]\nlisten_tls = '0.0.0.0:1'\n[tls]\ncert = '{cert}'\nkey = '{key}'\n\
                     [timestamp]\nlisten = '127.0.0.1:1'\nenabled = true\nfile = '/nowhere'"
            ),
            "takes the same port",
        ),
        ("[node]\nlisten_tls = 'localhost:1'".to_owned(), "an IP address and port"),
    ] {
        let refusal = refusal(&config);
        assert!(refusal.contains(told), "{config}: expected `{told}` in `{refusal}`");
    }
}

#[test]
fn a_certificate_whose_time_is_over_is_told_and_served() {
    let authority = Authority::new();
    let files = Files::new(&authority.expired(2020));
    let node = Node::start(&files.config(""));
    let logged = node.logged();
    assert!(logged.contains("the certificate has expired (2020-01-01"), "{logged}");
    assert!(logged.contains("\"WARN\""), "{logged}");
}

/// Paths are shown, what stands in the files is not.
#[test]
fn the_printed_configuration_has_no_key() {
    let identity = Authority::new().server();
    let files = Files::new(&identity);
    let config = files.config("");
    let file = config_file(&config);
    let output = command(&file, &config).arg("--print-config").output_tied().expect("runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("key.pem"), "{printed}");
    let line = identity.key.lines().nth(1).expect("a line of the key");
    assert!(!printed.contains(line) && !printed.contains("PRIVATE"), "{printed}");
}
