//! Files for threads without a ring: making files that durable writes go to, locking a folder,
//! naming the boot, timing a disk. Every call here may wait for the disk.

// May panic: indices 1.
// Why it does not: found 1.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::clock;
use super::disk::DurableFile;
use super::mapping::PageBytes;
use super::process::lock_file;

/// Bytes of zeros in one write, 1 MiB: few calls, and little memory.
const ZEROS_BYTES: usize = 1 << 20;
/// Name of the lock in a locked folder.
const LOCK_NAME: &str = "lock";
/// Most bytes that are read of a lock: the number of a process.
const HOLDER_BYTES_MAX: u64 = 32;
/// Bytes of one timed write, 16 KiB: a usual batch of a busy core.
const TIMED_BYTES: usize = 16 << 10;
/// How many places of a scratch file the timed writes take turns at, as writes to a segment do.
const TIMED_PLACES: u64 = 256;
/// Where the kernel names the boot: 32 hexadecimal digits with hyphens, other ones after each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How many digits of it are taken: 64 bits.
const BOOT_ID_DIGITS: usize = 16;

/// Makes a file of `bytes` zeros, on the disk when the call returns. A durable write to the file
/// then changes no length and allocates no block, so it costs the file system no write of its own.
/// The file's name is on the disk after [`sync_directory`]. Only its owner may read it: clients'
/// data is in it. Error: the file is there already, or
/// cannot be made (ENOSPC: the disk is full); no file is left then. Cost: `bytes` are written.
pub fn create_zeroed(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    let filled = fill_with_zeros(&file, bytes);
    drop(file);
    filled.inspect_err(|_| {
        // The first error says more than one of the removal.
        let _ = std::fs::remove_file(path);
    })
}

fn fill_with_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    allocate(file, bytes)?;
    let zeros = vec![0; ZEROS_BYTES];
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(ZEROS_BYTES as u64);
        file.write_all(&zeros[..piece as usize])?;
        left -= piece;
    }
    file.sync_data()
}

/// Takes the blocks of a file from the disk, if the file system can; if not, the writes take them.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let length =
        libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    loop {
        // SAFETY: the file is open, and the call takes no memory.
        if length == 0 || unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// Opens a file for reading. Opening a pipe does not wait for its other end (O_NONBLOCK).
pub fn open_at_once(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Makes an empty file for writing, in place of whatever file or link stands there. A link is
/// removed and not followed: it may lead to a file that must not be changed. If another process
/// makes a file of that name in between, the call fails. `mode`: as open(2) has it.
pub fn create_anew(path: &Path, mode: u32) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).mode(mode).open(path)
}

/// Waits until the disk has the names in the folder `path`: files made, renamed and removed.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The right of one process to a folder, until it is dropped or the process ends. The file `lock`
/// in the folder stays.
#[derive(Debug)]
pub struct DirectoryLock {
    /// Open, and therefore locked (flock(2)).
    _file: File,
}

impl DirectoryLock {
    /// Takes the folder `directory`. `Ok(None)`: another process has it. Error: the folder is not
    /// there, or the file in it cannot be opened for writing.
    pub fn take(directory: &Path) -> io::Result<Option<DirectoryLock>> {
        let Some(mut file) = lock_file(&directory.join(LOCK_NAME))? else { return Ok(None) };
        // The number is a help for others only: on a full disk the lock is good without.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Some(DirectoryLock { _file: file }))
    }

    /// The process that took the folder last, to be named where [`DirectoryLock::take`] said
    /// `None`. `None`: no process has told its number.
    pub fn holder(directory: &Path) -> Option<u32> {
        let mut text = String::new();
        let lock = open_at_once(&directory.join(LOCK_NAME)).ok()?;
        lock.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

/// A number that stays the same until the machine boots again, and is another one then: the first
/// 64 bits of the kernel's boot id. 0: it cannot be read.
pub fn boot_id() -> u64 {
    std::fs::read_to_string(BOOT_ID).ok().and_then(|text| boot_number(&text)).unwrap_or(0)
}

/// The number in the first 16 hexadecimal digits of a boot id.
fn boot_number(text: &str) -> Option<u64> {
    let digits: String = text.trim().chars().filter(|&c| c != '-').take(BOOT_ID_DIGITS).collect();
    let is_whole = digits.len() == BOOT_ID_DIGITS;
    is_whole.then(|| u64::from_str_radix(&digits, 16).ok()).flatten()
}

/// How long each of `writes` durable writes of 16 KiB took, one after another in a scratch file of
/// 4 MiB in `directory`, which is removed. Error: the file cannot be made or written to.
pub fn measure_sync(directory: &Path, writes: u32) -> io::Result<Vec<Duration>> {
    let scratch = Scratch(directory.join(format!("sync-{}", std::process::id())));
    create_zeroed(&scratch.0, TIMED_PLACES * TIMED_BYTES as u64)?;
    let file = DurableFile::open(&scratch.0)?;
    let memory = PageBytes::new(TIMED_BYTES)?;
    (0..u64::from(writes))
        .map(|number| {
            let begun = clock::monotonic();
            let offset = number % TIMED_PLACES * TIMED_BYTES as u64;
            file.file().write_all_at(memory.bytes(), offset)?;
            Ok(Duration::from_nanos(clock::monotonic().since_ns(begun)))
        })
        .collect()
}

/// A file that is removed when this value is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is missing if it could not be made.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_in_place_of_a_link_and_not_behind_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let [precious, path] = ["precious", "new"].map(|name| folder.path().join(name));
        std::fs::write(&precious, "precious").expect("written");
        std::os::unix::fs::symlink(&precious, &path).expect("a link");
        for text in ["first", "again"] {
            create_anew(&path, 0o600).expect("made").write_all(text.as_bytes()).expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("there"), text);
        }
        assert_eq!(std::fs::read_to_string(&precious).expect("there"), "precious");
        std::fs::remove_file(&path).expect("a file");
        std::fs::create_dir(&path).expect("made");
        assert!(create_anew(&path, 0o600).is_err());
    }

    #[test]
    fn a_boot_has_a_number_of_64_bits() {
        let text = "0123abcd-4567-89ab-cdef-0123456789ab\n";
        assert_eq!(boot_number(text), Some(0x0123_abcd_4567_89ab));
        assert_eq!(boot_number("0123"), None);
        assert_eq!(boot_number("0123abcd-4567-89a?"), None);
        assert_eq!(boot_number(""), None);
    }
}
