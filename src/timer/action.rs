//! What pausing, resuming and running now make of a timer.
//!
//! The schedule stays: pop k is the k-th time counted from the start, whatever was done with the
//! timer. So each node can tell which pops are done, and numbers of pops that two nodes know of one
//! timer are compared as they are. An action says which pop is due at its moment instead of at its
//! own time:
//!
//! - run-now: the next one;
//! - resume: the latest that came due while the timer was paused. Those before are left out. A pop
//!   that was brought forward and not done before the pause is due again.

use crate::base::ids::TimerId;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::timer::definition::{Content, encode_with_attributes, with_owner};
use crate::timer::schedule::Schedule;
use crate::timer::version::StateKey;
use crate::wire::attributes::{ATTRIBUTES_BYTES_MAX, Acted, Attributes, CronTiming};
use crate::wire::timer_action::TimerAction;

/// A timer as it is before an action.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    /// The timer.
    pub id: TimerId,
    /// How far it is.
    pub key: StateKey,
    /// When it pops.
    pub schedule: Schedule,
    /// Its content.
    pub content: &'a [u8],
    /// Whether another site holds the timer, too, and may have heard of an action that this one has
    /// not. Then an action stands against that one, also if it changes nothing here.
    pub is_elsewhere: bool,
}

/// What an action comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acting {
    /// The timer is as the action would have it.
    Same,
    /// The timer has new content, and so many pops are done or left out.
    Changed(u64),
    /// The timer is paused, so that it cannot run.
    Paused,
    /// The attributes do not fit any more.
    TooLong,
}

