//! A server started as a child process. The load generator waits until the server is ready, and
//! ends it by its process id.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a server may take until it answers.
const READY: Duration = Duration::from_secs(10);
/// How long a server may take to stop before it is killed.
const STOP: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(10);

/// A running child. Dropping the value ends the process.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts `command`. The output of the process goes to a file, which is shown if the start
    /// fails.
    pub fn start(mut command: Command) -> Result<Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        let number = LOG_NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let file = format!("chronos-loadgen-{}-{number}.log", std::process::id());
        let log = std::env::temp_dir().join(file);
        let output = File::create(&log).with_context(|| format!("cannot write {log:?}"))?;
        command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        let process = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Child { process, log })
    }

    /// The process id of the child.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the child answers `GET /ping` at `address` with 200. Error: the child has ended,
    /// or does not answer within 10 s.
    pub fn await_ready(&mut self, address: SocketAddr) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < READY {
            if let Some(status) = self.process.try_wait()? {
                bail!("the server ended with {status} before it was ready:\n{}", self.log_text());
            }
            if ping(address).unwrap_or(false) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        bail!("no answer to GET /ping at {address} in {READY:?}:\n{}", self.log_text())
    }

    /// How the child has ended, with what it said; `None`: it runs.
    pub fn ended(&mut self) -> Result<Option<String>> {
        let status = self.process.try_wait()?;
        Ok(status.map(|status| format!("{status}\n{}", self.log_text())))
    }

    /// Ends the child with SIGTERM, and after 4 s with SIGKILL.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// Ends the child at once, with SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if self.process.try_wait()?.is_none() {
            // The standard library can only send SIGKILL; the shell's `kill` sends SIGTERM.
            let kill = format!("kill -TERM {}", self.process.id());
            Command::new("sh").args(["-c", &kill]).status().context("cannot run sh")?;
            let start = Instant::now();
            while self.process.try_wait()?.is_none() {
                if start.elapsed() > STOP {
                    self.process.kill()?;
                    self.process.wait()?;
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
        // The file may be gone; then nothing is left to clean.
        let _ = std::fs::remove_file(&self.log);
        Ok(())
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A drop cannot report an error.
        let _ = self.end();
    }
}

static LOG_NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// An address on this machine whose port was free a moment ago. Another process may take the port
/// before it is used.
pub fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?)
}

fn ping(address: SocketAddr) -> Result<bool> {
    let timeout = Duration::from_millis(500);
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    write!(stream, "GET /ping HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    Ok(answer == *b"HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_fails_tells_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such core >&2; exit 3"]);
        let mut child = Child::start(command).unwrap();
        let error = child.await_ready(free_address().unwrap()).unwrap_err().to_string();
        assert!(error.contains("no such core") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_child_is_ended_and_leaves_nothing() {
        // `cat` also ends with its standard input, which ends with this test's process.
        let child = Child::start(Command::new("cat")).unwrap();
        let (pid, log) = (child.pid(), child.log.clone());
        child.stop().unwrap();
        assert!(!log.exists());
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
