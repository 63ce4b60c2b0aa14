//! What a client does with a timer that is there, without writing it anew: the last segment of
//! `POST /timers/<id>/<action>`.

/// What is done with a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TimerAction {
    /// It does not pop any more.
    Pause,
    /// It pops again.
    Resume,
    /// Its next pop is made now.
    RunNow,
}

impl TimerAction {
    /// All actions.
    pub const ALL: [Self; 3] = [Self::Pause, Self::Resume, Self::RunNow];

    /// The action as a path has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::RunNow => "run-now",
        }
    }

    /// Splits the action off the end of a path: the timer, and what is done with it.
    pub fn split(path: &[u8]) -> Option<(&[u8], Self)> {
        let slash = path.iter().rposition(|&byte| byte == b'/')?;
        let (timer, action) = (path.get(..slash)?, path.get(slash + 1..)?);
        let action = Self::ALL.into_iter().find(|known| known.name().as_bytes() == action)?;
        Some((timer, action))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_the_last_segment() {
        assert_eq!(TimerAction::split(b"a/pause"), Some((&b"a"[..], TimerAction::Pause)));
        assert_eq!(TimerAction::split(b"a/b/resume"), Some((&b"a/b"[..], TimerAction::Resume)));
        assert_eq!(TimerAction::split(b"/run-now"), Some((&b""[..], TimerAction::RunNow)));
        for none in [&b""[..], b"pause", b"a/Pause", b"a/pause/", b"a/run", b"a/run-now "] {
            assert_eq!(TimerAction::split(none), None);
        }
    }
}
