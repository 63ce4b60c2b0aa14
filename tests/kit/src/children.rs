//! Processes that a suite starts. Each process ends with the suite, whatever ends the suite.
//!
//! The kernel can kill a process when its parent dies (`PR_SET_PDEATHSIG`, which `setpriv` of
//! util-linux sets before it becomes the program). By parent the kernel means the *thread* that
//! started the process, and threads of tests end long before the suite does. So one thread, which
//! never ends, starts all processes.
//!
//! A daemon leaves its parent on purpose: see [`Guard`].

use std::ffi::OsStr;
use std::io::Result;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::thread;

/// The words before a command line that tie the process to its parent. A suite needs the words
/// themselves where another program starts the process.
pub const SETPRIV: [&str; 4] = ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--"];

/// A command, and the sender that returns it with the process that it became.
type Order = (Command, Sender<(Command, Result<Child>)>);

/// The queue to the thread that starts all processes.
static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (orders, taken) = channel::<Order>();
    thread::spawn(move || {
        for (mut command, answer) in taken {
            let child = command.spawn();
            // An error means that the thread that asked is gone. Then the process has no owner and
            // is killed.
            if let Err(unheard) = answer.send((command, child)) {
                let _ = unheard.0.1.map(|mut child| child.kill());
            }
        }
    });
    Mutex::new(orders)
});

/// Returns a command that starts `program` so that the process ends with the thread that started
/// it. Start the command by the methods of [`Tied`] only.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(SETPRIV[0]);
    command.args(&SETPRIV[1..]).arg(program);
    command
}

/// The same, but the process is told to end (SIGTERM) and not killed, so that it ends processes of
/// its own.
pub fn parent_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(SETPRIV[0]);
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

/// Ways to start a command that [`command`] or [`parent_command`] made.
pub trait Tied {
    /// Starts a process that ends with this one.
    fn spawn_tied(&mut self) -> Result<Child>;
    /// Runs a process to its end, with nothing on its standard input.
    fn output_tied(&mut self) -> Result<Output>;
}

impl Tied for Command {
    fn spawn_tied(&mut self) -> Result<Child> {
        assert_eq!(self.get_program(), SETPRIV[0], "made by `kit::children::command`");
        let command = std::mem::replace(self, Command::new(""));
        let (answer, answered) = channel();
        STARTER.lock().expect("no holder panics").send((command, answer)).expect("it never ends");
        let (command, child) = answered.recv().expect("every order is answered");
        *self = command;
        child
    }

    fn output_tied(&mut self) -> Result<Output> {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn_tied()?.wait_with_output()
    }
}

/// How many files a process has open.
pub fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count()
}

/// Sends a signal by name. The status says whether there was a process to take it.
pub fn signal(pid: u32, name: &str) -> ExitStatus {
    Command::new("kill").args(["-s", name, &pid.to_string()]).status().expect("kill runs")
}

/// Tidies up if the suite ends without doing so: ends a daemon, or removes what lives in the
/// kernel. Dropping the value calls the guard off.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Runs a shell script with these arguments when this process is gone. The script does not run
    /// if the value was dropped before.
    pub fn with(script: &str, arguments: &[&OsStr]) -> Guard {
        // Standard input ends with this process.
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("cat; {script}"), "sh"]).args(arguments);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // The guard gets a process group of its own: a signal to this group, such as Ctrl-C, must
        // not end the guard first.
        Guard(shell.process_group(0).spawn().expect("sh runs"))
    }

    /// Kills a daemon when this process is gone. The daemon writes its number into `pid_file`, and
    /// its command line names that file.
    pub fn of_daemon(pid_file: &Path) -> Guard {
        // The number may belong to another process by then, so the script looks at the command
        // line. It looks for 3 s, because a daemon that is being launched has not written its
        // number yet.
        const SCRIPT: &str = "for look in $(seq 30); do pid=$(cat \"$1\") \
                              && grep -qaF \"$1\" \"/proc/$pid/cmdline\" && kill -KILL \"$pid\"; \
                              sleep 0.1; done";
        Guard::with(SCRIPT, &[pid_file.as_os_str()])
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An error means that the guard has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
