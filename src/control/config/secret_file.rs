//! Files that are for their owner alone: that of the secret that the nodes of a cluster share, and
//! that of a private key. Their permissions, and their contents. No message and no log line shows a
//! secret.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::concealed::shown;
use super::regular_file;
use crate::core::peers::secret::{FILE_BYTES_MAX, SecretError, Secrets};
use crate::node::callbacks::signing::{self, Signer, SigningError};
use crate::node::clients::tokens::{self, Tokens, TokensError};
use crate::ring::user_id;

/// What is wrong with the secret file. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretFileError {
    /// The file cannot be read.
    #[error(
        "{file}: cannot be read: {reason}. Name a file that exists and that this user may read"
    )]
    Unreadable {
        /// The file as the operator named it.
        file: String,
        /// The error that the kernel returned.
        reason: String,
    },
    /// The path is a folder, a pipe or a device.
    #[error("{file}: expected a file, found something else (a folder, a pipe or a device)")]
    NoFile {
        /// The file as the operator named it.
        file: String,
    },
    /// Users besides the owner may read or write the file.
    #[error(
        "{file}: expected to be readable and writable by its owner alone, found mode {mode:04o}; \
         type: chmod 600 {file}"
    )]
    Open {
        /// The file as the operator named it.
        file: String,
        /// The file's mode bits.
        mode: u32,
    },
    /// The file belongs to another user.
    #[error(
        "{file}: expected to belong to the user {user} that this process acts as, or to root, \
         found user {owner}; type: chown {user} {file} && chmod 600 {file}"
    )]
    Owner {
        /// The file as the operator named it.
        file: String,
        /// The user id of this process.
        user: u32,
        /// The user id of the file's owner.
        owner: u32,
    },
    /// The file's text is no list of secrets.
    #[error("{file}: {error}")]
    Content {
        /// The file as the operator named it.
        file: String,
        /// What is wrong with the text.
        error: String,
    },
}

/// Reads the secrets of a file.
pub(crate) fn read(path: &Path) -> Result<Secrets, SecretFileError> {
    let text = read_private(path, FILE_BYTES_MAX)?;
    let file = path.display().to_string();
    let content = |error: SecretError| SecretFileError::Content { file, error: error.to_string() };
    Secrets::parse(&text).map_err(content)
}

/// Reads the tokens of a file. The hashes in it are no secrets, but who may write it gives out
/// tokens.
pub(crate) fn read_tokens(path: &Path) -> Result<Tokens, SecretFileError> {
    let text = read_private(path, tokens::FILE_BYTES_MAX)?;
    let file = path.display().to_string();
    let content = |error: TokensError| SecretFileError::Content { file, error: error.to_string() };
    Tokens::parse(&text).map_err(content)
}

/// Reads the secrets that callbacks are signed with.
pub(crate) fn read_signer(path: &Path) -> Result<Signer, SecretFileError> {
    let text = read_private(path, signing::FILE_BYTES_MAX)?;
    let file = path.display().to_string();
    let content = |error: SigningError| SecretFileError::Content { file, error: error.to_string() };
    Signer::parse(&text).map_err(content)
}

/// Reads a file that is for its owner alone. A symbolic link is followed. Reads at most one byte
/// more than `bytes_max`.
pub(crate) fn read_private(path: &Path, bytes_max: usize) -> Result<Vec<u8>, SecretFileError> {
    let file = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let reason = error.to_string();
        SecretFileError::Unreadable { file: shown(path), reason }
    };
    // Checked before the file is opened as well: what is no file has a message of its own.
    check(&file, &std::fs::metadata(path).map_err(unreadable)?, user_id())?;
    let opened = regular_file::open(path).map_err(unreadable)?;
    check(&file, &opened.metadata().map_err(unreadable)?, user_id())?;
    regular_file::read_beyond(&opened, bytes_max).map_err(unreadable)
}

/// Checks that only the owner can have written the file or read it.
fn check(file: &str, metadata: &Metadata, user: u32) -> Result<(), SecretFileError> {
    let (file, owner) = (file.to_owned(), metadata.uid());
    let mode = metadata.mode() & 0o7777;
    if !metadata.is_file() {
        return Err(SecretFileError::NoFile { file });
    }
    if owner != user && owner != 0 {
        return Err(SecretFileError::Owner { file, user, owner });
    }
    if mode & 0o077 != 0 {
        return Err(SecretFileError::Open { file, mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).expect("a folder of the test");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("its own file");
    }

    #[test]
    fn a_file_of_its_owner_alone_is_read_also_through_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("s"), folder.path().join("l"));
        write(&path, "# ours\n0123456789abcdef0123456789abcdef\n", 0o400);
        symlink(&path, &link).expect("a link");
        assert_eq!(read(&path).map(|secrets| secrets.count()), Ok(1));
        assert_eq!(read(&link), read(&path), "a link has the mode of what it leads to");
        for mode in [0o640, 0o604, 0o620, 0o602, 0o644, 0o660] {
            write(&path, "0123456789abcdef0123456789abcdef", 0o600);
            write(&path, "0123456789abcdef0123456789abcdef", mode);
            for path in [&path, &link] {
                let told = read(path).expect_err("open to others").to_string();
                let remedy = format!("found mode {mode:04o}; type: chmod 600 {}", path.display());
                assert!(told.ends_with(&remedy), "{told}");
            }
        }
    }

    #[test]
    fn what_is_no_secret_file_is_told_without_its_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        assert!(matches!(read(&path), Err(SecretFileError::Unreadable { .. })));
        assert!(matches!(read(folder.path()), Err(SecretFileError::NoFile { .. })));
        assert!(matches!(read(Path::new("/dev/null")), Err(SecretFileError::NoFile { .. })));
        for (text, told) in [
            ("", "expected one secret a line, found none"),
            ("# only words\n\n", "found none"),
            ("0123456789abcdef0123456789abcdef\nshort-and-known\n", "line 2: expected a secret"),
        ] {
            write(&path, text, 0o600);
            let error = read(&path).expect_err(text);
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(told) && !shown.contains("known"), "{shown}");
        }
        write(&path, &"x".repeat(FILE_BYTES_MAX + 1), 0o600);
        assert!(read(&path).expect_err("too long").to_string().contains("is it the right file"));
        write(&path, "0123456789abcdef0123456789abcdef", 0o600);
        let metadata = std::fs::metadata(&path).expect("it is there");
        let other = metadata.uid() + 1;
        let told = check("s", &metadata, other);
        assert_eq!(told.is_ok(), metadata.uid() == 0, "root's files are for all: {told:?}");
    }
}
