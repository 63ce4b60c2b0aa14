//! Clients that pause timers, resume them and run them now (docs/api.md, "Pause, resume, run now").
//! Such timers have ids of their own, and the client of each waits for an answer before it asks
//! again. So the model knows in which state an action finds its timer.
//!
//! - A1: an action is answered as the timer is, and counts if it changes the timer.
//! - A2: a timer that is paused makes no attempt. A read shows whether it is paused.
//! - A3: a pop that an action brings forward is due at the action. Of the times that came while the
//!   timer was paused the latest is made up for, and no other. All other pops keep their times.
//!
//! That pops come is T1, that none comes twice T3. A callback that is under way as its timer is
//! paused is a *stray*: as it ends, another attempt at the same pop may be under way. Where an
//! attempt ends while an action is asked and not answered, the model does not know which came
//! first. Such a write is *vague* until its next attempt shows how far it is.

use chronos::base::time::Now;
use chronos::shard::effects::{
    Answer, CallbackOutcome, Condition, Conditional, Refusal, Request, Target, Ticket, TimerView,
};
use chronos::wire::attributes::Attributes;
use chronos::wire::timer_action::TimerAction;
use kit::simulator::random::{Purpose, Stream};

use super::clients::{self, Kind, Operation, Wish};
use super::extras::Extras;
use super::invariants::Begun;
use super::model::{Checked, Model, Moment, Pop, Timer, Write, broken};
use super::options::Options;

/// The ids of such timers begin here.
const IDS: u64 = 0xc000_0000_0000_0000;
const IDS_MAX: u64 = 16;
/// The names of their operations begin here, beyond those of all but the cleaning client.
const NAMES: usize = 1 << 20;
/// The key of what is drawn for them.
const KEY: u64 = u64::MAX - 1;
/// In how many percent of the runs there are such timers.
const RUNS_PERCENT: u64 = 50;

/// Whether clients do something with this timer.
pub fn is_held(id: u64) -> bool {
    (IDS..IDS + IDS_MAX).contains(&id)
}

/// Adds timers with which clients do something, in some stories.
pub fn draw_into(made: &mut Vec<Operation>, options: &Options) {
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, KEY);
    if options.is_crowd || !draw.chance(RUNS_PERCENT) {
        return;
    }
    let end_ms = options.safety_ms + options.pause_ms;
    for timer in 0..draw.range(2, IDS_MAX) {
        let name = NAMES + timer as usize * 64;
        let mut at_ns = draw.range(0, end_ms * 800_000);
        let mut wish = wish(draw, options);
        for place in 0..draw.range(3, 24) as usize {
            let kind = match draw.range(0, 19) {
                _ if place == 0 => Kind::Update(clients::Target::Chosen(IDS + timer), wish),
                0..=5 => act(timer, TimerAction::Pause),
                6..=10 => act(timer, TimerAction::Resume),
                11..=13 => act(timer, TimerAction::RunNow),
                14 => Kind::Read(clients::Target::Chosen(IDS + timer)),
                15..=18 => {
                    wish = self::wish(draw, options);
                    Kind::Update(clients::Target::Chosen(IDS + timer), wish)
                }
                _ if draw.chance(30) => Kind::Delete(clients::Target::Chosen(IDS + timer)),
                _ => Kind::Read(clients::Target::Chosen(IDS + timer)),
            };
            let core = draw.range(0, u64::from(options.shards) - 1) as u16;
            made.push(Operation { name: name + place, at_ns, core, kind });
            at_ns += pause_ns(draw, &wish);
        }
    }
}

fn act(timer: u64, action: TimerAction) -> Kind {
    Kind::Act(clients::Target::Chosen(IDS + timer), action)
}

/// How long after an operation the next one comes: often as a callback is under way.
fn pause_ns(draw: &mut Stream, wish: &Wish) -> u64 {
    let interval_ns = wish.interval_ms * 1_000_000;
    match draw.range(0, 9) {
        0..=2 => interval_ns + draw.range(0, 4_000_000),
        3 => interval_ns + draw.range(0, 60_000_000),
        4 => draw.range(0, 500_000),
        5 => draw.range(0, 40_000_000),
        6 => interval_ns * draw.range(1, 4) + draw.range(0, 300_000_000),
        _ => draw.range(1_000_000, 3_000_000_000),
    }
}

