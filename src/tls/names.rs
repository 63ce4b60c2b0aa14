//! The names of nodes in certificates: as for any server the host, as a DNS name or an IP address;
//! or the whole name of a member, host and port, as a URI `chronos://10.0.0.1:7253`.
//!
//! A certificate with names of the second kind is good for these members alone. So each of several
//! nodes on one host can have one with which it cannot speak for the others.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use webpki::EndEntityCert;

/// What the URI of a member begins with.
pub const MEMBER_SCHEME: &str = "chronos://";

/// A node as others know it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name in the lists of members, or where it is dialled: `10.0.0.1:7253`.
    pub name: &'a str,
    /// The name without its port, and without brackets.
    pub host: &'a str,
}

/// Whether a certificate is good for a node. URIs are compared with the name letter by letter, but
/// for their case.
pub(super) fn is_of(certificate: &CertificateDer<'_>, member: Member<'_>) -> bool {
    match members_in(certificate) {
        members if members.is_empty() => {
            server_name(member.host).is_some_and(|name| has_host(certificate, &name))
        }
        members => members.iter().any(|name| name.eq_ignore_ascii_case(member.name)),
    }
}

/// Whether a certificate has whole names of members.
pub(super) fn has_members(certificate: &CertificateDer<'_>) -> bool {
    !members_in(certificate).is_empty()
}

/// Whether a certificate can be of a node on this host.
pub(super) fn is_of_host(certificate: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    let is_there = |name: &&str| server_name(host_in(name)).is_some_and(|name| name == *host);
    has_host(certificate, host) || members_in(certificate).iter().any(is_there)
}

fn has_host(certificate: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    parsed.is_ok_and(|parsed| verify_server_name(&parsed, host).is_ok())
}

/// The host as certificates have it. `None`: the text is neither a name nor an address.
pub(super) fn server_name(host: &str) -> Option<ServerName<'_>> {
    // A name may end in the dot of the root, a certificate's does not (RFC 6066, section 3).
    ServerName::try_from(host.strip_suffix('.').unwrap_or(host)).ok()
}

/// The members' names in the URIs of a certificate.
fn members_in<'a>(certificate: &'a CertificateDer<'_>) -> Vec<&'a str> {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    let names = parsed.valid_uri_names().filter_map(|uri| {
        let (scheme, name) = uri.split_at_checked(MEMBER_SCHEME.len())?;
        scheme.eq_ignore_ascii_case(MEMBER_SCHEME).then_some(name.strip_suffix('/').unwrap_or(name))
    });
    names.collect()
}

/// The host in a member's name: what stands before the port, without brackets.
fn host_in(name: &str) -> &str {
    if let Some((host, _)) = name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return host;
    }
    match name.rsplit_once(':') {
        // Of several colons none begins a port.
        Some((host, _)) if !host.contains(':') => host,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    /// A certificate with these names; those with `://` are URIs.
    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let (uris, hosts): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| name.contains("://"));
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        let mut parameters = CertificateParams::new(hosts).expect("good names");
        let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().expect("ASCII")));
        parameters.subject_alt_names.extend(uris);
        let key = KeyPair::generate().expect("randomness");
        parameters.self_signed(&key).expect("its own").der().clone()
    }

    fn member(name: &str) -> Member<'_> {
        Member { name, host: host_in(name) }
    }

    #[test]
    fn without_a_uri_the_host_decides() {
        let of = certificate(&["10.0.0.1", "node-1.example", "spiffe://example/chronos"]);
        for name in ["10.0.0.1:7253", "10.0.0.1:9", "10.0.0.1", "Node-1.example.:7253"] {
            assert!(is_of(&of, member(name)), "{name}");
        }
        for name in ["10.0.0.2:7253", "node-2.example:7253", "", "spiffe://example/chronos"] {
            assert!(!is_of(&of, member(name)), "{name}");
        }
    }

    #[test]
    fn uris_name_the_members_that_a_certificate_is_good_for() {
        let of = certificate(&["10.0.0.1", "chronos://10.0.0.1:7253", "CHRONOS://Node-1:7253/"]);
        for name in ["10.0.0.1:7253", "node-1:7253"] {
            assert!(is_of(&of, member(name)), "{name}");
        }
        for name in ["10.0.0.1:7263", "10.0.0.1", "node-1:7254", "node-1", "0.0.0.1:7253", ""] {
            assert!(!is_of(&of, member(name)), "{name}");
        }
        assert!(is_of(&certificate(&["chronos://[fd00::1]:7253"]), member("[fd00::1]:7253")));
        assert!(!is_of(&certificate(&["chronos://"]), member("10.0.0.1:7253")));
        let short = certificate(&["10.0.0.1", "chronos:x", "x://chronos://10.0.0.1:9"]);
        assert!(is_of(&short, member("10.0.0.1:7253")), "URIs of others mean nothing");
    }

    #[test]
    fn before_the_port_is_known_the_host_of_a_uri_is_one() {
        let of = certificate(&[
            "chronos://10.0.0.1:7253",
            "chronos://[fd00::1]:7253",
            "chronos://node-1.example:7253",
        ]);
        let is_there = |host: &str| is_of_host(&of, &server_name(host).expect("a host"));
        for host in ["10.0.0.1", "fd00::1", "fd00:0::1", "NODE-1.example."] {
            assert!(is_there(host), "{host}");
        }
        for host in ["10.0.0.2", "fd00::2", "node-2.example", "example"] {
            assert!(!is_there(host), "{host}");
        }
        assert!(is_of_host(&certificate(&["10.0.0.1"]), &server_name("10.0.0.1").expect("one")));
    }

    #[test]
    fn what_is_no_certificate_has_no_name() {
        for bytes in [&b""[..], b"x", &[0x30, 0x80]] {
            let none = CertificateDer::from(bytes);
            assert!(!is_of(&none, member("10.0.0.1:7253")));
            assert!(!is_of_host(&none, &server_name("10.0.0.1").expect("a host")));
        }
    }
}
