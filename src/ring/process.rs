//! The process itself: becoming a daemon, holding a lock file, and where standard error goes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Byte that tells the launcher that the daemon is ready; a text never begins with it.
const READY: u8 = 0;
/// How often a lock file that vanished under the hand is made anew: each time another process ended
/// just then.
const LOCK_TRIES: u32 = 100;

/// Which process [`daemonise`] returned in.
pub enum Daemon {
    /// The one that the user started. `Ok`: the daemon is ready. `Err`: it is not and will not be;
    /// why, in its own words.
    Launcher(Result<(), String>),
    /// The daemon, which tells through this how its start went.
    Started(Launcher),
}

/// The waiting launcher as the daemon sees it. Dropped without a word it means that the start
/// failed.
pub struct Launcher {
    pipe: File,
}

impl Launcher {
    /// The daemon is ready: the launcher exits with 0.
    pub fn ready(mut self) {
        // A launcher that was killed meanwhile waits for nothing.
        let _ = self.pipe.write_all(&[READY]);
    }

    /// The daemon ends without having been ready.
    pub fn failed(mut self, reason: &str) {
        let _ = self.pipe.write_all(reason.as_bytes());
    }
}

/// The user that this process acts as.
pub fn user_id() -> u32 {
    // SAFETY: the call takes no memory and cannot fail.
    unsafe { libc::geteuid() }
}

/// Leaves the terminal: forks twice with a session of its own between, works in `/`, reads nothing
/// and prints nothing. Standard error stays until [`redirect_standard_error`]. The launcher
/// returns when the daemon has said how its start went. Refused with more than one thread: only
/// the calling one would go on in the daemon.
pub fn daemonise() -> io::Result<Daemon> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "{threads} threads run; only one can be taken along"
        )));
    }
    let (mut heard, pipe) = pipe()?;
    // SAFETY: this is the only thread, so no lock of another one is left held in the child.
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
            // SAFETY: the child between is ours, and nobody else waits for it; its status is not
            // looked at.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            Ok(Daemon::Launcher(match told.split_first() {
                Some((&READY, _)) => Ok(()),
                Some(_) => Err(String::from_utf8_lossy(&told).into_owned()),
                None => Err("the daemon ended before it was ready; see its log".to_owned()),
            }))
        }
    }
}

/// In the first child: a session without a terminal, and a second child that cannot get one.
fn leave_session() -> io::Result<()> {
    // SAFETY: takes and touches no memory.
    if unsafe { libc::setsid() } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above, one thread.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: ends this process at once, without what the launcher has to do at its end.
        _ => unsafe { libc::_exit(0) },
    }
    std::env::set_current_dir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    put_in_place(&null, libc::STDIN_FILENO)?;
    put_in_place(&null, libc::STDOUT_FILENO)
}

/// Makes `file` the process's standard error; what was it is closed.
pub fn redirect_standard_error(file: &File) -> io::Result<()> {
    put_in_place(file, libc::STDERR_FILENO)
}

fn put_in_place(file: &File, place: libc::c_int) -> io::Result<()> {
    // SAFETY: both are numbers of open files; the one replaced belongs to the standard library,
    // which uses it by number and never closes it.
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
    // SAFETY: the kernel has just opened both for us, and nobody else has their numbers.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// Opens `path`, made if it is absent, and locks it for as long as the file is open: `Ok(None)`
/// where another process has it. Its contents stay. A file that was removed before the lock was
/// taken is no lock: then a new one is made. A link is refused: it may lead to a file that is not
/// to be changed.
pub fn lock_file(path: &Path) -> io::Result<Option<File>> {
    for _ in 0..LOCK_TRIES {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
        // SAFETY: the file is open, the call takes no memory.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        // The old one is locked still, but nobody can find it any more.
        let third = lock_file(&path).expect("another file").expect("nobody has it");
        assert_eq!(third.metadata().expect("open").len(), 0);
    }

    #[test]
    fn a_process_with_threads_stays_where_it_is() {
        let inside = std::thread::spawn(daemonise).join().expect("no panic");
        assert!(inside.is_err_and(|error| error.to_string().contains("threads run")));
    }
}
