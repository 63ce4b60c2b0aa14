//! Writes with a condition that wait: for what other nodes know of the timer, or for the node that
//! decides.

use crate::base::ids::{PeerIndex, PeerSet, TimerId};
use crate::base::planted::{Bug, is_planted};
use crate::base::ranked::Sites;
use crate::base::slots::Slots;
use crate::base::time::{Now, Tick};
use crate::shard::effects::{Condition, Refusal, Requester, Target};
use crate::shard::parts::ages::start_of;
use crate::shard::records::{Placement, Record, ended_numbers};
use crate::timer::definition::{Content, Definition, OwnedDefinition};
use crate::timer::naming::{is_digest, may_be_of_key};
use crate::timer::version::{StateKey, Version};
use crate::wire::peer_message::{CopyBody, TimerCopy};
use crate::wire::timer_action::TimerAction;

/// What is known of the timer on which a condition depends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// How far the timer is.
    pub key: StateKey,
    /// Whether it has not ended. A timer whose last pop is kept as a dead letter has.
    pub is_live: bool,
    /// Whether it is a dead letter.
    pub is_letter: bool,
    pub factor: u8,
    pub sites: Sites,
    pub start: Tick,
    pub interval_ms: u64,
    pub repeat_for_ms: u64,
    /// The name that made the id.
    pub name: Option<Box<str>>,
    /// The digest of the body that came with the key that made the id.
    pub once: Option<u64>,
    /// Authority and content, where an action is to make another version of them.
    pub body: Option<(Box<str>, Box<[u8]>)>,
}

impl Seen {
    /// What this node holds. There is no content if it is a tombstone.
    pub fn held(held: &Record, placement: &Placement, content: Option<Content<'_>>) -> Self {
        let Placement { factor, sites, .. } = *placement;
        let (start, interval_ms) = (held.start, held.interval_ms);
        let repeat_for_ms = held.repeat_for.get();
        let ended = once_of_ended(held.id, repeat_for_ms);
        let is_letter = content.is_some_and(|content| content.is_parked());
        let is_live = content.is_some() && !is_letter;
        let (name, once) = content.map_or((None, ended), identity_of);
        let key = held.key();
        let body = None;
        Self {
            key,
            is_live,
            is_letter,
            factor,
            sites,
            start,
            interval_ms,
            repeat_for_ms,
            name,
            once,
            body,
        }
    }

    /// What another node told. The start that it told is an age.
    pub fn told(now: Now, copy: &TimerCopy<'_>) -> Self {
        let (interval_ms, repeat_for_ms) = (copy.interval_ms, copy.repeat_for_ms);
        let id = copy.standing.id;
        let content = copy.body.map(|body| Content::decode(body.content));
        let start = start_of(now.mono.tick_floor(), copy);
        let is_letter = content.is_some_and(|content| content.is_parked());
        let is_live = content.is_some() && !is_letter;
        let ended = once_of_ended(id, repeat_for_ms);
        let (name, once) = content.map_or((None, ended), identity_of);
        let (version, sequence) = (Version(copy.standing.version), copy.standing.sequence);
        let (key, factor, sites) = (StateKey { version, sequence }, copy.factor, copy.sites);
        let body = None;
        Self {
            key,
            is_live,
            is_letter,
            factor,
            sites,
            start,
            interval_ms,
            repeat_for_ms,
            name,
            once,
            body,
        }
    }

    /// A dead letter that a read has found.
    pub fn letter((version, factor): (Version, u8), start: Tick) -> Self {
        let key = StateKey { version, sequence: 0 };
        let (sites, interval_ms, repeat_for_ms) = (Sites::new(), 0, 0);
        let (is_live, is_letter, name, once, body) = (false, true, None, None, None);
        Self {
            key,
            is_live,
            is_letter,
            factor,
            sites,
            start,
            interval_ms,
            repeat_for_ms,
            name,
            once,
            body,
        }
    }

    /// Interval and repeat-for of the end of the timer.
    pub fn numbers_of_end(&self, id: TimerId, tick: Tick) -> (u64, u64) {
        let numbers = (self.interval_ms, self.repeat_for_ms);
        match self.is_live || self.is_letter {
            true => ended_numbers(id, numbers, self.start, tick, || self.once),
            false => numbers,
        }
    }

