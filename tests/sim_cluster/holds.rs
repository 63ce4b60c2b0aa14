//! Clients that pause timers, resume them and run them now, through any node. Such timers have ids
//! of their own.
//!
//! Rules, beside those of all writes:
//!
//! - H1: a timer whose pause is acknowledged does not pop, whichever nodes die, freeze and return.
//! - H2: a timer all of whose times came before it was resumed makes its last pop then.
//! - H3: a timer that is run makes a pop then.
//!
//! The servers of some of these timers want no more of them: they answer 410 after a while, during
//! which the timers are paused. To the model that is a delete, as soon as it certainly counts.

use chronos::shard::effects::{Answer, CallbackOutcome, Refusal};
use chronos::wire::attributes::RetryPolicy;
use chronos::wire::timer_action::TimerAction;
use kit::simulator::callback_world::Ending;
use kit::simulator::random::{Purpose, Stream};

use super::disturbances::RECOVERY_NS;
use super::model::{Attempted, Checked, Closed, MS, Model, RANK_NS, TALK_NS, Write, broken};
use super::options::Options;
use super::story_plan::{Kind, Operation, Story, Target, Wish};
use super::world::{Event, World, outcome_of};

/// The names of these operations begin here, beyond those of others.
const NAMES: usize = 30_000;
/// The ids of such timers begin here.
const IDS: u64 = 0xc000_0000_0000_0000;
const IDS_END: u64 = 0xd000_0000_0000_0000;

/// Of these the ids of timers whose servers want no more of them begin here.
const ENDING_IDS: u64 = 0xcf00_0000_0000_0000;
/// What ends them has names from here on.
const ENDS: usize = 1 << 40;

/// Whether the server of this timer wants no more of it.
fn is_ending(id: u64) -> bool {
    (ENDING_IDS..IDS_END).contains(&id)
}

fn name_of_end(id: u64) -> usize {
    ENDS + (id - ENDING_IDS) as usize
}

/// Whether clients do something with this timer.
pub fn is_held(id: u64) -> bool {
    (IDS..IDS_END).contains(&id)
}

/// One try of an action.
#[derive(Clone, Debug)]
pub struct Act {
    pub name: usize,
    pub id: u64,
    pub action: TimerAction,
    pub sent_ns: u64,
    pub closed: Option<(u64, Closed)>,
}

impl Act {
    fn done_ns(&self) -> Option<u64> {
        match self.closed {
            Some((at_ns, Closed::Done)) => Some(at_ns),
            _ => None,
        }
    }

    fn has_no_effect(&self) -> bool {
        matches!(self.closed, Some((_, Closed::NoEffect)))
    }
}

/// How a callback ends, and after how long. The host of a timer whose server wants no more of it
/// says so late, where it would take the callback: the timer may be paused before.
pub fn end_of(id: u64, ending: Ending, timeout_ms: u64) -> (CallbackOutcome, u64) {
    match outcome_of(&ending) {
        CallbackOutcome::Delivered if is_ending(id) => {
            (CallbackOutcome::Gone, timeout_ms * MS * 4 / 5)
        }
        outcome => (outcome, ending.after_ns),
    }
}

/// Adds such timers and what clients do with them to a story.
pub fn holds(story: &mut Story) {
    let options = &story.options;
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 151);
    for timer in 0..draw.range(4, 12) {
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        let interval_ms = draw.range(1_500, 16_000);
        let pops = draw.pick(&[1, 1, 2, 6]);
        let repeat_for_ms = interval_ms * pops;
        let wish = Wish { interval_ms, repeat_for_ms, host, factor: 0, policy: None };
        let target = Target::Chosen(IDS + timer);
        let mut at_ms = draw.range(4_000, options.safety_ms / 2);
        let name = NAMES + timer as usize * 16;
        let made = &mut story.operations;
        make(options, draw, made, (name, at_ms, Kind::Update(target, wish)));
        for place in 1..draw.range(3, 8) {
            at_ms += draw.pick(&[5, 300, 1_200, 5_000, 20_000]);
            let action = match draw.range(0, 9) {
                0..5 => TimerAction::Pause,
                5..9 => TimerAction::Resume,
                _ => TimerAction::RunNow,
            };
            make(options, draw, made, (name + place as usize, at_ms, Kind::Act(target, action)));
        }
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
}

