//! How far a node is with the timers that it compares with other nodes, and moves there.

use crate::control::estimate::percent;

/// How far a node is with comparing its timers with the other nodes, and with moving those that
/// belong elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moving {
    /// Whether it goes on.
    pub(crate) is_running: bool,
    /// Timers that were looked at.
    pub(crate) seen: u64,
    /// Timers that the node holds.
    pub(crate) total: u64,
    /// Timers known to be in the wrong place.
    pub(crate) misplaced: u64,
    /// Copies that were moved since the node's start.
    pub(crate) moved: u64,
}

impl Moving {
    pub(crate) fn done(&self) -> u64 {
        self.seen.saturating_sub(self.misplaced)
    }

    pub(crate) fn percent(&self) -> u64 {
        // Work that goes on is not at its end.
        percent(self.done(), self.total).unwrap_or(0).min(99)
    }

    /// A sentence without an end: how far it is.
    pub(crate) fn text(&self) -> String {
        let (percent, misplaced) = (self.percent(), self.misplaced);
        format!("comparing timers with the other nodes: {percent} %, {misplaced} to move")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moving(seen: u64, moved: u64) -> Moving {
        Moving { is_running: true, seen, total: 1_000, misplaced: 0, moved }
    }

    #[test]
    fn what_goes_on_is_never_told_as_done() {
        assert_eq!(moving(1_000, 0).percent(), 99);
        let held_up = Moving { misplaced: 600, ..moving(1_000, 0) };
        assert_eq!((held_up.percent(), held_up.done()), (40, 400));
        assert_eq!(Moving::default().percent(), 0);
        assert!(held_up.text().ends_with("40 %, 600 to move"), "{}", held_up.text());
    }
}