fn wish(draw: &mut Stream, options: &Options) -> Wish {
    let interval_ms = match draw.range(0, 9) {
        0 => 0,
        1 | 2 => draw.range(1, 30),
        3..=7 => draw.range(30, 900),
        _ => draw.range(900, 9_000),
    };
    let most = (20_000 / interval_ms.max(1)).clamp(1, 24);
    let repeat_for_ms = interval_ms * if draw.chance(40) { 1 } else { draw.range(1, most) };
    let extras = Extras { has_time: false, ..Extras::draw(draw) };
    let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
    let opaque_bytes = draw.range(0, 60) as u32;
    Wish { interval_ms, repeat_for_ms, host, opaque_bytes, extras }
}

/// The request of an action.
pub fn request(target: Target, action: TimerAction) -> Request<'static> {
    let (condition, definition) = (Condition::Present, None);
    Request::Conditional(Conditional { target, condition, definition, action: Some(action) })
}

/// The pops of which one is due at an action instead of at its own time.
#[derive(Clone, Copy, Debug)]
struct Forward {
    from: u64,
    to: u64,
    /// The tick of the action lies between these.
    earliest: u64,
    latest: u64,
    /// Whether one is for certain, and it is the only one of these.
    is_certain: bool,
}

/// What clients did with a timer since they wrote it.
#[derive(Clone, Debug, Default)]
pub struct Acts {
    /// Whether an action was taken since the last attempt, so that the version is another one.
    pub is_anew: bool,
    pub is_paused: bool,
    forward: Option<Forward>,
    /// Callbacks that were under way as the timer was paused: pop and version.
    strays: Vec<(u64, u64)>,
    /// Pops before this one are left out.
    pub skips_to: u64,
    pub is_vague: bool,
    /// How many pops beyond the next one may have been given up before the last action.
    given_up_max: u64,
    /// How many attempts have ended.
    endings: u64,
    /// When the last action was answered.
    answered: Option<Moment>,
}

impl Acts {
    fn forward(&self, pop: u64) -> Option<Forward> {
        self.forward.filter(|forward| (forward.from..=forward.to).contains(&pop))
    }
}

/// An action that is asked and not answered, and the timer as the action was asked.
#[derive(Clone, Copy, Debug)]
pub struct Acting {
    action: TimerAction,
    asked_ns: u64,
    next: u64,
    endings: u64,
    is_live: bool,
    was_paused: bool,
    /// Whether an attempt has shown that the action was taken.
    is_seen: bool,
}

impl Acting {
    /// Whether the action may have been taken.
    pub fn is_doubtful(&self) -> bool {
        self.is_change() && !self.is_seen
    }

    fn is_change(&self) -> bool {
        match self.action {
            TimerAction::Pause => !self.was_paused,
            TimerAction::Resume => self.was_paused,
            TimerAction::RunNow => true,
        }
    }
}

impl Write {
    /// The latest tick at which a pop is due that an action may have brought forward. `own`: its
    /// own time.
    pub fn brought_forward(&self, pop: u64, own: u64) -> u64 {
        match self.acts.forward(pop) {
            Some(forward) if forward.is_certain => forward.latest,
            Some(forward) => forward.latest.max(own),
            None => own,
        }
    }

    /// By how much earlier than its latest time the next pop may be due because of an action.
    pub fn forward_unknown_ms(&self) -> u64 {
        let forward = self.acts.forward(self.next);
        forward.map_or(0, |forward| self.due(self.next).saturating_sub(forward.earliest))
    }

    /// Whether an attempt is at a pop that an action has brought forward.
    pub fn is_brought_forward(&self, begun: &Begun<'_>) -> bool {
        let forward = self.acts.forward(begun.attempt.ticket.sequence);
        let due = begun.attempt.due.0;
        forward.is_some_and(|forward| (forward.earliest..=forward.latest).contains(&due))
    }

    /// The least and the latest tick from which pops count.
    fn starts(&self) -> (u64, u64) {
        let asked = self.asked_ns.div_ceil(1_000_000);
        let answered = self.answered_ns.div_ceil(1_000_000) + self.window_ms();
        self.start.map_or((asked, answered), |start| (start, start))
    }

    /// The last pop that has come at a tick, or 0.
    fn come(&self, tick: u64, start: u64) -> u64 {
        let interval_ms = self.wish.map_or(0, |wish| wish.interval_ms);
        match tick.checked_sub(start).filter(|passed| *passed >= interval_ms) {
            Some(passed) => passed.checked_div(interval_ms).unwrap_or(1).min(self.pops()),
            None => 0,
        }
    }

