//! Timers that clients pause, resume and run, and whose pops are given up, kept as dead letters,
//! tried again and deleted, while processes die. They have ids of their own and one pop each, and
//! the client of each waits for an answer before it asks again.
//!
//! - J7: what is done with a timer or with a dead letter is answered as the timer is, whatever died
//!   since. A pop that was given up is kept until its letter is tried again or deleted, and a letter
//!   that was deleted does not come back.
//! - J8: a timer that is paused makes no attempt, and goes on being paused after a restart. One that
//!   is not makes its pop in time.
//!
//! The model knows of each timer what it may be, and of each change whether the disk has it for
//! certain. After a crash a timer may be anything that it was since the last change that is.

use std::collections::BTreeMap;

use chronos::base::ids::{ShardCount, TimerId};
use chronos::base::time::Now;
use chronos::core::Core;
use chronos::shard::effects::{
    Answer, Attempt, CallbackOutcome, Condition, Conditional, Refusal, Request, Requester, Target,
};
use chronos::timer::definition::{Definition, encode_with_attributes};
use chronos::wire::attributes::{Attributes, RetryPolicy};
use chronos::wire::dead_letter::LetterUse;
use chronos::wire::timer_action::TimerAction;
use kit::simulator::random::{Purpose, Stream};
use kit::simulator::story::Violation;

use super::model::{Checked, MS, broken};
use super::options::Options;
use super::requests::name_of;
use super::story::{self, Kind, Operation};

/// The ids of such timers begin here.
const IDS: u64 = 0xc000_0000_0000_0000;
const IDS_MAX: u64 = 8;
/// The names of their operations begin here.
const NAMES: usize = 1 << 20;
/// The key of what is drawn for them.
const KEY: u64 = u64::MAX - 2;
/// In how many percent of the runs there are such timers.
const RUNS_PERCENT: u64 = 40;
/// Their server. It answers each attempt: 2xx, or 5xx.
const AUTHORITY: &str = "held:80";
/// How much later than its time a pop may begin.
const LATE_NS: i64 = 700 * MS;
/// Longer than any request waits for its answer.
const UNANSWERED_NS: i64 = 100_000 * MS;
/// A pop that is given up so long after the disk was in trouble may leave no letter.
const TROUBLED_NS: u64 = 3_000_000_000;

/// Whether a timer is one of these.
pub fn is_held(id: u64) -> bool {
    (IDS..IDS + IDS_MAX).contains(&id)
}

/// What a client does with such a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// It is written: it pops once after so many ms, with so many attempts.
    Put {
        interval_ms: u64,
        attempts_max: u16,
    },
    Act(TimerAction),
    Use(LetterUse),
    Read,
    Delete,
}

/// Adds such timers, in some stories.
pub fn draw_into(made: &mut Vec<Operation>, options: &Options) {
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, KEY);
    if !draw.chance(RUNS_PERCENT) {
        return;
    }
    for timer in 0..draw.range(1, IDS_MAX) {
        let mut at_ns = draw.range(0, options.safety_ms * 500_000);
        for place in 0..draw.range(3, 20) as usize {
            // After the end of faults a node that stops may be waiting for its disk still.
            if at_ns > options.safety_ms * 1_000_000 {
                break;
            }
            let doing = match draw.range(0, 19) {
                _ if place == 0 => put(draw),
                0 | 1 => put(draw),
                2..=5 => Doing::Act(TimerAction::Pause),
                6..=8 => Doing::Act(TimerAction::Resume),
                9 => Doing::Act(TimerAction::RunNow),
                10 | 11 => Doing::Use(LetterUse::Show),
                12 | 13 => Doing::Use(LetterUse::Replay),
                14 | 15 => Doing::Use(LetterUse::Delete),
                16 => Doing::Delete,
                _ => Doing::Read,
            };
            let name = NAMES + timer as usize * 64 + place;
            let kind = Kind::Hold(story::Target::Chosen(IDS + timer), doing);
            made.push(Operation { name, at_ns, core: draw.range(0, 5) as u16, kind });
            at_ns += draw.pick(&[300_000, 30_000_000, 600_000_000, 2_000_000_000, 5_000_000_000]);
            at_ns += draw.range(0, 40_000_000);
        }
        // What became of it: the last of these come when all is well again.
        for place in 0..3 {
            let name = NAMES + timer as usize * 64 + 32 + place;
            let doing = [Doing::Read, Doing::Use(LetterUse::Show), Doing::Read][place];
            let kind = Kind::Hold(story::Target::Chosen(IDS + timer), doing);
            let at_ns = (options.safety_ms + 20_000 + place as u64 * 5_000) * 1_000_000;
            made.push(Operation { name, at_ns, core: draw.range(0, 5) as u16, kind });
        }
    }
}

