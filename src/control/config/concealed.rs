//! Secrets that stand where the name of their file belongs. Messages and `--print-config` show
//! values; these they do not.

use std::path::Path;

/// What is shown in place of a secret.
pub(super) const CONCEALED: &str = "(a secret in place of a file's name, not shown)";

/// Fewest characters of a secret behind its prefix.
const SECRET_CHARACTERS_MIN: usize = 24;

/// Fewest bytes of a part of a path that is taken for a secret if there is no such file: the least
/// that a secret of a cluster has.
const PART_BYTES_MIN: usize = 32;

/// Whether a value is a secret, as far as its form tells: that of a signature, a token of `chronos
/// token new`, a key in PEM. It may stand behind the folder that a relative name is taken from.
pub(super) fn is_secret(value: &str) -> bool {
    let has_prefix = |part: &str| {
        let rest = part.strip_prefix("whsec_").or_else(|| part.strip_prefix("chr_"));
        rest.is_some_and(|rest| rest.len() >= SECRET_CHARACTERS_MIN)
    };
    let mut parts = value.match_indices('/').filter_map(|(at, _)| value.get(at + 1..));
    value.contains("-----BEGIN") || has_prefix(value) || parts.any(has_prefix)
}

/// Returns the name of a file that cannot be read, for a message. Where there is nothing of that
/// name and a part of it is as long as a secret, the part may be one.
pub(super) fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let is_absent = |part: &&Path| std::fs::symlink_metadata(part).is_err();
    let may_be_secret = |part: &Path| {
        let name = part.file_name().unwrap_or_default();
        name.len() >= PART_BYTES_MIN && !name.to_string_lossy().contains('.')
    };
    let hides = is_secret(&text) || path.ancestors().filter(is_absent).any(may_be_secret);
    if hides { CONCEALED.to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_form() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg";
        for secret in [
            "whsec_UExBTlRFRFdIU0VDUExBTlRFRFdIU0VD",
            "/etc/chronos/whsec_UExBTlRFRFdIU0VD/UExBTlRFRFdIU0VD",
            "chr_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG",
            pem,
        ] {
            assert!(is_secret(secret), "{secret}");
            assert_eq!(shown(Path::new(secret)), CONCEALED);
        }
        for name in ["", "/etc/chronos/tokens", "whsec_now", "/etc/chronos/chr_tokens", "keys.pem"]
        {
            assert!(!is_secret(name), "{name}");
            assert_eq!(shown(Path::new(name)), name);
        }
    }

    #[test]
    fn a_long_name_is_shown_where_something_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let long = "0123456789abcdef0123456789abcdef";
        let within = folder.path().join(long);
        assert_eq!(shown(&within), CONCEALED);
        assert_eq!(shown(&within.join("key")), CONCEALED);
        let dotted = folder.path().join("a.name.with.dots.of.36.characters.pem");
        assert_eq!(shown(&dotted), dotted.display().to_string());
        std::fs::create_dir(&within).expect("a folder");
        assert_eq!(shown(&within.join("key")), within.join("key").display().to_string());
    }
}