/// Adds timers that are paused while their servers are about to say that they want no more.
pub fn ends(story: &mut Story) {
    let options = &story.options;
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 152);
    for timer in 0..draw.range(3, 8) {
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        let interval_ms = draw.range(4_000, 9_000);
        let repeat_for_ms = interval_ms * draw.pick(&[1, 1, 3]);
        let policy = Some(RetryPolicy::default());
        let wish = Wish { interval_ms, repeat_for_ms, host, factor: 0, policy };
        let target = Target::Chosen(ENDING_IDS + timer);
        let mut at_ms = draw.range(4_000, options.safety_ms / 2);
        let name = 2 * NAMES + timer as usize * 16;
        let made = &mut story.operations;
        make(options, draw, made, (name, at_ms, Kind::Update(target, wish)));
        at_ms += interval_ms + draw.range(30, 200);
        let pause = Kind::Act(target, TimerAction::Pause);
        make(options, draw, made, (name + 1, at_ms, pause));
        if draw.chance(30) {
            let early_ms = at_ms + draw.range(20, 500);
            let resume = Kind::Act(target, TimerAction::Resume);
            make(options, draw, made, (name + 2, early_ms, resume));
        }
        at_ms += draw.pick(&[3_000, 10_000]);
        make(options, draw, made, (name + 3, at_ms, Kind::Act(target, TimerAction::Resume)));
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
}

fn make(
    options: &Options,
    draw: &mut Stream,
    made: &mut Vec<Operation>,
    (name, at_ms, kind): (usize, u64, Kind),
) {
    made.push(Operation {
        name: options.operations + name,
        at_ns: at_ms * MS + draw.range(0, MS),
        node: draw.range(0, options.all_nodes() as u64 - 1) as usize,
        kind,
        patience_ms: 3_000,
        loses_reply: draw.chance(5),
    });
}

impl Model {
    /// Notes that a client does something with a timer.
    pub fn acts(&mut self, name: usize, id: u64, action: TimerAction, sent_ns: u64) {
        self.acts.push(Act { name, id, action, sent_ns, closed: None });
    }

    /// Notes how a try of an action ended.
    pub fn acted(&mut self, name: usize, now_ns: u64, how: Closed) {
        if let Some(act) = self.acts.iter_mut().find(|act| act.name == name) {
            act.closed.get_or_insert((now_ns, how));
        }
    }

    fn acts_on(&self, id: u64) -> impl Iterator<Item = &Act> {
        self.acts.iter().filter(move |act| act.id == id)
    }

    /// Whether an action may be on its way to the holders of a timer, or have reached some.
    pub fn is_acted_on(&self, id: u64, now_ns: u64) -> bool {
        self.acts_on(id).any(|act| match act.closed {
            Some((at_ns, _)) => {
                at_ns + self.talk_ns > now_ns || !act.has_no_effect() && act.done_ns().is_none()
            }
            None => true,
        })
    }

    /// Whether another site may have made an action of the earlier of two writes before it heard of
    /// the later one. It is a write, too, and may win.
    pub fn is_acted_on_beside(&self, earlier: &Write, later: &Write) -> bool {
        let told_ns =
            later.closed.map_or(u64::MAX, |(at_ns, _)| at_ns.saturating_add(self.talk_ns));
        let is_beside = |act: &Act| {
            let is_over = act.closed.is_some_and(|(at_ns, _)| at_ns + self.talk_ns < later.sent_ns);
            !act.has_no_effect() && act.sent_ns <= told_ns && !is_over
        };
        earlier.id.is_some_and(|id| self.acts_on(id).any(is_beside))
    }

    /// Whether an action may have reached some holder of a timer since a moment. Attempts at its
    /// pop, and the pauses between them, count anew from then.
    pub fn is_acted_on_since(&self, id: u64, from_ns: u64) -> bool {
        let is_before = |act: &Act| act.done_ns().is_some_and(|at_ns| at_ns + TALK_NS < from_ns);
        self.acts_on(id).any(|act| !act.has_no_effect() && !is_before(act))
    }

