//! Timers that a client has paused, resumed or run ([`crate::timer::action`]): whether they pop,
//! and when. A record remembers that its content says more of it, so that all others are not looked
//! at.

use super::record::Ms45;
use super::{Outline, Record, Records, State};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Tick;
use crate::store::payloads::PayloadRef;
use crate::timer::action::accepted_at;
use crate::timer::definition::Content;
use crate::timer::version::Version;
use crate::wire::attributes::{Acted, Attributes};

/// When a paused timer is due.
const NEVER: Tick = Tick(u64::MAX);

impl Records {
    /// When the next pop of a live record is due.
    #[inline]
    pub fn due(&self, record: &Record) -> Tick {
        if record.repeat_for.is_acted() { self.acted_due(record) } else { record.due() }
    }

    #[cold]
    fn acted_due(&self, record: &Record) -> Tick {
        let own = record.due();
        if record.state == State::Paused {
            return NEVER;
        }
        match self.acted_of(record).filter(|acted| acted.pop == record.sequence + 1) {
            Some(acted) => {
                accepted_at(record.id, record.start, &self.content_of(record)) + acted.at_ms
            }
            None => own,
        }
    }

    /// Whether the only pop of a record was run before its own time had come. `pop` is its number.
    pub fn is_run_ahead(&self, record: &Record, pop: u64) -> bool {
        let acted = self.acted_of(record).filter(|acted| acted.pop == pop);
        acted.is_some_and(|acted| {
            let accepted = accepted_at(record.id, record.start, &self.content_of(record));
            accepted + acted.at_ms < record.start + record.interval_ms
        })
    }

    /// When the next pop is due as clients are told: that of a paused timer as if it were not.
    pub fn told_due(&self, record: &Record) -> Tick {
        if record.state == State::Paused { record.due() } else { self.due(record) }
    }

    /// What clients did with a timer.
    pub fn acted_of(&self, record: &Record) -> Option<Acted> {
        let is_acted = record.is_live() && record.repeat_for.is_acted();
        is_acted.then(|| self.content_of(record).attributes().acted).flatten()
    }

    /// Whether a record goes on with what this version was: the same pops are done.
    pub fn continues(&self, record: &Record, version: Version) -> bool {
        let is_since = |acted: Acted| acted.root <= version.0 && version <= record.version;
        self.acted_of(record).is_some_and(is_since)
    }

    /// Stores content that has attributes. Returns where the content is, the state in which its
    /// timer begins, and the timer's repeat-for with what is to be remembered of the content.
    /// `held` is what is held of the timer, and is released.
    #[inline(never)]
    pub(super) fn begin_special(
        &mut self,
        tick: Tick,
        outline: &Outline,
        held: Option<&Record>,
        content: &[u8],
    ) -> (PayloadRef, State, Ms45) {
        // What is held may be the last that has the same in common.
        let kept = self.commons.enter(content);
        self.has_had_special = true;
        held.into_iter().for_each(|held| self.release(tick, held));
        let (state, repeat_for) = match stays_paused(held, content) {
            true => (State::Paused, Ms45::new(outline.repeat_for_ms).acted()),
            false => acted_begin(outline, held, content),
        };
        match kept {
            Some(kept) => (self.payloads.insert(&kept), state, repeat_for.common()),
            None => (self.payloads.insert(content), state, repeat_for),
        }
    }
}

/// Whether a planted bug keeps a timer paused that is written anew.
fn stays_paused(held: Option<&Record>, content: &[u8]) -> bool {
    is_planted(Bug::ReplacementStaysPaused)
        && !Content::decode(content).is_acted()
        && held.is_some_and(|held| held.state == State::Paused)
}

fn acted_begin(outline: &Outline, held: Option<&Record>, content: &[u8]) -> (State, Ms45) {
    let repeat_for = Ms45::new(outline.repeat_for_ms);
    let content = Content::decode(content);
    if content.is_parked() {
        return (State::Parked, repeat_for);
    }
    if !content.is_acted() {
        return (State::Armed, repeat_for);
    }
    let attributes: Attributes<'_> = content.attributes();
    // A callback that runs is that of the pop which is brought forward. It is not made twice.
    let is_running = |held: &&Record| {
        let is_of_pop = held.state == State::InFlight && held.sequence == outline.key.sequence;
        let is_of_timer = attributes.acted.is_some_and(|acted| acted.root <= held.version.0);
        is_of_pop && is_of_timer && held.version <= outline.key.version
    };
    let is_second = outline.placement.own.is_some_and(|rank| rank > 0);
    let state = match held.filter(is_running) {
        _ if attributes.is_paused && !(is_planted(Bug::PausedPopsAfterTakeover) && is_second) => {
            State::Paused
        }
        Some(_) if is_planted(Bug::RunRepeatsRunning) => State::Armed,
        Some(_) => State::InFlight,
        None => State::Armed,
    };
    (state, repeat_for.acted())
}
