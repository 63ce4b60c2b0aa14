//! A terminal that shows a screen and gives keys, and is as it was afterwards: at the end, after a
//! panic, and when a signal ends this process.

use std::io::{IsTerminal, Stdout, stdin, stdout};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::{Frame, Terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::cli::terminal::is_plain;

/// Signals that end this process.
const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];
/// How often who ends the process looks whether a picture is drawn, and how many times.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS: u32 = 40;

/// Held while a picture is drawn, and by who ends the process: no half picture comes behind the
/// end of the screen.
static DRAWING: Mutex<()> = Mutex::new(());

/// What a key or the window means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// End.
    End,
    /// Draw again: the window has another size.
    Redraw,
}

/// The terminal in use.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal. Error: standard input is none.
    pub(super) fn take() -> std::io::Result<Self> {
        if !stdin().is_terminal() {
            return Err(std::io::Error::other("standard input is no terminal"));
        }
        if is_plain() {
            return Err(std::io::Error::other("the terminal does nothing but write lines"));
        }
        // A serial line may say no size. Nothing can be drawn on that.
        let (columns, rows) = size()?;
        if columns == 0 || rows == 0 {
            return Err(std::io::Error::other("the terminal says no size"));
        }
        let signals = Signals::new(ENDING)?;
        std::thread::Builder::new().name("signals".into()).spawn(move || end_by(signals))?;
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            former(panic);
        }));
        enable_raw_mode()?;
        // From here on a drop gives the terminal back.
        let terminal = Terminal::new(CrosstermBackend::new(stdout()));
        let mut screen = terminal.map(|terminal| Self { terminal }).inspect_err(|_| give_back())?;
        execute!(stdout(), EnterAlternateScreen)?;
        screen.terminal.hide_cursor()?;
        Ok(screen)
    }

    /// Draws a picture. What has not changed is not written again.
    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> std::io::Result<()> {
        let _held = drawing();
        self.terminal.draw(picture).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _held = drawing();
        give_back();
    }
}

fn drawing() -> MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the terminal as it was. A terminal that has gone needs nothing, so errors are dropped.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Ends the process as its first signal does, with the terminal as it was.
fn end_by(mut signals: Signals) {
    for signal in signals.forever() {
        // A terminal that takes no bytes may hold up a picture for good.
        let mut held = None;
        for _ in 0..LOOKS {
            held = match DRAWING.try_lock() {
                Ok(held) => Some(held),
                Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if held.is_some() {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        give_back();
        let _ = emulate_default_handler(signal);
        drop(held);
    }
}

/// Tells what keys and the window mean, until `tell` returns false or the terminal has gone.
pub(super) fn tell_wishes(tell: impl Fn(Wish) -> bool) {
    loop {
        let wish = match event::read() {
            Ok(event) => wish_of(&event),
            Err(_) => Some(Wish::End),
        };
        if wish.is_some_and(|wish| !tell(wish) || wish == Wish::End) {
            return;
        }
    }
}

fn wish_of(event: &Event) -> Option<Wish> {
    match event {
        Event::Resize(..) => Some(Wish::Redraw),
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => None,
        Event::Key(KeyEvent { code, modifiers, .. }) => {
            let has_control = modifiers.contains(KeyModifiers::CONTROL);
            match code {
                KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Wish::End),
                KeyCode::Char('c' | 'd') if has_control => Some(Wish::End),
                KeyCode::Char('l') if has_control => Some(Wish::Redraw),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_end_it_are_few() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let plain = |c| key(KeyCode::Char(c), KeyModifiers::NONE);
        let control = |c| key(KeyCode::Char(c), KeyModifiers::CONTROL);
        for ending in [plain('q'), plain('Q'), control('c'), control('d')] {
            assert_eq!(wish_of(&ending), Some(Wish::End), "{ending:?}");
        }
        assert_eq!(wish_of(&key(KeyCode::Esc, KeyModifiers::NONE)), Some(Wish::End));
        assert_eq!(wish_of(&Event::Resize(1, 1)), Some(Wish::Redraw));
        for other in [plain('c'), plain('x'), key(KeyCode::Enter, KeyModifiers::NONE)] {
            assert_eq!(wish_of(&other), None, "{other:?}");
        }
    }
}
