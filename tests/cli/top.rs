//! `chronos top`: one screen for scripts, and live on a terminal, which is as it was afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};

use kit::children::{self, Tied};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use super::harness::{NOWHERE, Node, run, until};

// Only what changed is written, and of that no free cells: words come one by one.

/// The other screen is left.
const LEFT: &str = "\u{1b}[?1049l";

#[test]
fn top_shows_one_screen_where_there_is_no_terminal() {
    let node = Node::start("");
    node.create(&["--interval", "0", "--uri", NOWHERE, "--max-attempts", "1"]);
    for _ in 0..3 {
        node.create(&["--interval", "1h", "--uri", NOWHERE]);
    }
    until("a dead letter", || {
        let found = node.operate(&["dead-letters", "list", "--json"]).expect(0, "").json();
        (found["dead-letters"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    let shown = node.operate(&["top", "--once", "--every", "0.2"]);
    for told in ["serving", "timers 4", "creates/s", "late: p50", "MEMBER", "127.0.0.1:9"] {
        shown.expect(0, told);
    }
    assert!(!shown.out.contains('\u{1b}'), "{shown:?}");
    let document = node.operate(&["top", "--json", "--every", "0.2"]).expect(0, "").json();
    assert_eq!(document["timers"], 4, "with the dead letter");
    assert_eq!(document["cores"].as_array().map(Vec::len), Some(2));
    run(&["top", "--once", "--admin", "127.0.0.1:9"]).expect(1, "does not answer");
    run(&["top", "--every", "0"]).expect(2, "expected 0.1 to 3600 seconds");
}

/// A terminal of its own, and `chronos top` on it.
struct Live {
    /// The other end: what is typed goes in, what is shown comes out.
    keys: File,
    terminal: OwnedFd,
    before: Termios,
    said: Arc<Mutex<Vec<u8>>>,
    process: Child,
}

impl Live {
    /// Starts it in a window of 80 by 24, and waits until it has drawn.
    fn start(node: &Node, variables: &[(&str, &str)]) -> Live {
        let variables = [&[("TERM", "xterm")], variables].concat();
        let live = Live::start_in((80, 24), &node.admin.to_string(), &variables);
        until("the screen", || live.said().contains("p99.9").then_some(()));
        let modes = live.modes();
        assert!(!modes.contains(LocalModes::ICANON | LocalModes::ECHO), "keys come one by one");
        live
    }

    /// Starts it in a window of this size.
    fn start_in(size: (u16, u16), admin: &str, variables: &[(&str, &str)]) -> Live {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keys).expect("granted");
        unlockpt(&keys).expect("unlocked");
        let terminal = ioctl_tiocgptpeer(&keys, OpenptFlags::RDWR | OpenptFlags::NOCTTY);
        let terminal = terminal.expect("its other end");
        resize(&keys, size.0, size.1);
        let before = tcgetattr(&terminal).expect("modes");
        let [input, output] = [0; 2].map(|_| terminal.try_clone().expect("a copy"));
        // The terminal is the one that signals of keys and of the window come from.
        let mut command = children::command("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_chronos"), "top", "--every", "0.2"]);
        command.args(["--admin", admin]);
        command.env_clear().envs(variables.iter().copied());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(input).stdout(output);
        let process = command.spawn_tied().expect("setsid runs");
        let keys = File::from(keys);
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let (mut shown, kept) = (keys.try_clone().expect("a copy"), Arc::clone(&said));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                kept.lock().expect("no holder panics").extend_from_slice(&bytes[..count]);
            }
        });
        Live { keys, terminal, before, said, process }
    }

    fn said(&self) -> String {
        let said = self.said.lock().expect("no holder panics");
        String::from_utf8_lossy(&said).into_owned()
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(&self.terminal).expect("modes").local_modes
    }

    /// Waits for its end, and checks that the terminal is as it was.
    fn end(mut self) -> ExitStatus {
        let status = until("the end", || self.process.try_wait().expect("it is a child"));
        let after = tcgetattr(&self.terminal).expect("modes");
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        assert_eq!(after.control_modes, self.before.control_modes);
        until("the other screen to be left", || self.said().contains(LEFT).then_some(()));
        let said = self.said();
        let behind = said.rsplit(LEFT).next().unwrap_or_default();
        assert!(!behind.contains("p99.9"), "nothing is drawn behind the end: {behind:?}");
        assert!(behind.contains("\u{1b}[?25h"), "the cursor is back: {behind:?}");
        status
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn resize(terminal: &impl std::os::fd::AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a size");
}

#[test]
fn top_is_live_on_a_terminal_until_q_and_follows_its_window() {
    let node = Node::start("");
    let mut live = Live::start(&node, &[("NO_COLOR", "1")]);
    until("the state", || live.said().contains("serving").then_some(()));
    let titles = |live: &Live| live.said().matches("chronos").count();
    for (columns, rows) in [(40, 12), (7, 3), (120, 40)] {
        let before = titles(&live);
        resize(&live.keys, columns, rows);
        if columns > 10 {
            until("a picture of that size", || (titles(&live) > before).then_some(()));
        }
    }
    let said = live.said();
    assert!(said.contains("\u{1b}[?1049h"), "another screen: {said:?}");
    assert!(!said.contains("\u{1b}[1m") && !said.contains("[38;5;"), "NO_COLOR: {said:?}");
    live.keys.write_all(b"q").expect("typed");
    assert_eq!(live.end().code(), Some(0));
}

#[test]
fn a_signal_ends_top_and_leaves_the_terminal_as_it_was() {
    let node = Node::start("");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let live = Live::start(&node, &[]);
        let pid = i32::try_from(live.process.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("it runs");
        assert_eq!(live.end().signal(), Some(signal.as_raw()), "as that signal ends a command");
    }
}

#[test]
fn a_terminal_that_nothing_can_be_drawn_on_gets_one_screen_of_text() {
    let node = Node::start("");
    for (size, variables) in [
        ((80, 24), &[("TERM", "dumb")][..]),
        ((80, 24), &[]),
        ((0, 0), &[("TERM", "xterm")]),
        ((80, 0), &[("TERM", "xterm")]),
    ] {
        let mut live = Live::start_in(size, &node.admin.to_string(), variables);
        let status = until("the end", || live.process.try_wait().expect("it is a child"));
        assert_eq!(status.code(), Some(0), "{size:?} {variables:?}");
        until("the text", || live.said().contains("late: p50").then_some(()));
        assert!(!live.said().contains('\u{1b}'), "{:?}", live.said());
    }
}

#[test]
fn top_says_soon_that_a_frozen_node_does_not_answer() {
    let node = Node::start("");
    let mut live = Live::start(&node, &[]);
    node.freeze();
    // Only what changes is written: the digit of the seconds comes alone.
    until("the silence", || live.said().contains("no answer for 3").then_some(()));
    assert!(!live.said().contains("does not answer"), "it may answer yet");
    node.thaw();
    let shown = live.said().len();
    until("the figures to be bright again", || {
        live.said()[shown..].contains("late p50").then_some(())
    });
    live.keys.write_all(b"q").expect("typed");
    assert_eq!(live.end().code(), Some(0));
}

#[test]
fn top_says_on_its_screen_that_a_node_does_not_answer_and_ends_by_a_key_meanwhile() {
    let node = Node::start("");
    let mut live = Live::start(&node, &[]);
    drop(node);
    until("the sentence", || live.said().contains("looking").then_some(()));
    live.keys.write_all(&[3]).expect("Ctrl-C");
    assert_eq!(live.end().code(), Some(0));
}
