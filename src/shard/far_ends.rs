//! Ends whose version lies in the future: a clock was wrong as a client deleted a timer, and has
//! been set right since.
//!
//! The version of such an end says nothing of when it was made. Nodes forget ends at different
//! moments, so a node may take a write and give it a version near its clock, while another node,
//! or another site, still holds the end. The write lies below the end, and would be lost.
//!
//! When both began tells which one is later, by clocks that nobody sets. The write that is later
//! gets a version above the end, at the node that finds out, which tells all others. Where the
//! wall clock says otherwise the end stays: a pop of a calendar begins a timer anew, too, and
//! undoes no delete.

// Reads the wall clock: order 5.

use crate::base::ids::{Slot, TimerId};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::timer::definition::Content;
use crate::timer::version::{StateKey, Version};
use crate::wire::peer_message::TimerCopy;

use super::Shard;
use super::parts::peers::Teller;
use super::records::Outline;

/// When a timer of this content was written that starts at `start`; `None`: nobody can tell.
fn written_at(id: TimerId, start: Tick, content: &[u8]) -> Option<Tick> {
    let parts = Content::decode(content);
    let written = Tick(start.0.saturating_sub(parts.spread_ms(id)));
    Some(written).filter(|_| !parts.is_parked())
}

/// Whether a state of this version that was written at `written` is later than an end.
fn is_since(now: Now, (version, written): (Version, Option<Tick>), ended: Tick) -> bool {
    let tick = now.mono.tick_floor();
    let ended_ms = now.wall.0.saturating_sub(tick - ended);
    ended <= tick && written.is_some_and(|written| written > ended) && version.wall().0 > ended_ms
}

/// What becomes of a copy.
pub(super) enum Beside {
    /// It has this key, which lies above an end that is held if the copy was written later.
    Taken(StateKey),
    /// It is such an end itself. What is held was written later, and lies above it now.
    Raised(Slot),
}

impl Shard {
    /// Whether an end has a version of a clock that was wrong, beside that of a live state.
    fn is_far_end(&self, now: Now, version: Version, end: Version) -> bool {
        end > version
            && self.clock.is_far(now.wall, end)
            && !self.clock.is_far(now.wall, version)
            && !is_planted(Bug::FarEndVoidsLaterWrite)
    }

    /// Sets a copy and what is held apart where one of them is such an end and the other one was
    /// written later.
    pub(super) fn beside_far_ends(
        &mut self,
        now: Now,
        teller: Teller,
        (key, copy): (StateKey, &TimerCopy<'_>),
        found: Option<Slot>,
    ) -> Beside {
        let Some(slot) = found else { return Beside::Taken(key) };
        let held = *self.records.get(slot);
        let start = teller.start(copy.start_ms);
        match copy.body {
            Some(body) if !held.is_live() && self.is_far_end(now, key.version, held.version) => {
                let written = written_at(held.id, start, body.content);
                let is_later = is_since(now, (key.version, written), held.start);
                let above = is_later.then(|| self.clock.assign(now.wall, Some(held.version)));
                Beside::Taken(StateKey { version: above.unwrap_or(key.version), ..key })
            }
            None if held.is_live() && self.is_far_end(now, held.version, key.version) => {
                let content = self.records.whole_content_of(&held, &mut Vec::new()).to_vec();
                let written = written_at(held.id, held.start, &content);
                match is_since(now, (held.version, written), start) {
                    true => Beside::Raised(self.raise(now, slot, key.version, &content)),
                    false => Beside::Taken(key),
                }
            }
            _ => Beside::Taken(key),
        }
    }

    /// Gives what is held a version above another one.
    fn raise(&mut self, now: Now, slot: Slot, above: Version, content: &[u8]) -> Slot {
        let record = *self.records.get(slot);
        let version = self.clock.assign(now.wall, Some(above));
        let outline = Outline {
            id: record.id,
            key: StateKey { version, sequence: record.sequence },
            start: record.start,
            interval_ms: record.interval_ms,
            repeat_for_ms: record.repeat_for.get(),
            placement: *self.records.placement_of(&record),
        };
        let authority = self.records.authority_of(&record).to_owned();
        let authority = self.records.enter_authority(&authority);
        let place = (&outline, Some(slot));
        self.records.hold(&self.peers, self.turns.at, place, authority, content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::{MonoNs, TICK_NS, WallMs};
    use crate::timer::definition::encode_with_attributes;
    use crate::wire::attributes::Attributes;

    #[test]
    fn a_state_is_later_than_an_end_if_both_clocks_say_so() {
        let now = Now { mono: MonoNs(100_000 * TICK_NS), wall: WallMs(1_000_000) };
        let (ended, ended_ms) = (Tick(90_000), 990_000);
        for (written, version_ms, ended, is_later) in [
            (Some(90_001), ended_ms + 1, ended, true),
            (Some(90_000), ended_ms + 1, ended, false),
            (Some(90_001), ended_ms, ended, false),
            (None, ended_ms + 1, ended, false),
            (Some(100_001), 1_000_001, Tick(100_000), true),
            (Some(200_000), 2_000_000, Tick(100_001), false),
        ] {
            let version = Version::of_start(WallMs(version_ms));
            let found = is_since(now, (version, written.map(Tick)), ended);
            assert_eq!(found, is_later, "{written:?} {version_ms} {ended:?}");
        }
    }

    #[test]
    fn what_is_spread_over_a_window_was_written_before_it_starts() {
        let (id, start, window_ms) = (TimerId(7), Tick(5_000), Some(4_000));
        let content = |attributes: Attributes<'_>| {
            let (mut encoded, mut content) = (Vec::new(), Vec::new());
            attributes.write(&mut encoded);
            encode_with_attributes("/pop", &[], (&encoded, b"opaque"), &mut content);
            content
        };
        let plain = content(Attributes::default());
        assert_eq!(written_at(id, start, &plain), Some(start));
        let spread = content(Attributes { window_ms, ..Attributes::default() });
        let spread_ms = Content::decode(&spread).spread_ms(id);
        assert!(spread_ms > 0);
        assert_eq!(written_at(id, start, &spread), Some(Tick(5_000 - spread_ms)));
    }
}