fn put(draw: &mut Stream) -> Doing {
    let interval_ms = draw.pick(&[0, 5, 300, 2_000, 6_000]) + draw.range(0, 50);
    Doing::Put { interval_ms, attempts_max: draw.pick(&[1, 1, 2]) }
}

/// Whether the server of a timer takes its pop. `replays`: how often it was tried again.
fn is_taken(name: usize, replays: u32) -> bool {
    (name + replays as usize).is_multiple_of(3)
}

/// What a timer may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Absent,
    /// It pops when both times have come.
    Timer {
        name: usize,
        replays: u32,
        is_paused: bool,
        due: [Due; 2],
    },
    Letter {
        name: usize,
        replays: u32,
    },
}

/// When a pop is due at the latest, and of which boot that time is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Due {
    by_ns: i64,
    boot: usize,
}

/// What an answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Done,
    NotFound,
    NoTimer,
    Paused,
    Timer { name: usize, is_paused: bool },
    Letter { name: usize },
}

/// What a client asks for. `now_ns`: later than it is answered.
#[derive(Clone, Copy, Debug)]
struct Asked {
    name: usize,
    doing: Doing,
    now_ns: i64,
    boot: usize,
}

impl Asked {
    /// What a timer becomes, and what may be answered.
    fn apply(&self, state: State) -> Vec<(State, Said)> {
        let after = |state, said| vec![(state, said)];
        let due = |after_ms: u64| {
            let by_ns = self.now_ns + after_ms as i64 * MS;
            [Due { by_ns, boot: self.boot }; 2]
        };
        match (self.doing, state) {
            (Doing::Put { interval_ms, .. }, _) => {
                let (name, due) = (self.name, due(interval_ms));
                after(State::Timer { name, replays: 0, is_paused: false, due }, Said::Done)
            }
            (Doing::Delete, _) => after(State::Absent, Said::Done),
            (Doing::Act(action), State::Timer { name, replays, is_paused, due: held }) => {
                let due = match action {
                    TimerAction::Resume if is_paused => [held[0], due(0)[1]],
                    TimerAction::RunNow => due(0),
                    _ => held,
                };
                let timer = |is_paused| State::Timer { name, replays, is_paused, due };
                match action {
                    TimerAction::RunNow if is_paused => after(state, Said::Paused),
                    TimerAction::RunNow => after(timer(false), Said::Done),
                    TimerAction::Pause => after(timer(true), Said::Done),
                    TimerAction::Resume => after(timer(false), Said::Done),
                }
            }
            (Doing::Act(_), _) => after(state, Said::NoTimer),
            (Doing::Use(LetterUse::Show), State::Letter { name, .. }) => {
                after(state, Said::Letter { name })
            }
            (Doing::Use(LetterUse::Replay), State::Letter { name, replays }) => {
                let (replays, due) = (replays + 1, due(0));
                after(State::Timer { name, replays, is_paused: false, due }, Said::Done)
            }
            (Doing::Use(LetterUse::Delete), State::Letter { .. }) => {
                after(State::Absent, Said::Done)
            }
            (Doing::Use(_), _) => after(state, Said::NotFound),
            (Doing::Read, State::Timer { name, is_paused, .. }) => {
                after(state, Said::Timer { name, is_paused })
            }
            (Doing::Read, State::Letter { name, .. }) => {
                vec![(state, Said::Letter { name }), (state, Said::NotFound)]
            }
            (Doing::Read, State::Absent) => after(state, Said::NotFound),
        }
    }
}

/// All that is known of one timer.
#[derive(Clone, Debug)]
struct Held {
    /// What the timer may be. While something is asked: and what is answered if it was taken.
    now: Vec<(State, Option<Said>)>,
    /// What it may have been, and from when on, since the last change that the disk has; and
    /// whether what is asked was taken then.
    past: Vec<(u64, Vec<(State, bool)>)>,
    asked: Option<Asked>,
    /// How many attempts run, and how many actions there were.
    running: u32,
    actions: u32,
    /// When the last attempt ended.
    ended_ns: i64,
    attempts_max: BTreeMap<usize, u16>,
}