    /// Whether a timer was resumed while this callback was under way, so that its pop is made again
    /// (docs/guarantees.md), by whichever node is the first then.
    pub fn is_resumed_meanwhile(&self, id: u64, other: &Attempted) -> bool {
        let told_ns = other.told.map_or(u64::MAX, |(at_ns, _)| at_ns);
        let mut resumes = self.acts_on(id).filter(|act| act.action == TimerAction::Resume);
        resumes.any(|act| {
            let is_after = act.closed.is_none_or(|(at_ns, _)| at_ns >= other.begun_ns);
            !act.has_no_effect() && is_after && act.sent_ns <= told_ns
        })
    }

    /// Whether a timer was run before the write that made it was answered. The write may be made
    /// again above what the run left.
    pub fn is_run_meanwhile(&self, write: &Write) -> bool {
        let is_meanwhile = |act: &Act| {
            let done_ns = write.acknowledged_ns().unwrap_or(u64::MAX);
            act.action == TimerAction::RunNow && !act.has_no_effect() && act.sent_ns <= done_ns
        };
        write.id.is_some_and(|id| self.acts_on(id).any(is_meanwhile))
    }

    /// Whether a pop of a timer may have been made before its time.
    pub fn may_be_run(&self, id: u64) -> bool {
        self.acts_on(id).any(|act| act.action == TimerAction::RunNow && !act.has_no_effect())
    }

    /// Whether an action of one of these kinds may have been made after another one.
    fn is_undone(&self, act: &Act, by: &[TimerAction]) -> bool {
        self.acts_on(act.id).any(|other| {
            let is_over = other.closed.is_some_and(|(at_ns, _)| at_ns < act.sent_ns);
            let is_before = is_over && (other.has_no_effect() || other.done_ns().is_some());
            other.name != act.name
                && by.contains(&other.action)
                && !is_before
                && !other.has_no_effect()
        })
    }

    /// The action as a write of its timer, and the write that made the timer, if that is certain.
    fn as_write(&self, act: &Act, now_ns: u64) -> Option<(Write, &Write)> {
        let mut writes = self.timers.get(&act.id)?.iter().map(|name| &self.writes[name]);
        let made = writes.clone().find(|write| {
            write.wish.is_some() && write.acknowledged_ns().is_some_and(|at_ns| at_ns < act.sent_ns)
        })?;
        if writes.any(|other| {
            other.name != made.name && other.sent_ns <= now_ns && !other.has_no_effect()
        }) {
            return None;
        }
        let (name, sent_ns, closed) = (act.name, act.sent_ns, act.closed);
        Some((Write { name, sent_ns, closed, ..made.clone() }, made))
    }

    /// Whether all nodes that are to have an action certainly have it, although nodes stop, die,
    /// freeze and return.
    fn is_known(&self, write: &Write, made: &Write, now_ns: u64) -> bool {
        let from_ns = made.sent_ns.saturating_sub(RECOVERY_NS);
        !self.acknowledges_first
            && self.crowded_from.is_none()
            && self.has_only_pauses(from_ns, now_ns)
            && !self.may_be_unknown(made, now_ns)
            && !self.may_be_unknown(write, now_ns)
            && !self.may_be_unheard(write, now_ns)
            && !self.may_be_damaged(write)
            && self.disturbances.longest_ns(from_ns, now_ns) < self.away_ns(from_ns, now_ns)
    }

    /// Checks H1 when a callback begins.
    pub fn is_not_paused(&self, id: u64, name: usize, now_ns: u64) -> Checked {
        if !is_held(id) {
            return Ok(());
        }
        for act in self.acts_on(id).filter(|act| act.action == TimerAction::Pause) {
            let Some(done_ns) = act.done_ns().filter(|at_ns| at_ns + self.talk_ns < now_ns) else {
                continue;
            };
            let Some((write, made)) = self.as_write(act, now_ns) else { continue };
            if made.name == name
                && !self.is_undone(act, &[TimerAction::Resume])
                && self.is_known(&write, made, now_ns)
            {
                return broken("H1", format!("{made:?} pops at {now_ns}, paused at {done_ns}"));
            }
        }
        Ok(())
    }

