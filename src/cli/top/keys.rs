//! A terminal that shows a screen and gives keys, and is as it was afterwards.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Keys that end it: q, Q, Ctrl-C, Ctrl-D.
const ENDING: [u8; 4] = [b'q', b'Q', 3, 4];

/// The terminal in use.
pub(super) struct Terminal {
    before: Termios,
}

impl Terminal {
    /// Takes the terminal. Error: standard input is none.
    pub(super) fn take() -> std::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut keys = before.clone();
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &keys)?;
        let terminal = Self { before };
        write(ENTER)?;
        Ok(terminal)
    }

    /// Rows and columns of the window.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
                (size.ws_row.into(), size.ws_col.into())
            }
            _ => (24, 80),
        }
    }

    /// Draws lines from the top; the first is emphasised if colours are wanted.
    pub(super) fn draw(&self, lines: &[String], is_coloured: bool) -> std::io::Result<()> {
        let mut picture = "\x1b[H".to_owned();
        for (place, line) in lines.iter().enumerate() {
            let (begin, end) =
                if place == 0 && is_coloured { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
            let next = if place == 0 { "" } else { "\r\n" };
            picture += &format!("{next}{begin}{line}{end}\x1b[K");
        }
        write(&(picture + "\x1b[J"))
    }

    /// Waits for a key that ends it, for so long at most. Returns whether it came, or the terminal
    /// went.
    pub(super) fn is_ended_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let wait = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let stdin = std::io::stdin();
            let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut watched, Some(&wait)) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(_) if left.is_zero() => return false,
                Err(_) => continue,
            }
            let mut key = [0];
            match stdin.lock().read(&mut key) {
                Ok(1) if !key.iter().any(|key| ENDING.contains(key)) => {}
                _ => return true,
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing.
        let _ = write(LEAVE);
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}