/// Does something with a timer. What its content is then is appended to `out`. `latest` finds the
/// latest moment of a calendar that has come.
pub fn act(
    action: TimerAction,
    timer: &Present<'_>,
    now: Now,
    latest: impl FnOnce(&CronTiming<'_>) -> u64,
    out: &mut Vec<u8>,
) -> Acting {
    let parts = Content::decode(timer.content);
    let mut attributes = parts.attributes();
    let was_paused = attributes.is_paused;
    match action {
        TimerAction::RunNow if was_paused => return Acting::Paused,
        TimerAction::Pause if was_paused && !timer.is_elsewhere => return Acting::Same,
        TimerAction::Resume if !was_paused && !timer.is_elsewhere => return Acting::Same,
        _ => {}
    }
    let Present { key, schedule, .. } = *timer;
    let tick = now.mono.tick_floor();
    let before = attributes.acted.unwrap_or(Acted { root: key.version.0, at_ms: 0, pop: 0 });
    let next = key.sequence + 1;
    let is_forward = before.pop == next;
    let (done, pop) = match action {
        TimerAction::Pause => (key.sequence, if is_forward { next } else { 0 }),
        TimerAction::RunNow => (key.sequence, next),
        TimerAction::Resume if !was_paused => (key.sequence, if is_forward { next } else { 0 }),
        TimerAction::Resume => match schedule.come(tick) {
            latest if latest >= next && is_planted(Bug::ResumeMakesMissed) => (key.sequence, next),
            latest if latest >= next => (latest - 1, latest),
            _ => (key.sequence, if is_forward { next } else { 0 }),
        },
    };
    let is_resumed = action == TimerAction::Resume && was_paused;
    if let Some(cron) = attributes.cron.as_mut().filter(|_| is_resumed && pop > 0) {
        cron.due_ms = latest(cron).max(cron.due_ms);
    }
    let accepted = accepted_at(timer.id, schedule.start, &parts);
    attributes.is_paused = action == TimerAction::Pause;
    attributes.acted = Some(Acted { root: before.root, at_ms: tick - accepted, pop });
    match rewrite(&parts, &attributes, out) {
        true => Acting::Changed(done),
        false => Acting::TooLong,
    }
}

/// When a timer was accepted: its start without the moment of its window.
pub fn accepted_at(id: TimerId, start: Tick, content: &Content<'_>) -> Tick {
    Tick(start.0.saturating_sub(content.spread_ms(id)))
}

/// Encodes content again with other attributes. False: they are too long.
pub fn rewrite(parts: &Content<'_>, attributes: &Attributes<'_>, out: &mut Vec<u8>) -> bool {
    let mut encoded = Vec::new();
    attributes.write(&mut encoded);
    let Ok(target) = std::str::from_utf8(parts.target) else { return false };
    if encoded.len() > ATTRIBUTES_BYTES_MAX {
        return false;
    }
    let behind = (&encoded[..], parts.opaque);
    encode_with_attributes(target, parts.tags().as_slice(), behind, out);
    if let Some(owner) = parts.owner() {
        let plain = std::mem::take(out);
        with_owner(&plain, owner, out);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::{MonoNs, TICK_NS, WallMs};
    use crate::timer::definition::encode_content;
    use crate::timer::version::Version;

    /// What a timer that started at 1 000 and has this interval and repeat-for is after actions at
    /// these ticks: pops done, the pop that is due at once, and whether it is paused.
    fn after(times: (u64, u64), done: u64, actions: &[(TimerAction, u64)]) -> (u64, u64, bool) {
        let (interval_ms, repeat_for_ms) = times;
        let schedule = Schedule { start: Tick(1_000), interval_ms, repeat_for_ms };
        let mut content = Vec::new();
        encode_content("/a", &[], b"x", &mut content);
        let mut key = StateKey { version: Version(7), sequence: done };
        for (action, tick) in actions {
            let is_elsewhere = false;
            let timer = Present { id: TimerId(1), key, schedule, content: &content, is_elsewhere };
            let now = Now { mono: MonoNs(tick * TICK_NS), wall: WallMs(0) };
            let mut out = Vec::new();
            match act(*action, &timer, now, |cron| cron.due_ms, &mut out) {
                Acting::Changed(sequence) => {
                    key = StateKey { version: Version(key.version.0 + 1), sequence };
                    content = out;
                }
                Acting::Same => {}
                other => panic!("{other:?}"),
            }
            let acted = Content::decode(&content).attributes().acted;
            assert_eq!(acted.map(|acted| acted.root), Some(7));
        }
        let attributes = Content::decode(&content).attributes();
        let pop = attributes.acted.map_or(0, |acted| acted.pop);
        assert_eq!(Content::decode(&content).opaque, b"x");
        (key.sequence, pop, attributes.is_paused)
    }

    #[test]
    fn the_latest_time_that_came_due_is_made_up_for() {
        use TimerAction::{Pause, Resume};
        let once = (500, 500);
        assert_eq!(after(once, 0, &[(Pause, 1_100)]), (0, 0, true));
        assert_eq!(after(once, 0, &[(Pause, 1_100), (Resume, 1_499)]), (0, 0, false));
        assert_eq!(after(once, 0, &[(Pause, 1_100), (Resume, 1_500)]), (0, 1, false));
        assert_eq!(after(once, 0, &[(Pause, 1_100), (Resume, 90_000)]), (0, 1, false));
        let often = (500, 2_000);
        assert_eq!(after(often, 1, &[(Pause, 1_600), (Resume, 1_999)]), (1, 0, false));
        assert_eq!(after(often, 1, &[(Pause, 1_600), (Resume, 2_000)]), (1, 2, false));
        assert_eq!(after(often, 1, &[(Pause, 1_600), (Resume, 2_700)]), (2, 3, false));
        assert_eq!(after(often, 1, &[(Pause, 1_600), (Resume, 90_000)]), (3, 4, false));
        assert_eq!(after((0, 0), 0, &[(Pause, 1_000), (Resume, 1_000)]), (0, 1, false));
        let twice = [(Pause, 1_100), (Resume, 2_700), (Pause, 2_750), (Resume, 2_900)];
        assert_eq!(after(often, 0, &twice), (2, 3, false), "a pop that was not made yet");
    }

    #[test]
    fn the_next_pop_is_brought_forward() {
        use TimerAction::{Pause, Resume, RunNow};
        assert_eq!(after((500, 500), 0, &[(RunNow, 1_001)]), (0, 1, false));
        assert_eq!(after((500, 2_000), 2, &[(RunNow, 2_001)]), (2, 3, false));
        let held = [(RunNow, 1_100), (Pause, 1_150), (Resume, 1_200)];
        assert_eq!(after((500, 2_000), 0, &held), (0, 1, false), "it was not made yet");
    }

    #[test]
    fn what_is_paused_does_not_run_and_what_is_done_is_not_done_again() {
        let schedule = Schedule { start: Tick(0), interval_ms: 5, repeat_for_ms: 5 };
        let mut content = Vec::new();
        encode_content("/a", &[], b"", &mut content);
        let key = StateKey { version: Version(7), sequence: 0 };
        let now = Now { mono: MonoNs(0), wall: WallMs(0) };
        let acted = |action, content: &[u8]| {
            let timer = Present { id: TimerId(1), key, schedule, content, is_elsewhere: false };
            let mut out = Vec::new();
            (act(action, &timer, now, |cron| cron.due_ms, &mut out), out)
        };
        assert_eq!(acted(TimerAction::Resume, &content).0, Acting::Same);
        let (acting, paused) = acted(TimerAction::Pause, &content);
        assert_eq!(acting, Acting::Changed(0));
        assert_eq!(acted(TimerAction::Pause, &paused).0, Acting::Same);
        assert_eq!(acted(TimerAction::RunNow, &paused).0, Acting::Paused);
        let owned = |content: &[u8]| {
            let mut owned = Vec::new();
            with_owner(content, "billing", &mut owned);
            owned
        };
        let (_, paused) = acted(TimerAction::Pause, &owned(&content));
        assert_eq!(Content::decode(&paused).owner(), Some("billing"));
    }
}
