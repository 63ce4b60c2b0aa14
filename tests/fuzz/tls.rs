//! Fuzzing of TLS: bytes in place of a first message, and conversations that are cut and changed.

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::fuzz_one_in;
use super::tls_targets;

/// The first message of a client, behind the byte that says how it is cut.
fn hello(version: usize) -> Vec<u8> {
    let name = ServerName::try_from("localhost").expect("a name");
    let config = tls_targets::client(version);
    let mut client = ClientConnection::new(config, name).expect("a client");
    let mut wire = vec![7];
    client.write_tls(&mut wire).expect("memory");
    wire
}

#[test]
fn tls_hello() {
    fuzz_one_in(
        4,
        tls_targets::tls_hello,
        &[&hello(0), &hello(1)],
        &[
            b"\x16\x03\x01\x00\x05",
            b"\x16\x03\x03\xff\xff",
            b"\x16\x03\x03\x00\x00",
            b"\x15\x03\x03\x00\x02\x02\x28",
            b"\x14\x03\x03\x00\x01\x01",
            b"\x17\x03\x03\x00\x01\x00",
            b"\x01\x00\x00\x00",
            b"\x01\xff\xff\xff",
            b"\x03\x04",
            b"\x00\x2b\x00\x03\x02\x03\x04",
            b"\x00\x29",
            b"GET / HTTP/1.1\r\n\r\n",
        ],
    );
}

#[test]
fn tls_conversation() {
    fuzz_one_in(
        8,
        tls_targets::tls_conversation,
        &[
            b"\x00\xff\x00\x00\x00GET /ping HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x01\x00\x00\x00\x00POST /timers HTTP/1.1\r\n\r\n",
            b"\x01\x05\x00\x01\x10",
        ],
        &[b"\x01", b"\x00", b"\x00\xff\x00", b"\x01\x02\x80\x01\x00", b"\x00\x20", b"words"],
    );
}

/// A server's first message, cut so that a client goes on waiting, behind version and pieces.
fn server_hello(version: u8) -> Vec<u8> {
    let wire = tls_targets::server_hello(usize::from(version));
    [&[version, 7], &wire[..60]].concat()
}

#[test]
fn tls_server_hello() {
    fuzz_one_in(
        4,
        tls_targets::tls_server_hello,
        &[&server_hello(0), &server_hello(1)],
        &[
            b"\x16\x03\x03\x00\x05",
            b"\x16\x03\x03\xff\xff",
            b"\x15\x03\x03\x00\x02\x02\x28",
            b"\x15\x03\x03\x00\x02\x01\x00",
            b"\x14\x03\x03\x00\x01\x01",
            b"\x17\x03\x03\x00\x01\x00",
            b"\x02\x00\x00\x00",
            b"\x02\xff\xff\xff",
            b"\x0b\x00\x00\x00",
            b"\x00\x2b\x00\x02\x03\x04",
            b"\x13\x01",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ],
    );
}

#[test]
fn tls_dialled_conversation() {
    fuzz_one_in(
        8,
        tls_targets::tls_dialled_conversation,
        &[
            b"\x00\xff\x00\x00\x00HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"\x01\x00\x00\x00\x00HTTP/1.1 204 No Content\r\n\r\n",
            b"\x01\x05\x00\x01\x10",
        ],
        &[b"\x01", b"\x00", b"\x00\xff\x00", b"\x01\x02\x80\x01\x00", b"\x00\x20", b"words"],
    );
}
