//! The process itself: becoming a daemon, holding a lock file, and redirecting standard error.

// May panic: indices 2.
// Why it does not: fixed 2.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The byte that tells the launcher that the daemon is ready. A text never begins with it.
const READY: u8 = 0;
/// How often a lock file is made anew that was removed before the lock was taken. Each time,
/// another process ended at that moment.
const LOCK_TRIES: u32 = 100;

/// The process in which [`daemonise`] returned.
pub enum Daemon {
    /// The process that the user started. `Ok`: the daemon is ready. `Err`: the daemon has failed,
    /// for the reason in its own words.
    Launcher(Result<(), String>),
    /// The daemon. Through this [`Launcher`] the daemon tells how its start went.
    Started(Launcher),
}

/// The waiting launcher, as the daemon sees it. Dropped without a call, it means that the start
/// failed.
pub struct Launcher {
    pipe: File,
}

impl Launcher {
    /// Tells that the daemon is ready. The launcher exits with 0.
    pub fn ready(mut self) {
        // The write fails if the launcher was killed; then no process waits.
        let _ = self.pipe.write_all(&[READY]);
    }

    /// Tells why the daemon ends without having been ready.
    pub fn failed(mut self, reason: &str) {
        let _ = self.pipe.write_all(reason.as_bytes());
    }
}

/// The effective user of this process.
pub fn user_id() -> u32 {
    // SAFETY: the call takes no memory and cannot fail.
    unsafe { libc::geteuid() }
}

/// Takes core dumps from this process for good: its memory has clients' data and keys. A limit of 1
/// byte keeps the kernel from writing a file, as 0 does, and also from handing the dump to a
/// program, at which it does not look at other limits (core(5)).
pub fn refuse_core_dumps() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the limit during the call and keeps no pointer.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_CORE, &mut limit) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let least = limit.rlim_max.min(1);
    let none = libc::rlimit { rlim_cur: least, rlim_max: least };
    // SAFETY: the kernel reads the limit during the call and keeps no pointer.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Leaves the terminal. The process forks twice with a session of its own in between, works in `/`,
/// reads nothing and prints nothing. Standard error stays until [`redirect_standard_error`]. In the
/// launcher the call returns when the daemon has told how its start went. Error: more than one
/// thread runs, because only the calling thread would continue in the daemon.
pub fn daemonise() -> io::Result<Daemon> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "{threads} threads run; only one can be taken along"
        )));
    }
    let (mut heard, pipe) = pipe()?;
    // SAFETY: this is the only thread, so the child inherits no lock that another thread holds.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(heard);
            leave_session()?;
            Ok(Daemon::Started(Launcher { pipe }))
        }
        child => {
            drop(pipe);
            let mut told = Vec::new();
            heard.read_to_end(&mut told)?;
            // SAFETY: the child in between belongs to this process, and no other code waits for it.
            // Its status is not read.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            Ok(Daemon::Launcher(match told.split_first() {
                Some((&READY, _)) => Ok(()),
                Some(_) => Err(String::from_utf8_lossy(&told).into_owned()),
                None => Err("the daemon ended before it was ready; see its log".to_owned()),
            }))
        }
    }
}

/// In the first child: makes a session without a terminal, and a second child that cannot get one.
fn leave_session() -> io::Result<()> {
    // SAFETY: the call takes and touches no memory.
    if unsafe { libc::setsid() } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above, this is the only thread.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: the call ends this process at once, without the work that a launcher does at its
        // end.
        _ => unsafe { libc::_exit(0) },
    }
    std::env::set_current_dir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    put_in_place(&null, libc::STDIN_FILENO)?;
    put_in_place(&null, libc::STDOUT_FILENO)
}

/// Makes `file` the standard error of this process. The former standard error is closed.
pub fn redirect_standard_error(file: &File) -> io::Result<()> {
    put_in_place(file, libc::STDERR_FILENO)
}

/// Writes all of `bytes` to standard error, without the lock of the standard library: whoever waits
/// here, because nobody reads, holds up nobody else.
pub fn write_standard_error(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the kernel reads the bytes during the call and keeps no pointer.
        let written =
            unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

fn put_in_place(file: &File, place: libc::c_int) -> io::Result<()> {
    // SAFETY: both are numbers of open files. The replaced number belongs to the standard library,
    // which uses the file by number and never closes it.
    if unsafe { libc::dup2(file.as_raw_fd(), place) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [-1; 2];
    // SAFETY: the kernel writes two numbers to `ends`, which outlives the call.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened both files, and no other code knows their numbers.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// Opens `path`, creates the file if it is absent, and locks it for as long as the file is open.
/// `Ok(None)`: another process holds the lock. The contents of the file stay. If the file is
/// removed before the lock is taken, the function locks a new file. A link is refused, because it
/// may lead to a file that must not be changed, and so is what is no file.
pub fn lock_file(path: &Path) -> io::Result<Option<File>> {
    for _ in 0..LOCK_TRIES {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = options.custom_flags(flags).open(path).map_err(not_a_link)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no file, but a pipe or a device"));
        }
        // SAFETY: the file is open, and the call takes no memory.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == -1 {
            let error = io::Error::last_os_error();
            let is_held = error.raw_os_error() == Some(libc::EWOULDBLOCK);
            return if is_held { Ok(None) } else { Err(error) };
        }
        let locked = file.metadata()?;
        match std::fs::symlink_metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => {
                return Ok(Some(file));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("other processes take and remove it again and again"))
}

/// The kernel says of a link that there are too many.
fn not_a_link(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("it is a link, and whatever it leads to stays"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_not_locked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("it runs");
        assert!(made.success());
        assert!(lock_file(&path).expect_err("a pipe").to_string().contains("pipe"));
        std::fs::remove_file(&path).expect("there");
        std::os::unix::fs::symlink("/dev/null", &path).expect("a link");
        assert!(lock_file(&path).expect_err("a link").to_string().contains("link"));
    }

    #[test]
    fn a_lock_is_held_by_one_and_given_up_with_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let first = lock_file(&path).expect("a new file").expect("nobody has it");
        assert!(lock_file(&path).expect("the same file").is_none());
        drop(first);
        let mut second = lock_file(&path).expect("the same file").expect("nobody has it");
        second.write_all(b"7").expect("written");
        std::fs::remove_file(&path).expect("there");
        // The old file is still locked, but its path leads to no file any more.
        let third = lock_file(&path).expect("another file").expect("nobody has it");
        assert_eq!(third.metadata().expect("open").len(), 0);
    }

    #[test]
    fn a_process_with_threads_stays_where_it_is() {
        let inside = std::thread::spawn(daemonise).join().expect("no panic");
        assert!(inside.is_err_and(|error| error.to_string().contains("threads run")));
    }
}
