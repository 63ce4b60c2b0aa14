//! What all flags that set a configuration key share: their help, and the meaning of `--admin`.

use crate::control::config::keys::find;

/// Returns the keys that `--admin` sets: `off` disables the admin API, an address enables it there.
pub(super) fn admin_settings(flag: Option<&str>) -> Vec<((&'static str, &'static str), String)> {
    match flag {
        Some("off") => vec![(("admin", "enabled"), "false".into())],
        Some(address) => {
            vec![(("admin", "enabled"), "true".into()), (("admin", "listen"), address.into())]
        }
        None => Vec::new(),
    }
}

/// Returns the key's help without the full stop, as is the custom in `--help`. Panics if there is
/// no such key.
pub(super) fn help(section: &str, name: &str) -> &'static str {
    find(section, name).expect("flags name keys of the table").help.trim_end_matches('.')
}
