//! One TLS connection of either side, from its first byte to its end.

// May panic: expectations 2, indices 1.
// Why it does not: found 1, memory 2.

use std::io::{Read, Write};

use rustls::{
    AlertDescription, CertificateError, ClientConnection, Connection, Error, HandshakeKind,
    ServerConnection,
};

use super::acceptor::Acceptor;
use super::connector::Connector;
use super::names::{Member, is_of, server_name};

/// The type of the record that a TLS connection begins with (RFC 8446, section 5.1: handshake).
const HANDSHAKE_RECORD: u8 = 22;

/// The type of the record of an alert (RFC 8446, section 6).
const ALERT_RECORD: u8 = 21;

/// Bytes of a record's head: type, version, length (RFC 8446, section 5.1).
const RECORD_HEAD_BYTES: usize = 5;

/// Most bytes in a record: 2^14, and 2^11 for what TLS 1.2 may add (RFC 5246, section 6.2.3).
const RECORD_BYTES_MAX: usize = (16 << 10) + (2 << 10);

/// The type of the message that a client begins with (RFC 8446, section 4: client_hello).
const CLIENT_HELLO: u8 = 1;

/// Bytes of a message's head: kind and length (RFC 8446, section 4).
const HELLO_HEAD_BYTES: usize = 4;

/// Most bytes of a client hello, as many as of a whole handshake. The library waits for no more.
const HELLO_BYTES_MAX: usize = 64 << 10;

/// Bytes that tell whether a client hello begins with them.
pub const FIRST_HEADS_BYTES: usize = RECORD_HEAD_BYTES + HELLO_HEAD_BYTES;

/// Bytes of a first flight above which nothing more is received before the handshake begins. A
/// client hello with everything in it has 2 KiB.
pub const FIRST_FLIGHT_BYTES: usize = RECORD_HEAD_BYTES + (16 << 10);

/// The record of an alert in the clear: fatal, decode_error (RFC 8446, section 6).
pub const DECODE_ERROR: [u8; 7] = [ALERT_RECORD, 3, 3, 0, 2, 2, 50];

/// Why a connection cannot go on. [`Session::send`] has the alert that tells the other end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct TlsError {
    /// What kind of reason it is.
    pub kind: TlsFault,
    text: String,
    /// What the other end has told, if it has.
    alert: Option<AlertDescription>,
}

/// What the other end says of this end's certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnCertificate {
    /// It asks for one, and was shown none.
    Asked,
    /// It does not take the one that it was shown.
    Refused,
}

/// Kinds of reasons for which a connection cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFault {
    /// No authority that is believed has signed the other end's certificate.
    Authority,
    /// The other end's certificate is of another name.
    Name,
    /// The other end's certificate has expired, or does not hold yet.
    Time,
    /// The other end's certificate is bad for another reason.
    Certificate,
    /// The other end has told an error.
    Alert,
    /// What came is no TLS, or none that both ends speak.
    Protocol,
}

impl TlsError {
    fn protocol(text: String) -> Self {
        Self { kind: TlsFault::Protocol, text, alert: None }
    }

    fn of(error: &Error) -> Self {
        let kind = match error {
            Error::InvalidCertificate(wrong) => match wrong {
                // The second is that of an authority of the same name with another key.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    TlsFault::Authority
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => TlsFault::Name,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => TlsFault::Time,
                _ => TlsFault::Certificate,
            },
            Error::NoCertificatesPresented => TlsFault::Certificate,
            Error::AlertReceived(_) => TlsFault::Alert,
            _ => TlsFault::Protocol,
        };
        let alert = match error {
            Error::AlertReceived(alert) => Some(*alert),
            _ => None,
        };
        Self { kind, text: error.to_string(), alert }
    }

    /// What the other end has told of this end's certificate (RFC 8446, section 6.2).
    pub fn own_certificate(&self) -> Option<OwnCertificate> {
        match self.alert? {
            AlertDescription::CertificateRequired => Some(OwnCertificate::Asked),
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError => Some(OwnCertificate::Refused),
            _ => None,
        }
    }
}

/// Whether a connection that begins with these bytes can be one of TLS.
pub fn may_be_tls(wire: &[u8]) -> bool {
    wire.first() == Some(&HANDSHAKE_RECORD)
}

