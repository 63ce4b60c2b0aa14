//! `chronos cluster certs`: an authority of the cluster's own, and certificates of its nodes and
//! clients, for those who have no authority.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU16;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::civil::Date;
use jiff::{ToSpan, Zoned};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::control::config::regular_file;
use crate::tls::material::FILE_BYTES_MAX;
use crate::tls::names::MEMBER_SCHEME;
use crate::wire::callback_uri::is_host_name;

const EXAMPLES: &str = "\
Examples:
  chronos cluster certs --out ./pki --node 10.0.0.1 --node 10.0.0.2 --node db1.lan --client ralf
  chronos cluster certs --out ./pki --node 10.0.0.4           one more, of the same authority
  chronos cluster certs --out ./pki --node 10.0.0.5:7253 --node 10.0.0.5:7263
                                       of two nodes on one host, each good for its own port alone

What is in ./pki then:
  ca.pem              the authority: what clients and nodes trust, [cluster] tls_ca
  ca.key              its key: keep it off the nodes. Whoever has it can be any of them
  10.0.0.1.pem, .key  a node's: [tls] cert and key, [cluster] tls_cert and tls_key. With a port its
                      files are 10.0.0.1_7253.pem and .key. Write the port if [cluster] has it there
                      (the files of [fd00::1] are fd00__1.pem and .key)
  ralf.pem, .key      a client's: curl --cert ralf.pem --key ralf.key; no node's

A certificate holds for --days, the authority for ten years. To renew one, move its two files away
and run the command again. A file that is there is never overwritten.

Exit codes:
    0  all files are written
    1  something is there already, or cannot be written; nothing was overwritten
    2  wrong command line";
/// The name of the authority, by which it is known again.
const AUTHORITY: &str = "Chronos cluster authority";
const AUTHORITY_DAYS: i64 = 3_650;
/// Clocks of machines differ: certificates hold from the day before on.
const EARLY_DAYS: i64 = 1;

/// Make an authority and certificates of nodes and clients
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CertsFlags {
    /// The directory, made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// A node's address or name, as others reach it; may be given several times. With a port, as in
    /// the lists of [cluster], the certificate is good for the node at this port alone
    #[arg(long, value_name = "HOST[:PORT]", value_parser = node)]
    node: Vec<Subject>,

    /// A client's name; may be given several times
    #[arg(long, value_name = "NAME", value_parser = client)]
    client: Vec<Subject>,

    /// How long the certificates hold
    #[arg(long, value_name = "DAYS", default_value_t = 365)]
    #[arg(value_parser = clap::value_parser!(i64).range(1..=3_650))]
    days: i64,
}

/// Whom a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    /// An address or a name.
    host: String,
    /// The port of a node that the certificate is good for alone.
    port: Option<u16>,
    is_node: bool,
}

impl Subject {
    /// The name in the lists of members of a node that has a port.
    fn member(&self) -> Option<String> {
        let port = self.port?;
        let is_v6 = self.host.contains(':');
        let host = if is_v6 { format!("[{}]", self.host) } else { self.host.clone() };
        Some(format!("{host}:{port}"))
    }

    /// A file in a directory: `pem` or `key`.
    fn file(&self, out: &Path, kind: &str) -> PathBuf {
        let host = self.host.replace(':', "_");
        out.join(match self.port {
            Some(port) => format!("{host}_{port}.{kind}"),
            None => format!("{host}.{kind}"),
        })
    }
}

/// Takes an address or a name, perhaps with a port.
fn node(text: &str) -> Result<Subject, String> {
    let told = || "expected an address or a name such as 10.0.0.1, db1.lan or 10.0.0.1:7253";
    let (host, port) = match (text.parse::<IpAddr>(), text.rsplit_once(':')) {
        (Err(_), Some((host, port))) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_fine = match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<IpAddr>().is_ok() || is_host_name(host),
    };
    let port = port.map(|port| port.parse::<NonZeroU16>().map_err(|_| told())).transpose()?;
    let port = port.map(NonZeroU16::get);
    let host = bare.unwrap_or(host).to_owned();
    if is_fine { Ok(Subject { host, port, is_node: true }) } else { Err(told().to_owned()) }
}

/// Takes a name. A port behind it means nothing here.
fn client(text: &str) -> Result<Subject, String> {
    Ok(Subject { port: None, is_node: false, ..node(text)? })
}

/// Runs the command. Returns what was made, one line each.
pub(super) fn run(flags: &CertsFlags) -> Result<String, String> {
    let out = &flags.out;
    let failed = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
        format!("cannot {what} {}: {error}", path.display())
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(out)
        .map_err(|error| failed("make", out, &error))?;
    let today = Zoned::now().date();
    let all: Vec<&Subject> = flags.node.iter().chain(&flags.client).collect();
    // Looked at before anything is made.
    for subject in &all {
        let there = [subject.file(out, "pem"), subject.file(out, "key")];
        if let Some(path) = there.iter().find(|path| path.exists()) {
            return Err(format!("{} is there already; move it away to renew it", path.display()));
        }
    }
    let (issuer, mut made) = authority(out, today)?;
    for subject in all {
        let (certificate, key) = sign(&issuer, subject, (today, flags.days))?;
        write(&subject.file(out, "key"), &key, 0o600)?;
        write(&subject.file(out, "pem"), &certificate, 0o644)?;
        made += &format!("{}\n", subject.file(out, "pem").display());
    }
    Ok(made)
}

