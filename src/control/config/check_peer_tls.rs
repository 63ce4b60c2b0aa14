//! Checks across the keys of TLS between nodes.

use super::peer_tls::{PeerTlsConfig, PeerTlsMode};
use super::settings::Config;

/// Whether all that goes between the nodes of the cluster goes over TLS, so that nothing of it
/// needs the plain listener to be open without, and nobody is a node who has no certificate.
pub(super) fn peers_use_tls(config: &Config) -> bool {
    config.peer_tls.mode == PeerTlsMode::Required
}

/// Adds a text for each pair of values that are valid alone and contradict each other.
pub(super) fn check(config: &Config, conflicts: &mut Vec<String>) {
    let PeerTlsConfig { mode, ca, .. } = &config.peer_tls;
    let (cert, key) = config.peer_tls.own_files(&config.tls);
    if *mode == PeerTlsMode::Off {
        return;
    }
    for (name, path) in [("tls_cert", cert), ("tls_key", key), ("tls_ca", ca)] {
        if path.is_empty() {
            conflicts.push(format!(
                "{} needs {}; make a certificate of each node, and an authority: chronos cluster \
                 certs",
                config.describe("cluster", "tls"),
                config.describe("cluster", name)
            ));
        }
    }
}
