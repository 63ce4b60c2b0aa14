//! `chronos cluster certs`: an authority of the cluster's own, and certificates of its nodes and
//! clients, for those who have no authority.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::civil::Date;
use jiff::{ToSpan, Zoned};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::control::config::regular_file;
use crate::tls::material::FILE_BYTES_MAX;
use crate::wire::callback_uri::is_host_name;

const EXAMPLES: &str = "\
Examples:
  chronos cluster certs --out ./pki --node 10.0.0.1 --node 10.0.0.2 --node db1.lan --client ralf
  chronos cluster certs --out ./pki --node 10.0.0.4           one more, of the same authority

What is in ./pki then:
  ca.pem              the authority: what clients and nodes trust, [cluster] tls_ca
  ca.key              its key: keep it off the nodes. Whoever has it can be any of them
  10.0.0.1.pem, .key  a node's: [tls] cert and key, [cluster] tls_cert and tls_key
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

    /// A node's address or name, as others reach it; may be given several times
    #[arg(long, value_name = "HOST", value_parser = host)]
    node: Vec<String>,

    /// A client's name; may be given several times
    #[arg(long, value_name = "NAME", value_parser = host)]
    client: Vec<String>,

    /// How long the certificates hold
    #[arg(long, value_name = "DAYS", default_value_t = 365)]
    #[arg(value_parser = clap::value_parser!(i64).range(1..=3_650))]
    days: i64,
}

/// Takes an address or a name. A port behind it means nothing here.
fn host(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(host, _)| host);
    let bare = bare.filter(|host| host.parse::<IpAddr>().is_ok());
    let plain = text.rsplit_once(':').map_or(text, |(host, _)| host);
    let host = match text.parse::<IpAddr>() {
        Ok(_) => text,
        Err(_) => bare.unwrap_or(plain),
    };
    let is_fine = host.parse::<IpAddr>().is_ok() || is_host_name(host);
    let told = "expected an address or a name such as 10.0.0.1 or db1.lan";
    if is_fine { Ok(host.to_owned()) } else { Err(told.to_owned()) }
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
    let nodes = flags.node.iter().map(|name| (name, true));
    let all: Vec<_> = nodes.chain(flags.client.iter().map(|name| (name, false))).collect();
    // Looked at before anything is made.
    for (name, _) in &all {
        let there = [file(out, name, "pem"), file(out, name, "key")];
        if let Some(path) = there.iter().find(|path| path.exists()) {
            return Err(format!("{} is there already; move it away to renew it", path.display()));
        }
    }
    let (issuer, mut made) = authority(out, today)?;
    for (name, is_node) in all {
        let (certificate, key) = sign(&issuer, name, is_node, (today, flags.days))?;
        write(&file(out, name, "key"), &key, 0o600)?;
        write(&file(out, name, "pem"), &certificate, 0o644)?;
        made += &format!("{}\n", file(out, name, "pem").display());
    }
    Ok(made)
}

fn file(out: &Path, name: &str, kind: &str) -> PathBuf {
    out.join(format!("{}.{kind}", name.replace(':', "_")))
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
    name: &str,
    is_node: bool,
    (today, days): (Date, i64),
) -> Result<(String, String), String> {
    let told = |error: rcgen::Error| format!("{name}: {error}");
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).map_err(told)?;
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.use_authority_key_identifier_extension = true;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A node is a client of other nodes.
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if is_node {
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
    fn hosts_are_addresses_or_names_and_ports_mean_nothing() {
        for (text, name) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1:7253", "10.0.0.1"),
            ("[fd00::1]:7253", "fd00::1"),
            ("fd00::1", "fd00::1"),
            ("db1.lan:7253", "db1.lan"),
            ("ralf", "ralf"),
        ] {
            assert_eq!(host(text).as_deref(), Ok(name));
        }
        for text in ["", "../x", "a/b", "a b", "[x]", "\u{e9}"] {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
