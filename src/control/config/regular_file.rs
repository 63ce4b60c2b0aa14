//! Reads files that operators name. A pipe, a device or a folder in place of a file is refused, and
//! no more is read than a file may have: a control thread that waits for the other end of a pipe
//! hears no signal.

use std::fs::{File, Metadata, metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::ring::open_at_once;

/// Reads a whole file. Error: the file cannot be read, is no regular file, or has more than
/// `bytes_max` bytes. The text says which.
pub(crate) fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let bytes = read_beyond(&open(path)?, bytes_max)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// The device number of `/dev/null` on Linux: major 1, minor 3.
const NULL_DEVICE: u64 = 0x0103;

/// Whether reading ends. `/dev/null` is how operators say "an empty file".
fn ends(found: &Metadata) -> bool {
    let is_null = || found.file_type().is_char_device() && found.rdev() == NULL_DEVICE;
    found.is_file() || is_null()
}

/// Opens a regular file, or `/dev/null`. A symbolic link is followed. Error: it cannot be opened,
/// or is something else.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Asked before as well: to open a device can do something.
    let refused = || io::Error::other("it is no file, but a folder, a pipe or a device");
    if !ends(&metadata(path)?) {
        return Err(refused());
    }
    let file = open_at_once(path)?;
    if ends(&file.metadata()?) { Ok(file) } else { Err(refused()) }
}

/// Reads a file, and at most one byte more than it may have.
pub(crate) fn read_beyond(file: &File, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_files_are_read_and_only_as_long_as_they_may_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "12345").expect("written");
        assert_eq!(read(&path("file"), 5).expect("a file"), b"12345");
        std::os::unix::fs::symlink(path("file"), path("link")).expect("a link");
        assert_eq!(read(&path("link"), 5).expect("a link to a file"), b"12345");
        let told = read(&path("file"), 4).expect_err("too long").to_string();
        assert_eq!(told, "it has more than 4 bytes");
        // `mkfifo` is part of coreutils, as `cat` is.
        assert!(Command::new("mkfifo").arg(path("pipe")).status().expect("it runs").success());
        for special in [path("pipe"), "/dev/zero".into(), folder.path().into()] {
            let told = read(&special, 5).expect_err("no file").to_string();
            assert!(told.starts_with("it is no file"), "{told}");
        }
        assert_eq!(read(Path::new("/dev/null"), 5).expect("an empty file"), b"");
        assert_eq!(read(&path("none"), 5).expect_err("none").kind(), io::ErrorKind::NotFound);
    }
}