impl Held {
    fn new() -> Self {
        Self {
            now: vec![(State::Absent, None)],
            past: vec![(0, vec![(State::Absent, false)])],
            asked: None,
            running: 0,
            actions: 0,
            ended_ns: 0,
            attempts_max: BTreeMap::new(),
        }
    }

    /// Changes what the timer may be: into what `change` makes of each state.
    fn change(&mut self, now_ns: u64, change: impl Fn(State) -> Vec<State>) {
        let former = std::mem::take(&mut self.now);
        let mut is_same = true;
        for (before, said) in former {
            for state in change(before) {
                is_same &= state == before;
                self.now.push((state, said));
                if let (Some(asked), None) = (&self.asked, said) {
                    let taken = asked.apply(state).into_iter();
                    self.now.extend(taken.map(|(state, said)| (state, Some(said))));
                }
            }
        }
        self.note(now_ns, is_same);
    }

    /// Remembers what the timer may be. `is_same`: it has become nothing else.
    fn note(&mut self, now_ns: u64, is_same: bool) {
        let mut distinct = Vec::new();
        for state in std::mem::take(&mut self.now) {
            if !distinct.contains(&state) {
                distinct.push(state);
            }
        }
        self.now = distinct;
        let states = self.now.iter().map(|(state, said)| (*state, said.is_some()));
        let states: Vec<(State, bool)> = states.collect();
        let is_first = self.past.len() == 1;
        let (_, last) = self.past.last_mut().expect("it was something");
        if is_first && is_same && states.iter().all(|state| last.contains(state)) {
            // It was this all the time.
            *last = states;
        } else if *last != states {
            self.past.push((now_ns, states));
        }
    }

    fn any(&self, is_it: impl Fn(State) -> bool) -> bool {
        self.now.iter().any(|(state, _)| is_it(*state))
    }
}

/// All timers of this kind.
#[derive(Debug, Default)]
pub struct Holds {
    timers: BTreeMap<u64, Held>,
    is_sync: bool,
    /// Nothing is checked any more: a bit was turned over.
    pub is_off: bool,
    boot: usize,
    /// From when on the process is to be in time.
    ready_ns: i64,
}

/// An attempt as the model remembers it.
#[derive(Clone, Copy, Debug)]
pub struct Trying {
    id: u64,
    name: usize,
    replays: u32,
    number: u16,
    actions: u32,
}

impl Trying {
    /// How the attempt ends, and after how long.
    pub fn ends(&self, draw: &mut Stream) -> (CallbackOutcome, u64) {
        let outcome = match is_taken(self.name, self.replays) {
            true => CallbackOutcome::Delivered,
            false => CallbackOutcome::Rejected,
        };
        (outcome, draw.pick(&[100_000, 3_000_000, 200_000_000]))
    }

    fn is_of(&self, state: State) -> bool {
        matches!(state, State::Timer { name, replays, .. }
            if (name, replays) == (self.name, self.replays))
    }
}