    /// Notes that an action was taken between its request and `until_ns`. `given_up_max`: how many
    /// pops may have been given up unseen by then.
    fn take_action(&mut self, acting: &Acting, until_ns: u64, given_up_max: u64) {
        if !acting.is_change() {
            return;
        }
        // What is paused is not given up.
        if acting.action != TimerAction::Resume && given_up_max > 0 {
            self.acts.given_up_max = self.acts.given_up_max.max(given_up_max);
            self.acts.is_vague = true;
        }
        self.acts.is_anew = true;
        let is_pause = acting.action == TimerAction::Pause;
        let has_ended = acting.endings != self.acts.endings;
        // As it ended, a policy may have given the pop up, or not.
        let is_vague = has_ended && (!is_pause || self.policy().is_some());
        if is_vague {
            self.becomes_vague();
        }
        if self.pop == Pop::Running && is_pause {
            self.becomes_stray();
        }
        if self.pop != Pop::Running {
            self.pop = Pop::Waiting;
        }
        (self.failed, self.not_before, self.again_by) = (0, 0, 0);
        let (earliest, latest) = (acting.asked_ns / 1_000_000, until_ns / 1_000_000);
        // A timer begins with the tick after its request: no action comes before that.
        let latest = latest.max(self.answered_ns.div_ceil(1_000_000));
        // Of the times that came while it was paused any may be the present one.
        let to = (self.next + self.acts.given_up_max).max(self.acts.skips_to);
        let from = acting.next;
        match acting.action {
            TimerAction::Pause => self.acts.is_paused = true,
            TimerAction::RunNow => {
                let is_certain = from == to;
                self.acts.forward = Some(Forward { from, to, earliest, latest, is_certain });
            }
            TimerAction::Resume => {
                self.acts.is_paused = false;
                self.resume((from, to), (earliest, latest));
            }
        }
    }

    /// A timer that was paused goes on between two ticks. Its next pop lay between `from` and `to`.
    fn resume(&mut self, (from, to): (u64, u64), (earliest, latest): (u64, u64)) {
        let starts = self.starts();
        let least = self.come(earliest, starts.1);
        let most = self.come(latest, starts.0);
        if most < from {
            // Nothing came. What was brought forward before the pause and not made is due again.
            let forward = self.acts.forward(self.next);
            self.acts.forward = forward.map(|forward| {
                let is_certain = forward.is_certain;
                Forward { from, to, earliest, latest, is_certain }
            });
            return;
        }
        self.next = self.next.max(least);
        self.acts.skips_to = most;
        let is_certain = least == most && least >= to;
        let (from, to) = (least.max(from), most.max(to));
        self.acts.forward = Some(Forward { from, to, earliest, latest, is_certain });
    }

    /// The model does not know any more how far the timer is.
    pub fn becomes_vague(&mut self) {
        self.acts.is_vague = true;
        self.acts.given_up_max = self.pops().saturating_sub(self.next);
        if self.pop == Pop::Running {
            self.becomes_stray();
        }
    }

    fn becomes_stray(&mut self) {
        let version = self.version.expect("it has popped");
        self.acts.strays.push((self.next, version));
        self.pop = Pop::Waiting;
    }

    /// Whether a read shows what clients did with a timer. `asked`: when it was asked.
    pub fn shows_actions(&self, view: &TimerView, asked: Moment) -> bool {
        let shown = Attributes::read(&view.attributes).expect("a shard encodes them");
        let is_since = self.acts.answered.is_none_or(|at| at < asked);
        !is_since || shown.is_paused == self.acts.is_paused
    }
}

/// The attributes that a read shows, without what clients did with the timer.
pub fn as_written(view: &TimerView) -> Vec<u8> {
    let shown = Attributes::read(&view.attributes).expect("a shard encodes them");
    let mut encoded = Vec::new();
    Attributes { acted: None, is_paused: false, ..shown }.write(&mut encoded);
    encoded
}

impl Timer {
    /// Whether its client waits for an answer.
    fn is_busy(&self) -> bool {
        self.acting.is_some() || self.writes.iter().any(|write| write.answered.is_none())
    }

    fn live(&mut self) -> Option<&mut Write> {
        self.writes.last_mut().filter(|write| write.wish.is_some() && !write.has_ended)
    }
}

