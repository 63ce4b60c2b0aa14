//! Processes of a story. Each has a log of its own and takes signals by name. Dropping the value
//! ends the process.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use kit::children::{Tied, signal};
use kit::ports;

pub use kit::until::until;

/// A running process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that the process has ended already. SIGKILL ends a frozen process as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let story = thread::current().name().unwrap_or("?").to_owned();
            let said = self.logged();
            eprintln!("-- {story}: {} said:\n{said}", self.log.display());
        }
    }
}

impl Process {
    /// Starts a process. Its output is appended to `log`.
    pub fn start(command: &mut Command, log: &Path) -> Process {
        let file = File::options().create(true).append(true).open(log).expect("a log");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn_tied()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Process { child, log: log.to_owned() }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output so far, that of predecessors with the same log included.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns how the process ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked")
    }

    /// Sends a signal by name.
    pub fn signal(&mut self, name: &str) {
        assert!(self.ended().is_none(), "it has ended:\n{}", self.logged());
        let pid = self.pid();
        let sent = signal(pid, name);
        assert!(sent.success(), "kill -s {name} {pid}");
    }

    /// Ends the process at once: sends SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("it ends");
    }

    /// Waits until the process ends.
    pub fn await_end(&mut self, patience: Duration) -> ExitStatus {
        until("a process to end", patience, || self.ended())
    }
}

/// Returns a port that is free on loopback.
pub fn free_port() -> u16 {
    ports::free_port(&[Ipv4Addr::LOCALHOST.into()])
}
