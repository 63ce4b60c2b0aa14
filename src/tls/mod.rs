//! TLS without sockets: bytes of the wire in, plaintext out, and back. Only this room knows the
//! library that does the work (rustls with AWS-LC). It names no socket, file or thread; who calls
//! it moves the bytes, and decides when a handshake may cost time.

/// Methods of a verifier that has the signatures of handshakes judged by one of its fields.
macro_rules! signatures_are_judged_by {
    ($inner:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.$inner.verify_tls12_signature(message, certificate, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.$inner.verify_tls13_signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.$inner.supported_verify_schemes()
        }
    };
}
use signatures_are_judged_by;

pub mod acceptor;
pub mod connector;
pub(crate) mod material;
pub(crate) mod names;
pub(crate) mod nodes;
mod pinned;
pub mod session;
#[cfg(test)]
mod tls_tests;
pub(crate) mod validity;
