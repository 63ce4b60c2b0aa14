//! The files that the configuration names and that may change while a node runs: secrets, tokens,
//! certificates, names that lead elsewhere. They are read at the start, on SIGHUP, and when they
//! change ([`super::watch`]).

use std::path::Path;
use std::sync::Arc;

use super::error::Problem;
use super::peer_tls::PeerTlsMode;
use super::settings::Config;
use super::{callback_tls, peer_tls, secret_file, tls};
use crate::tls::acceptor::ClientAuth;

/// Files that belong together: all of them are read, or none.
pub(super) struct FileGroup {
    /// What they are, as the end of a sentence.
    pub(super) what: &'static str,
    /// Their names as configured. An empty name: there is no such file.
    pub(super) names: fn(&Config) -> Vec<&str>,
    /// Reads them into the configuration. Adds what the operator should hear.
    pub(super) read: fn(&mut Config, &mut Vec<String>) -> Result<(), Problem>,
}

/// All groups, in the order in which they are read.
pub(super) const GROUPS: [FileGroup; 7] = [
    FileGroup {
        what: "the cluster's secrets",
        names: |config| vec![&config.secret_file],
        read: read_secrets,
    },
    FileGroup {
        what: "the tokens of clients",
        names: |config| vec![&config.tokens_file],
        read: read_tokens,
    },
    FileGroup {
        what: "the secrets that callbacks are signed with",
        names: |config| vec![&config.signing_secrets_file],
        read: read_signer,
    },
    FileGroup {
        what: "the names of the original's file",
        names: |config| vec![&config.static_names_file.path],
        read: read_static_names,
    },
    FileGroup {
        what: "the certificates of callbacks",
        names: names_of_callbacks,
        read: read_callbacks,
    },
    FileGroup { what: "the files of TLS", names: names_of_tls, read: read_tls },
    FileGroup {
        what: "the files of TLS between nodes",
        names: names_of_peer_tls,
        read: read_peer_tls,
    },
];

fn read_secrets(config: &mut Config, _: &mut Vec<String>) -> Result<(), Problem> {
    if !config.secret_file.is_empty() {
        let secrets = secret_file::read(Path::new(&config.secret_file));
        config.node.guard.secrets = Some(Arc::new(secrets.map_err(Problem::Secret)?));
    }
    Ok(())
}

fn read_tokens(config: &mut Config, _: &mut Vec<String>) -> Result<(), Problem> {
    if !config.tokens_file.is_empty() {
        let tokens = secret_file::read_tokens(Path::new(&config.tokens_file));
        config.node.tokens = Some(Arc::new(tokens.map_err(Problem::Tokens)?));
    }
    Ok(())
}

fn read_signer(config: &mut Config, _: &mut Vec<String>) -> Result<(), Problem> {
    if !config.signing_secrets_file.is_empty() {
        let signer = secret_file::read_signer(Path::new(&config.signing_secrets_file));
        config.node.signer = Some(Arc::new(signer.map_err(Problem::Signing)?));
    }
    Ok(())
}

/// Reads which names lead elsewhere. What is wrong is told, and is no failure: the original starts
/// and goes on as well.
pub(super) fn read_static_names(
    config: &mut Config,
    told: &mut Vec<String>,
) -> Result<(), Problem> {
    if !config.static_names_file.path.is_empty()
        && let Some(names) = config.static_names_file.read(told)
    {
        config.node.static_names = Arc::new(names);
    }
    Ok(())
}

fn names_of_callbacks(config: &Config) -> Vec<&str> {
    let files = &config.callback_tls;
    vec![&files.ca, &files.client_cert, &files.client_key]
}

fn read_callbacks(config: &mut Config, _: &mut Vec<String>) -> Result<(), Problem> {
    if config.node.serves_timers {
        let connector = callback_tls::read(&config.callback_tls);
        config.node.connector = connector.map_err(Problem::CallbackTls)?;
    }
    Ok(())
}

fn names_of_tls(config: &Config) -> Vec<&str> {
    if !config.has_tls() {
        return Vec::new();
    }
    let tls = &config.tls;
    let authorities = (tls.client_auth != ClientAuth::Off).then_some(tls.client_ca.as_str());
    [tls.cert.as_str(), tls.key.as_str()].into_iter().chain(authorities).collect()
}

fn read_tls(config: &mut Config, told: &mut Vec<String>) -> Result<(), Problem> {
    if config.has_tls() {
        let listen = config.tls.address(config.node.listen).filter(|_| config.node.serves_timers);
        let (settings, untimely) = tls::read(&config.tls, listen).map_err(Problem::Tls)?;
        config.node.tls = Some(settings);
        told.extend(untimely);
    }
    Ok(())
}

fn speaks_peer_tls(config: &Config) -> bool {
    config.peer_tls.mode != PeerTlsMode::Off && config.node.serves_timers
}

fn names_of_peer_tls(config: &Config) -> Vec<&str> {
    if !speaks_peer_tls(config) {
        return Vec::new();
    }
    let (cert, key) = config.peer_tls.own_files(&config.tls);
    vec![cert, key, &config.peer_tls.ca]
}

fn read_peer_tls(config: &mut Config, told: &mut Vec<String>) -> Result<(), Problem> {
    if speaks_peer_tls(config) {
        let (peers, clients, name) = (&config.peer_tls, &config.tls, &config.node.name);
        let read = peer_tls::read(peers, clients, name).map_err(Problem::PeerTls)?;
        let (settings, untimely) = read.unzip();
        config.node.peer_tls = settings;
        told.extend(untimely.flatten());
    }
    Ok(())
}