    /// Checks H2 and H3 some time after an action was acknowledged.
    pub fn has_acted(&self, name: usize, now_ns: u64) -> Checked {
        let Some(act) = self.acts.iter().find(|act| act.name == name) else { return Ok(()) };
        let Some((write, made)) = self.as_write(act, now_ns) else { return Ok(()) };
        let Some(wish) = made.wish else { return Ok(()) };
        let from_ns = act.sent_ns.saturating_sub(RECOVERY_NS);
        let others = [TimerAction::Pause, TimerAction::Resume, TimerAction::RunNow];
        let is_last_late =
            self.due_max_ns(made, wish.pops()).is_some_and(|due_ns| due_ns < act.sent_ns);
        let is_owed = act.done_ns().is_some()
            && !self.is_undone(act, &others[..1])
            && (act.action == TimerAction::RunNow || is_last_late)
            && self.host_is_well(wish.host, from_ns, now_ns)
            && self.is_known(&write, made, now_ns)
            && self.disturbances.impaired_max(from_ns, now_ns) < made.replicas;
        // A pop that was under way as the timer was run is the one that was asked for.
        let since_ns = act.sent_ns.saturating_sub(RANK_NS + TALK_NS);
        let first = if act.action == TimerAction::RunNow { 0 } else { wish.pops() };
        let mut seen = self.pops.range((made.name, first)..=(made.name, u64::MAX));
        let is_seen = match act.action {
            TimerAction::RunNow => seen.any(|(_, all)| {
                all.iter().any(|one| one.served_ns.is_some_and(|at_ns| at_ns >= since_ns))
            }),
            // The last pop may have been made before the pause.
            _ => seen.any(|(_, all)| all.iter().any(|one| one.served_ns.is_some())),
        };
        if is_owed && !is_seen {
            let rule = if act.action == TimerAction::RunNow { "H3" } else { "H2" };
            return broken(rule, format!("{act:?} of {made:?} at {now_ns}"));
        }
        Ok(())
    }
}

impl World {
    /// Notes that a node learns that the server of a timer wants no more of it.
    pub fn wants_no_more(&mut self, id: u64) {
        let name = name_of_end(id);
        if !self.model.writes.contains_key(&name) {
            self.model.asked(Some(id), Write::new(name, None, self.now_ns, 1));
            self.schedule(self.now_ns + self.model.talk_ns, Event::NoMore(id));
        }
    }

    /// All nodes have heard that a timer has ended, unless a client did something with it at the
    /// same time.
    pub fn has_no_more(&mut self, id: u64) {
        let name = name_of_end(id);
        let sent_ns = self.model.writes[&name].sent_ns;
        let is_beside = |act: &Act| act.closed.is_none_or(|(at_ns, _)| at_ns >= sent_ns);
        if !self.model.acts_on(id).any(is_beside) {
            self.model.closed(name, self.now_ns, Closed::Done);
        }
    }

    /// Takes the answer to an action.
    pub fn action_answered(&mut self, name: usize, answer: &Answer) -> Checked {
        let act = self.model.acts.iter().find(|act| act.name == name).cloned();
        let Some(act) = act else { return broken("R2", format!("{name} is no action")) };
        let how = match answer {
            Answer::Identified(done) if done.id.0 == act.id => Some(Closed::Done),
            Answer::Refused(Refusal::NoTimer) => Some(Closed::NoEffect),
            Answer::Refused(Refusal::Paused) if act.action == TimerAction::RunNow => {
                Some(Closed::NoEffect)
            }
            Answer::Refused(refusal) if !super::requests::leaves_open(*refusal) => {
                Some(Closed::NoEffect)
            }
            Answer::Refused(_) => None,
            other => return broken("R2", format!("{act:?} is answered {other:?}")),
        };
        if let Some(how) = how {
            self.model.acted(name, self.now_ns, how);
        }
        if how == Some(Closed::Done) && act.action != TimerAction::Pause {
            let ranks_ns = 4 * RANK_NS + self.options.callbacks.timeout_ms * MS + 10 * TALK_NS;
            self.schedule(self.now_ns + ranks_ns, Event::Acted(name));
        }
        Ok(())
    }
}
