//! Checks of `[admin] listen_tls` with the keys of the other sections.

use super::settings::Config;

/// Adds a text for each pair of values that are valid alone and contradict each other.
pub(super) fn check(config: &Config, conflicts: &mut Vec<String>) {
    let Some(own) = config.admin.listen_tls else { return };
    let key = config.describe("admin", "listen_tls");
    if config.tls.cert.is_empty() {
        conflicts.push(format!("{key} needs a certificate; set [tls] cert and [tls] key"));
    }
    let serves_timers = config.node.serves_timers;
    let over_tls = config.tls.address(config.node.listen).filter(|_| serves_timers);
    let timestamp = Some(&config.timestamp.served).filter(|_| config.timestamp.enabled);
    let others = [
        ("[node] listen", Some(config.node.listen).filter(|_| serves_timers)),
        ("[node] listen_tls", over_tls),
        ("[admin] listen", Some(config.admin.listen).filter(|_| config.admin.enabled)),
        ("[timestamp] listen", timestamp.and_then(|served| served.listen)),
        ("[timestamp] listen_tls", timestamp.and_then(|served| served.listen_tls)),
    ];
    for (name, other) in others {
        let Some(other) = other else { continue };
        let overlap =
            own.ip() == other.ip() || own.ip().is_unspecified() || other.ip().is_unspecified();
        if own.port() != 0 && own.port() == other.port() && overlap {
            conflicts.push(format!(
                "{key} and {name} ({other}) take the same port; give one of them another"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::control::config::load::parse_config;

    const FILES: &str = "[tls]\ncert = 'c'\nkey = 'k'\n";

    /// What is wrong with a configuration; empty: nothing.
    fn told(text: &str) -> String {
        parse_config(text, "c.toml").err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn the_admin_api_over_tls_needs_a_certificate_and_a_port_of_its_own() {
        let alone = "[admin]\nlisten_tls = '127.0.0.1:7255'\n";
        assert!(told(alone).contains("needs a certificate"));
        assert_eq!(told(&format!("{alone}{FILES}")), "");
        for (port, other) in
            [(7253, "[node] listen"), (7443, "[node] listen_tls"), (7254, "[admin] listen")]
        {
            let text = format!("[admin]\nlisten_tls = '127.0.0.1:{port}'\n{FILES}");
            assert!(told(&text).contains(&format!("{other} (127.0.0.1:{port})")), "{text}");
        }
        let off = format!("[admin]\nenabled = false\nlisten_tls = '127.0.0.1:7254'\n{FILES}");
        assert_eq!(told(&off), "", "over TLS alone");
    }

    #[test]
    fn on_a_network_it_asks_for_tokens_or_certificates() {
        let open = "[admin]\nlisten_tls = '10.0.0.1:7255'\n";
        let asked = told(&format!("{open}{FILES}"));
        assert!(
            asked.contains("may give orders") && asked.contains("chronos token new"),
            "{asked}"
        );
        let optional = "client_ca = 'a'\nclient_auth = 'optional'\n";
        assert!(told(&format!("{open}{FILES}{optional}")).contains("may give orders"));
        let required = "client_ca = 'a'\nclient_auth = 'required'\n";
        assert_eq!(told(&format!("{open}{FILES}{required}")), "");
        assert_eq!(told(&format!("auth.tokens_file = 't'\n{open}{FILES}")), "");
        assert_eq!(told(&format!("auth.insecure_open = true\n{open}{FILES}")), "");
    }
}