impl Model {
    /// Whether the client of a timer waits for an answer, and asks for nothing else meanwhile.
    pub fn is_busy(&self, id: u64) -> bool {
        is_held(id) && self.timers.get(&id).is_some_and(Timer::is_busy)
    }

    /// Notes that a client does something with a timer.
    pub fn acts(&mut self, (id, owner): (u64, u16), action: TimerAction, now_ns: u64) {
        self.unfile(id);
        let timer = self.timers.entry(id).or_default();
        timer.owner = owner;
        let live = timer.live().map(|write| &*write);
        let numbers = live.map(|write| (write.next, write.acts.endings));
        let (next, endings) = numbers.unwrap_or_default();
        let was_paused = live.is_some_and(|write| write.acts.is_paused);
        let is_live = live.is_some();
        let (asked_ns, is_seen) = (now_ns, false);
        timer.acting =
            Some(Acting { action, asked_ns, next, endings, is_live, was_paused, is_seen });
    }

    /// How many pops of a timer may have been given up unseen by a tick.
    fn given_up_max(&self, id: u64, write: &Write, tick: u64) -> u64 {
        let is_waiting = write.pop != Pop::Running && write.answered.is_some();
        let Some(wish) = write.wish.filter(|_| is_waiting) else { return 0 };
        let host = self.host(id, wish.host);
        let is_over = |pop: u64| {
            let had_failed = pop == write.next && write.failed > 0;
            let due = write.due(pop).saturating_sub(write.unknown_ms());
            let give_up_at = write.give_up_at(pop, self.give_up_ms);
            tick >= give_up_at.saturating_sub(write.unknown_ms())
                && (had_failed || host.was_in_trouble_since(due))
        };
        (write.next..write.pops()).take_while(|pop| is_over(*pop)).count() as u64
    }

    /// Checks A1 for an answer, and notes what the action has done.
    pub fn acted(&mut self, id: u64, answer: &Answer, moment: Moment, now_ns: u64) -> Checked {
        let write = self.timers[&id].writes.last();
        let tick = now_ns / 1_000_000;
        let given_up_max = write.map_or(0, |write| self.given_up_max(id, write, tick));
        let timer = self.timers.get_mut(&id).expect("asked before");
        let Some(acting) = timer.acting.take() else {
            return broken("R2", format!("timer {id:x}: nothing was done, {answer:?}"));
        };
        let story = format!("timer {id:x}: {acting:?} is answered {answer:?}");
        let runs_paused = acting.action == TimerAction::RunNow && acting.was_paused;
        match answer {
            Answer::Identified(done) if done.id.0 == id && acting.is_live && !runs_paused => {
                self.tally.acted += u64::from(acting.is_change());
                let write = timer.writes.last_mut().expect("it was live");
                write.acts.answered = Some(moment);
                if !acting.is_seen && !write.has_ended {
                    write.take_action(&acting, now_ns, given_up_max);
                    self.tally.given_up_max += given_up_max;
                }
            }
            Answer::Refused(Refusal::Paused) if runs_paused => {}
            Answer::Refused(Refusal::NoTimer) => {
                let is_there = acting.is_live && timer.certain().is_some();
                if is_there && !self.may_have_ended(id, tick) {
                    return broken("A1", story);
                }
            }
            // The caller checks for what reason.
            Answer::Refused(Refusal::NoteTooLong | Refusal::Paused) => {
                return broken("A1", story);
            }
            Answer::Refused(_) => {}
            _ => return broken("A1", story),
        }
        self.file(id);
        Ok(())
    }