impl Holds {
    pub fn new(is_sync: bool) -> Self {
        Self { is_sync, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Whether the client of a timer waits for an answer, and asks for nothing else meanwhile.
    pub fn is_busy(&self, id: u64) -> bool {
        self.timers.get(&id).is_some_and(|held| held.asked.is_some())
    }

    /// Notes what a client asks for.
    pub fn asked(&mut self, id: u64, name: usize, doing: Doing, now_ns: u64) {
        let held = self.timers.entry(id).or_insert_with(Held::new);
        if let Doing::Put { attempts_max, .. } = doing {
            held.attempts_max.insert(name, attempts_max);
        }
        held.actions += u32::from(matches!(doing, Doing::Act(_)));
        let now_ns = now_ns as i64;
        held.asked = Some(Asked { name, doing, now_ns: now_ns + UNANSWERED_NS, boot: self.boot });
        held.change(now_ns as u64, |state| vec![state]);
    }

    /// Checks J7 for an answer.
    pub fn answered(&mut self, id: u64, answer: &Answer, now_ns: u64) -> Checked {
        let held = self.timers.get_mut(&id).expect("asked before");
        let story = format!("timer {id:x}: {answer:?}, {held:?}");
        let Some(asked) = held.asked.take() else { return broken("R2", story) };
        let now = std::mem::take(&mut held.now);
        let is_fit: Box<dyn Fn(Option<Said>) -> bool> = match answer {
            Answer::Refused(Refusal::CoreBusy) => Box::new(|said| said.is_none()),
            // The disk has not told whether it has it.
            Answer::Refused(Refusal::JournalFull | Refusal::JournalStalled) => Box::new(|_| true),
            answer => match said_by(answer) {
                None => return broken("R2", story),
                Some(is) => Box::new(move |said| said == Some(is)),
            },
        };
        let answered = |state: State| state.counted_from(&asked, now_ns as i64);
        let fit = now.iter().filter(|(_, said)| is_fit(*said));
        held.now = fit.map(|(state, _)| (answered(*state), None)).collect();
        if held.now.is_empty() {
            held.now = now.iter().map(|(state, _)| (answered(*state), None)).collect();
            return if self.is_off { Ok(()) } else { broken("J7", story) };
        }
        let is_done = said_by(answer) == Some(Said::Done);
        for (_, states) in &mut held.past {
            if self.is_sync && is_done {
                // The disk has what was asked, and perhaps not what came of it since.
                states.retain(|(_, is_taken)| *is_taken);
            }
            states.iter_mut().for_each(|(state, is_taken)| {
                (*state, *is_taken) = (state.counted_from(&asked, now_ns as i64), false);
            });
        }
        held.past.retain(|(_, states)| !states.is_empty());
        held.note(now_ns, !is_done && said_by(answer).is_some());
        Ok(())
    }

    /// Checks J7 and J8 for an attempt that begins.
    pub fn begins_attempt(
        &mut self,
        core: &Core,
        attempt: &Attempt,
        now_ns: u64,
    ) -> Result<Trying, Violation> {
        let id = attempt.ticket.id.0;
        let content = core.shard().content(attempt);
        let name = name_of(content.target).unwrap_or(0);
        let replays = content.attributes().replay.map_or(0, |replay| replay.count);
        let held = self.timers.entry(id).or_insert_with(Held::new);
        let trying = Trying { id, name, replays, number: attempt.number, actions: held.actions };
        held.running += 1;
        if self.is_off {
            return Ok(trying);
        }
        let is_paused = |state| matches!(state, State::Timer { is_paused: true, .. });
        let is_it = |state| trying.is_of(state) && !is_paused(state);
        if !held.any(is_it) {
            let is_held_back = held.any(|state| trying.is_of(state));
            let rule = if is_held_back { "J8 paused" } else { "J7 back" };
            broken(rule, format!("timer {id:x}: {trying:?} begins, {held:?}"))?;
        }
        if *content.opaque != *opaque(name)
            || core.shard().authority(attempt.ticket.host) != AUTHORITY
        {
            broken("J5", format!("timer {id:x} carries other bytes than were asked for"))?;
        }
        held.change(now_ns, |state| if is_it(state) { vec![state] } else { Vec::new() });
        Ok(trying)
    }

    /// Notes that an attempt ended.
    pub fn ended(
        &mut self,
        trying: &Trying,
        outcome: CallbackOutcome,
        now_ns: u64,
        troubled_ns: u64,
    ) {
        let held = self.timers.get_mut(&trying.id).expect("it has begun");
        held.running -= 1;
        held.ended_ns = now_ns as i64;
        let is_last = held.attempts_max.get(&trying.name).is_some_and(|max| trying.number >= *max);
        // A client did something with the timer meanwhile: the attempts count anew.
        let is_sure = held.actions == trying.actions;
        let is_troubled = troubled_ns + TROUBLED_NS > now_ns;
        let Trying { name, replays, .. } = *trying;
        let letter = State::Letter { name, replays };
        held.change(now_ns, |state| match state {
            _ if !trying.is_of(state) => vec![state],
            _ if outcome == CallbackOutcome::Delivered => vec![State::Absent],
            _ if !is_last && is_sure => vec![state],
            _ if is_troubled => vec![letter, State::Absent, state],
            State::Timer { is_paused: true, .. } => vec![state, letter],
            _ if !is_sure => vec![state, letter],
            _ => vec![letter],
        });
    }

    /// Notes that all that a core did up to a time is durable.
    pub fn settle(&mut self, core: u16, shards: u16, until_ns: u64) {
        let shards = ShardCount::new(shards);
        for (id, held) in &mut self.timers {
            if shards.owner(TimerId(*id)).0 == core {
                let last = held.past.iter().rposition(|(at_ns, _)| *at_ns <= until_ns);
                held.past.drain(..last.unwrap_or(0));
            }
        }
    }

    /// Notes that the process is gone. What the disk has may be anything since the last change that
    /// it has for certain.
    pub fn dies(&mut self) {
        for held in self.timers.values_mut() {
            let past = std::mem::take(&mut held.past).into_iter().flat_map(|(_, states)| states);
            let past = past.map(|(state, _)| state);
            let now = held.now.iter().map(|(state, _)| *state);
            let states: Vec<State> = past.chain(now).collect();
            (held.asked, held.running) = (None, 0);
            held.past = vec![(0, states.iter().map(|state| (*state, false)).collect())];
            held.now = states.into_iter().map(|state| (state, None)).collect();
            held.note(0, true);
        }
    }

    /// Notes that a process begins.
    pub fn begins(&mut self, boot: usize, ready_ns: i64) {
        (self.boot, self.ready_ns) = (boot, ready_ns);
    }

    /// Checks J8: no pop is missing that is due.
    pub fn none_is_late(&self, now_ns: i64) -> Checked {
        for (id, held) in self.timers.iter().filter(|_| !self.is_off) {
            let [(State::Timer { is_paused: false, due, .. }, _)] = held.now[..] else { continue };
            // Times of an earlier boot come over by the wall clock.
            let is_known = due.iter().all(|due| due.boot == self.boot);
            let is_known = is_known && held.running == 0 && held.asked.is_none();
            let due_ns = due[0].by_ns.max(due[1].by_ns);
            let by_ns = due_ns.max(held.ended_ns).max(self.ready_ns) + LATE_NS;
            if is_known && now_ns > by_ns {
                return broken("J8 late", format!("timer {id:x} at {now_ns}: {held:?}"));
            }
        }
        Ok(())
    }
}

impl State {
    /// The same where what was asked counts from its answer.
    fn counted_from(self, asked: &Asked, answered_ns: i64) -> Self {
        match self {
            State::Timer { name, replays, is_paused, due } => {
                let due = due.map(|due| match due.by_ns - asked.now_ns {
                    after_ns @ 0.. => Due { by_ns: after_ns + answered_ns + MS, ..due },
                    _ => due,
                });
                State::Timer { name, replays, is_paused, due }
            }
            state => state,
        }
    }
}

/// What an answer says; `None`: nothing that such a client may be told.
fn said_by(answer: &Answer) -> Option<Said> {
    Some(match answer {
        Answer::Done { .. } | Answer::Identified(_) => Said::Done,
        Answer::NotFound => Said::NotFound,
        Answer::Refused(Refusal::NoTimer) => Said::NoTimer,
        Answer::Refused(Refusal::Paused) => Said::Paused,
        Answer::Found(view) => {
            let shown = Attributes::read(&view.attributes).ok()?;
            let name = name_of(view.uri.strip_prefix("http://held:80")?.as_bytes())?;
            if *view.opaque != *opaque(name) {
                return None;
            }
            match shown.letter {
                Some(_) => Said::Letter { name },
                None => Said::Timer { name, is_paused: shown.is_paused },
            }
        }
        _ => return None,
    })
}

fn opaque(name: usize) -> Vec<u8> {
    format!("held {name}").into_bytes()
}

/// Asks a core.
pub fn hand_over(
    core: &mut Core,
    (now, from): (Now, Requester),
    target: Target,
    asked: (usize, Doing),
) {
    let (name, doing) = asked;
    let Doing::Put { interval_ms, attempts_max } = doing else {
        let request = match doing {
            Doing::Act(action) => {
                let (condition, definition) = (Condition::Present, None);
                let action = Some(action);
                Request::Conditional(Conditional { target, condition, definition, action })
            }
            Doing::Use(wanted) => Request::Letter(target, wanted, None),
            Doing::Delete => Request::Delete(target),
            Doing::Read | Doing::Put { .. } => Request::Read(target),
        };
        return core.request(now, from, request);
    };
    let policy = RetryPolicy {
        max_attempts: attempts_max,
        initial_ms: 20,
        multiplier_milli: 1_000,
        jitter_milli: 0,
        ..RetryPolicy::default()
    };
    let (mut attributes, mut content) = (Vec::new(), Vec::new());
    Attributes { retry: Some(policy), ..Attributes::default() }.write(&mut attributes);
    let parts = (&attributes[..], &opaque(name)[..]);
    encode_with_attributes(&format!("/{name}"), &[], parts, &mut content);
    let (factor, repeat_for_ms) = (None, interval_ms);
    let (authority, content) = (AUTHORITY, &content[..]);
    let definition = Definition { interval_ms, repeat_for_ms, factor, authority, content };
    core.request(now, from, Request::Update(target, definition));
}