/// The authority of a directory, made if there is none.
fn authority(out: &Path, today: Date) -> Result<(Issuer<'static, KeyPair>, String), String> {
    let (pem, key_file) = (out.join("ca.pem"), out.join("ca.key"));
    let parameters = authority_parameters(today);
    if !pem.exists() && !key_file.exists() {
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let certificate = parameters.self_signed(&key).map_err(|error| error.to_string())?;
        write(&key_file, &key.serialize_pem(), 0o600)?;
        write(&pem, &certificate.pem(), 0o644)?;
        return Ok((Issuer::new(parameters, key), format!("{}\n", pem.display())));
    }
    let read = |path: &Path| {
        regular_file::read(path, FILE_BYTES_MAX)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let text = String::from_utf8(read(&key_file)?).unwrap_or_default();
    let key = KeyPair::from_pem(&text)
        .map_err(|error| format!("{}: expected a key in PEM: {error}", key_file.display()))?;
    let certificate = CertificateDer::from_pem_slice(&read(&pem)?)
        .map_err(|error| format!("{}: expected a certificate: {error}", pem.display()))?;
    let has = |part: &[u8]| certificate.windows(part.len()).any(|window| window == part);
    if !has(AUTHORITY.as_bytes()) || !has(key.public_key_raw()) {
        return Err(format!(
            "{} is not the certificate that this command made for {}; give another --out",
            pem.display(),
            key_file.display()
        ));
    }
    Ok((Issuer::new(parameters, key), String::new()))
}

fn authority_parameters(today: Date) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, AUTHORITY);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    hold(&mut parameters, today, AUTHORITY_DAYS);
    parameters
}

fn sign(
    issuer: &Issuer<'static, KeyPair>,
    subject: &Subject,
    (today, days): (Date, i64),
) -> Result<(String, String), String> {
    let Subject { host, is_node, .. } = subject;
    let told = |error: rcgen::Error| format!("{host}: {error}");
    let mut parameters = CertificateParams::new(vec![host.clone()]).map_err(told)?;
    if let Some(member) = subject.member() {
        let uri = format!("{MEMBER_SCHEME}{member}").try_into().map_err(told)?;
        parameters.subject_alt_names.push(SanType::URI(uri));
    }
    parameters.distinguished_name.push(DnType::CommonName, host);
    parameters.use_authority_key_identifier_extension = true;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A node is a client of other nodes.
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if *is_node {
        parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    hold(&mut parameters, today, days);
    let key = KeyPair::generate().map_err(told)?;
    let certificate = parameters.signed_by(&key, issuer).map_err(told)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Sets from when until when a certificate holds.
fn hold(parameters: &mut CertificateParams, today: Date, days: i64) {
    let moment = |date: Date| {
        let (year, month, day) = (date.year(), date.month(), date.day());
        date_time_ymd(i32::from(year), month.unsigned_abs(), day.unsigned_abs())
    };
    parameters.not_before = moment(today.saturating_sub(EARLY_DAYS.days()));
    parameters.not_after = moment(today.saturating_add((days + 1).days()));
}

/// Writes a file that is not there.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_addresses_or_names_perhaps_with_ports() {
        for (text, host, member, file) in [
            ("10.0.0.1", "10.0.0.1", None, "10.0.0.1.pem"),
            ("10.0.0.1:7253", "10.0.0.1", Some("10.0.0.1:7253"), "10.0.0.1_7253.pem"),
            ("[fd00::1]:7253", "fd00::1", Some("[fd00::1]:7253"), "fd00__1_7253.pem"),
            ("[fd00::1]", "fd00::1", None, "fd00__1.pem"),
            ("fd00::1", "fd00::1", None, "fd00__1.pem"),
            ("db1.lan:7253", "db1.lan", Some("db1.lan:7253"), "db1.lan_7253.pem"),
        ] {
            let found = node(text).expect(text);
            assert_eq!((found.host.as_str(), found.member().as_deref()), (host, member));
            assert_eq!(found.file(Path::new("x"), "pem"), Path::new("x").join(file));
            let client = client(text).expect(text);
            assert_eq!((client.host.as_str(), client.member()), (host, None));
        }
        for text in [
            "",
            "../x",
            "a/b",
            "a b",
            "[x]",
            "\u{e9}",
            "a:0",
            "a:b",
            "a:65536",
            ":1",
            "[10.0.0.1]:1",
        ] {
            assert!(node(text).is_err() && client(text).is_err(), "{text}");
        }
    }
}