    /// The same, with authority and content for an action.
    pub fn with(self, body: Option<CopyBody<'_>>) -> Self {
        Self { body: body.map(|body| (body.authority.into(), body.content.into())), ..self }
    }
}

fn identity_of(content: Content<'_>) -> (Option<Box<str>>, Option<u64>) {
    let attributes = content.attributes();
    (attributes.name.map(Box::from), attributes.once)
}

/// The digest that the end of a timer has in the place of its repeat-for, if a key made its id.
fn once_of_ended(id: TimerId, repeat_for_ms: u64) -> Option<u64> {
    Some(repeat_for_ms).filter(|digest| may_be_of_key(id) && is_digest(*digest))
}

/// A write with a condition.
#[derive(Debug)]
pub struct Asked {
    /// The client that waits.
    pub from: Requester,
    /// When the client asked.
    pub asked_at: Tick,
    /// When the timer starts, or ends.
    pub start: Tick,
    pub target: Target,
    pub condition: Condition,
    /// What the write makes of the timer; `None`: the write ends it.
    pub definition: Option<OwnedDefinition>,
    /// What is done with the timer that is there. Its definition follows from that.
    pub action: Option<TimerAction>,
    /// How many pops of the definition are done.
    pub sequence: u64,
    /// What is known of the timer.
    pub seen: Option<Seen>,
    /// The version of the write and the sites of its timer, once a node was asked to decide: the
    /// order of the sites says who pops, so it goes with the version.
    pub made: Option<(Version, Sites)>,
    /// The node that was asked to decide, and when; `None`: other nodes are asked what they hold.
    pub decider: Option<(PeerIndex, Tick)>,
    /// Nodes that have no room for the timer.
    pub refused: PeerSet,
    /// How often the condition has been judged.
    pub tries: u8,
}

/// What a condition comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The write may be made.
    Write,
    /// The create was made before.
    Same,
    Refused(Refusal),
}

impl Asked {
    /// What the write makes of the timer.
    pub fn definition(&self) -> Option<Definition<'_>> {
        self.definition.as_ref().map(OwnedDefinition::borrow)
    }

    /// Judges the condition by what is known of the timer.
    pub fn verdict(&self) -> Verdict {
        let live = self.seen.as_ref().filter(|seen| seen.is_live);
        if self.action.is_some() && live.is_none() {
            return Verdict::Refused(Refusal::NoTimer);
        }
        let own = self.definition().map(|own| identity_of(Content::decode(own.content)));
        let (own_name, own_once) = own.unwrap_or_default();
        if let (Some(own), Some(name)) = (&own_name, live.and_then(|live| live.name.as_ref()))
            && own != name
        {
            return Verdict::Refused(Refusal::OtherName);
        }
        let is_met = match self.condition {
            Condition::Absent => live.is_none(),
            Condition::Present => live.is_some(),
            Condition::Version(_) if is_planted(Bug::VersionNotCompared) => live.is_some(),
            Condition::Version(version) => live.is_some_and(|live| live.key.version == version),
            Condition::Letter(version) => {
                let is_it = |seen: &Seen| seen.is_letter && seen.key.version == version;
                return match self.seen.as_ref().is_some_and(is_it) {
                    true => Verdict::Write,
                    false => Verdict::Refused(Refusal::NoTimer),
                };
            }
            Condition::Once if is_planted(Bug::KeyMadeAgain) => true,
            Condition::Once => {
                // A timer that was replaced under the id has no digest any more.
                return match self.seen.as_ref().map(|seen| (seen.is_live, seen.once)) {
                    None | Some((false, None)) => Verdict::Write,
                    Some((_, once)) if once == own_once || once.is_none() => Verdict::Same,
                    Some(_) => Verdict::Refused(Refusal::OtherBody),
                };
            }
        };
        if is_met { Verdict::Write } else { Verdict::Refused(Refusal::Unmet) }
    }
}

/// All writes of a shard whose condition is not decided.
pub type Conditions = Slots<Asked>;
