//! What all flags share that set a configuration key: their help, and what `--admin` means.

use crate::control::config::keys::find;

/// The keys that `--admin` sets.
pub(super) fn admin_settings(flag: Option<&str>) -> Vec<((&'static str, &'static str), String)> {
    match flag {
        Some("off") => vec![(("admin", "enabled"), "false".into())],
        Some(address) => {
            vec![(("admin", "enabled"), "true".into()), (("admin", "listen"), address.into())]
        }
        None => Vec::new(),
    }
}

/// The key's sentence, without the full stop as is the custom in help texts.
pub(super) fn help(section: &str, name: &str) -> &'static str {
    find(section, name).expect("flags name keys of the table").help.trim_end_matches('.')
}