    /// Checks A2 for an attempt that begins, and learns from the attempt which actions were taken.
    pub fn heeds_actions(&mut self, begun: &Begun<'_>, at: usize, story: &str) -> Checked {
        let (sequence, due) = (begun.attempt.ticket.sequence, begun.attempt.due.0);
        let id = begun.attempt.ticket.id.0;
        if !is_held(id) {
            return Ok(());
        }
        let write = &self.timers[&id].writes[at];
        let given_up_max = self.given_up_max(id, write, begun.now.mono.tick_floor().0);
        let timer = self.timers.get_mut(&id).expect("found by the caller");
        let write = &mut timer.writes[at];
        if let Some(acting) = timer.acting.as_mut().filter(|acting| !acting.is_seen) {
            let (earliest, latest) = (acting.asked_ns / 1_000_000, begun.now.mono.tick_floor().0);
            let own = write.own_due(sequence);
            let is_again = sequence == write.next && begun.attempt.number == 1 && write.failed > 0;
            let is_forward = write.acts.forward(sequence).is_some_and(|held| held.is_certain);
            let is_own = (own - write.own_unknown_ms().min(own)..=own).contains(&due);
            let is_own = is_own && !is_again && !is_forward;
            let version = begun.attempt.ticket.version.0;
            let is_anew = write.version.is_some_and(|held| held < version) && !write.acts.is_anew;
            let may_be_run = acting.action == TimerAction::RunNow
                && !acting.was_paused
                && due >= earliest
                && !write.is_brought_forward(begun);
            acting.is_seen = match acting.action {
                _ if is_anew && acting.is_change() => true,
                TimerAction::Pause => false,
                TimerAction::Resume => acting.was_paused,
                // Only an action counts the attempts anew.
                TimerAction::RunNow if is_again && !acting.was_paused => true,
                TimerAction::RunNow => may_be_run && !is_own,
            };
            if acting.is_seen {
                write.take_action(acting, begun.now.mono.0, given_up_max);
                self.tally.given_up_max += given_up_max;
            } else if may_be_run {
                // Its own time may be that of the action. So it shows nothing of the start.
                let (from, to, is_certain) = (sequence, sequence, false);
                write.acts.forward = Some(Forward { from, to, earliest, latest, is_certain });
            }
        }
        if write.acts.is_paused {
            return broken("A2", format!("{story}: it is paused"));
        }
        if write.acts.is_vague && sequence >= write.next {
            if write.pop == Pop::Running {
                write.becomes_stray();
            }
            self.tally.given_up_max += sequence - write.next;
            (write.next, write.failed) = (sequence, u32::from(begun.attempt.number) - 1);
            (write.acts.is_vague, write.acts.given_up_max) = (false, 0);
        }
        Ok(())
    }

    /// Checks A3 for an attempt that begins.
    pub fn comes_forward(begun: &Begun<'_>, write: &Write, story: &str) -> Checked {
        let forward = write.acts.forward(begun.attempt.ticket.sequence);
        let is_certain = forward.is_some_and(|forward| forward.is_certain);
        if is_certain && !write.is_brought_forward(begun) {
            let due = begun.attempt.due;
            return broken("A3", format!("{story}: due at {due:?}, an action made it {forward:?}"));
        }
        if begun.now.mono < begun.attempt.due.begins() {
            return broken("T2", format!("{story}: early, {:?}", begun.attempt.due));
        }
        Ok(())
    }

    /// Takes how a callback ended. True: its timer was paused since it began, or the model does not
    /// know what follows.
    pub fn stray_ended(
        &mut self,
        ticket: &Ticket,
        name: usize,
        outcome: CallbackOutcome,
        now: Now,
    ) -> bool {
        let id = ticket.id.0;
        let timer = self.timers.get_mut(&id).expect("attempts were checked");
        let Some(write) = timer.writes.iter_mut().find(|write| write.name == name) else {
            return false;
        };
        write.acts.endings += 1;
        let stray = (ticket.sequence, ticket.version.0);
        let Some(at) = write.acts.strays.iter().position(|held| *held == stray) else {
            return false;
        };
        write.acts.strays.swap_remove(at);
        self.tally.outdated_max += 1;
        let (is_next, is_running) = (ticket.sequence == write.next, write.pop == Pop::Running);
        let had_ended = write.has_ended;
        match outcome {
            CallbackOutcome::Gone if write.policy().is_some() => {
                self.tally.gone_max += 1;
                write.has_ended = true;
            }
            _ if write.acts.is_vague || !is_next => {}
            // The pop is over, or may be: of the times that came the latest may be a later one.
            CallbackOutcome::Delivered => {
                if is_running {
                    write.becomes_stray();
                }
                match write.acts.skips_to > ticket.sequence {
                    true => write.becomes_vague(),
                    false => drop(write.pop_over(now)),
                }
            }
            // The attempt that runs is taken for failed. It is made again beside itself.
            _ if is_running => write.becomes_vague(),
            _ => {}
        }
        let has_ended = write.has_ended && !had_ended;
        if has_ended && timer.certain().is_some() {
            self.ended(id, now.mono.tick_floor().0);
        }
        self.file(id);
        true
    }
}