/// Whether what a client has sent so far can become the first message of TLS, as far as the heads
/// of its first record and message tell. What cannot costs no handshake.
pub fn may_be_client_hello(wire: &[u8]) -> bool {
    // The minor version is to be ignored, and so is that of the message (RFC 8446, section 5.1).
    let is_version = may_be_tls(wire) && wire.get(1).is_none_or(|major| *major == 3);
    let Some(([_, _, _, high, low], rest)) = wire.split_first_chunk::<RECORD_HEAD_BYTES>() else {
        return is_version;
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    // A message may be cut into records: what follows this one has another head first.
    let message = rest.get(..length).unwrap_or(rest);
    let is_hello = match message {
        [] => true,
        [kind, high, middle, low, ..] => {
            let bytes = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            *kind == CLIENT_HELLO && bytes <= HELLO_BYTES_MAX
        }
        [kind, ..] => *kind == CLIENT_HELLO,
    };
    is_version && (1..=RECORD_BYTES_MAX).contains(&length) && is_hello
}

/// Whether the answer to the first bytes of TLS can be one of TLS: a handshake, or an alert that
/// refuses it.
pub fn may_answer_tls(wire: &[u8]) -> bool {
    may_be_tls(wire) || wire.first() == Some(&ALERT_RECORD)
}

/// One side of a connection.
pub struct Session {
    connection: Connection,
    /// Whether [`DECODE_ERROR`] is to be sent: the library says nothing of a message that is too
    /// long.
    owes_alert: bool,
}

impl Session {
    /// The server's side of a connection on which nothing has come yet. Error: the system has no
    /// randomness.
    pub fn accept(acceptor: &Acceptor) -> Result<Self, TlsError> {
        let made = ServerConnection::new(acceptor.config());
        made.map(|made| Self::new(made.into())).map_err(|error| TlsError::of(&error))
    }

    /// The client's side of a connection to a server of this name or address, which its certificate
    /// must have. [`Session::send`] has the first bytes. Error: `host` is neither a name nor an
    /// address, or the system has no randomness.
    pub fn dial(connector: &Connector, host: &str) -> Result<Self, TlsError> {
        let told = || TlsError::protocol(format!("{host}: no name of a server"));
        let name = server_name(host).ok_or_else(told)?;
        let made = ClientConnection::new(connector.config(), name.to_owned());
        made.map(|made| Self::new(made.into())).map_err(|error| TlsError::of(&error))
    }

    fn new(mut connection: Connection) -> Self {
        // What is written is sent at once, so nothing has to be refused here: the caller bounds
        // what waits.
        connection.set_buffer_limit(None);
        Self { connection, owes_alert: false }
    }

    /// Takes all bytes of `wire` and appends the plaintext in them to `plain`. Returns whether the
    /// other end has said that it sends nothing more (close_notify). Nothing after an error is
    /// taken; what was said before it is appended all the same. Cost: a handshake's share is some
    /// 100 us for a key on P-256, more than that for RSA; a record of a request about 1 us.
    pub fn receive(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<bool, TlsError> {
        let mut has_ended = false;
        while !wire.is_empty() && !has_ended {
            let taken = self.connection.read_tls(&mut wire);
            taken.map_err(|error| TlsError::protocol(error.to_string()))?;
            let state = match self.connection.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    self.owes_alert = self.is_handshaking() && !self.connection.wants_write();
                    // Its own end is an error as well: there is no more.
                    let _ = self.connection.reader().read_to_end(plain);
                    return Err(TlsError::of(&error));
                }
            };
            let begins = plain.len();
            plain.resize(begins + state.plaintext_bytes_to_read(), 0);
            let read = self.connection.reader().read_exact(&mut plain[begins..]);
            read.map_err(|error| TlsError::protocol(error.to_string()))?;
            has_ended = state.peer_has_closed();
        }
        Ok(has_ended)
    }

    /// Encrypts `plain` for [`Session::send`]. For connections whose handshake is over.
    pub fn write(&mut self, plain: &[u8]) {
        self.connection.writer().write_all(plain).expect("its buffer has no limit");
    }

    /// Says that nothing more will be written (close_notify). [`Session::send`] has the bytes.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether [`Session::send`] has bytes.
    pub fn wants_to_send(&self) -> bool {
        self.connection.wants_write() || self.owes_alert
    }

    /// Appends the bytes that are to go to the other end: of the handshake, of what was written, of
    /// the alert after an error.
    pub fn send(&mut self, wire: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection.write_tls(wire).expect("memory takes all");
        }
        if std::mem::take(&mut self.owes_alert) {
            wire.extend_from_slice(&DECODE_ERROR);
        }
    }

    /// Whether the handshake is not over yet. Until then there is no plaintext either way.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the other end has shown a certificate that is good for this node.
    pub fn shows(&self, member: Member<'_>) -> bool {
        let shown = self.connection.peer_certificates().and_then(|shown| shown.first());
        shown.is_some_and(|certificate| is_of(certificate, member))
    }

    /// Whether the handshake went on where a former connection ended, by a ticket.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("is_handshaking", &self.is_handshaking()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_begin_a_client_hello_may_be_one() {
        let hello = [22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 9, 9];
        for end in 1..=hello.len() {
            assert!(may_be_client_hello(&hello[..end]), "{end} bytes");
        }
        // Cut after each byte of the message, as a client may do.
        for length in 1..=8 {
            let cut = [&[22, 3, 4, 0, length][..], &[1, 0, 1, 0xfc, 3, 3, 9, 9][..length as usize]];
            assert!(may_be_client_hello(&[&cut.concat()[..], &[22, 9]].concat()), "{length}");
        }
        for (place, byte) in [(0, 23), (1, 2), (3, 0x49), (5, 2), (5, 0x16), (6, 1)] {
            let mut wrong = hello;
            wrong[place] = byte;
            // A length is known with its second byte.
            let known = if place == 3 { 5 } else { place + 1 };
            let known = if place == 6 { 9 } else { known };
            assert!(!may_be_client_hello(&wrong[..known]), "byte {place} is {byte}");
            assert!(!may_be_client_hello(&wrong), "byte {place} is {byte}");
        }
        assert!(!may_be_client_hello(&[22, 3, 3, 0, 0]), "an empty record");
        assert!(!may_be_client_hello(&[]));
    }
}
