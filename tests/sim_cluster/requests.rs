//! Requests of clients: how they reach a core, how they are tried again, and which answers they may
//! get.

use chronos::shard::effects::{Answer, Condition, Refusal, Reply};
use chronos::wire::timer_action::TimerAction;

use super::conditions::NothingRead;
use super::driver::Input;
use super::model::{Checked, Closed, Write, broken};
use super::network::CoreAt;
use super::story_plan::{Doom, Kind, Operation, Target, Wish};
use super::world::{Event, World};

/// Most tries of one operation. Each try has a name of its own.
pub const TRIES_MAX: usize = 4;

/// One try of a request.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub name: usize,
    /// The write that is asked for. Requests with one idempotency key ask for one write.
    pub write: usize,
    pub id: Option<u64>,
    pub factor: Option<u8>,
    pub filter: Option<u64>,
    /// The timer of a create or an update.
    pub wish: Option<Wish>,
    pub is_read: bool,
    /// What must be so for the write to be made.
    pub condition: Option<Condition>,
    /// What is done with the timer.
    pub action: Option<TimerAction>,
}

impl Ask {
    /// Whether the request has an idempotency key.
    pub fn has_key(&self) -> bool {
        self.condition == Some(Condition::Once)
    }
}

/// A try, and what became of it.
pub struct Asked {
    pub ask: Ask,
    pub operation: Operation,
    pub tried: usize,
    pub node: usize,
    pub sent_ns: u64,
    /// The process that the request went to.
    pub life: Option<u64>,
    pub is_answered: bool,
    /// Whether the client has the answer, or has given up.
    pub is_over: bool,
}

/// Longest wait for the answer, from when the node has the request.
const ANSWER_NS: u64 = 10_000_000_000;

/// How long after its acknowledgement a write is read through every node.
const PROBES_MS: [u64; 4] = [400, 1_900, 5_700, 14_000];
/// How long such a read is on its way, in nanoseconds.
const PROBE_NS: u64 = 100_000;
/// The names of such reads begin here, far beyond those of the story.
const PROBE_NAMES: usize = 10_000_000;

impl World {
    /// Reads a timer through every node that takes requests. The client knows the answer to its
    /// write.
    pub fn probe(&mut self, name: usize) {
        let Some(id) = self.model.writes[&name].id else { return };
        let factor = self.asked[&name].ask.factor.or(self.model.factor_of(id));
        for node in 0..self.nodes.len() {
            if !self.nodes[node].takes_requests() || self.member_of(node) != node {
                continue;
            }
            self.probes += 1;
            let name = PROBE_NAMES + self.probes;
            let ask = Ask {
                name,
                write: name,
                id: Some(id),
                factor,
                filter: None,
                wish: None,
                is_read: true,
                condition: None,
                action: None,
            };
            let (at_ns, patience_ms) = (self.now_ns, 0);
            let kind = Kind::Read(Target::Chosen(id));
            let operation = Operation { name, at_ns, node, kind, patience_ms, loses_reply: false };
            let asked = Asked {
                ask,
                operation,
                tried: TRIES_MAX,
                node,
                sent_ns: self.now_ns,
                life: None,
                is_answered: false,
                is_over: true,
            };
            self.asked.insert(name, asked);
            self.schedule(self.now_ns + PROBE_NS, Event::Request(name));
        }
    }

    /// Sends an operation of a client for the nth time.
    pub fn operate(&mut self, operation: Operation, tried: usize, at_node: usize) {
        let (target, wish, is_read) = match operation.kind {
            Kind::Create(wish) => (None, Some(wish), false),
            Kind::Update(target, wish)
            | Kind::Claim(target, wish)
            | Kind::Match(target, wish)
            | Kind::Once(target, wish) => (Some(target), Some(wish), false),
            Kind::Delete(target) | Kind::Act(target, _) => (Some(target), None, false),
            Kind::Read(target) => (Some(target), None, true),
        };
        let mut known = (None, None, None);
        match target {
            None => {}
            // Each id that clients choose has one factor, because the factor that is held would win
            // over others. The id of a dead letter is not chosen, and has the factor that is held.
            Some(Target::Chosen(id)) => {
                let held = || self.holders(id).first().map(|(_, held)| held.factor);
                let chosen = || 1 + (id % u64::from(self.options.factor_max)) as u8;
                let factor = self.model.factor_of(id).or_else(held).unwrap_or_else(chosen);
                known = (Some(id), Some(factor), None);
            }
            Some(Target::CreatedBy(name)) => match self.created.get(&name) {
                Some(&(id, factor, filter)) => known = (Some(id), Some(factor), Some(filter)),
                None => return,
            },
        }
        let name = operation.name * TRIES_MAX + tried;
        // Some clients' addresses lead to the second process, too.
        let at_node = if name.is_multiple_of(3) { self.twin_of(at_node) } else { at_node };
        let (id, factor, filter) = known;
        // A PUT cannot change the factor of its id (docs/compat/timer-service.md §1.4).
        let wish = wish.map(|wish| Wish { factor: factor.unwrap_or(wish.factor), ..wish });
        let condition = match self.condition_of(operation.kind, id) {
            Ok(condition) => condition,
            Err(NothingRead) => return,
        };
        let action = match operation.kind {
            Kind::Act(_, action) => Some(action),
            _ => None,
        };
        let write = self.write_of(name, id, condition);
        let ask = Ask { name, write, id, factor, filter, wish, is_read, condition, action };
        self.trace.add(
            self.now_ns,
            "ask",
            [name as u64, id.unwrap_or(0), at_node as u64, tried as u64],
        );
        if let (Some(action), Some(id)) = (action, id) {
            self.model.acts(name, id, action, self.now_ns);
        } else if !is_read && write == name {
            let write = Write::new(name, wish, self.now_ns, self.members_min());
            self.model.asked(id, write);
        }
        self.asked.insert(
            name,
            Asked {
                ask,
                operation,
                tried,
                node: at_node,
                sent_ns: self.now_ns,
                life: None,
                is_answered: false,
                is_over: false,
            },
        );
        let latency_ns = self.network.latency_ns();
        self.schedule(self.now_ns + latency_ns, Event::Request(name));
        self.schedule(self.now_ns + operation.patience_ms * 1_000_000, Event::Impatient(name));
    }

    /// Gives a request to its node.
    pub fn request_arrives(&mut self, name: usize) {
        let (node, ask) = (self.asked[&name].node, self.asked[&name].ask);
        if !self.nodes[node].takes_requests() {
            // No process listens there, so the request has had no effect.
            self.had_no_effect(ask);
            self.model.acted(ask.name, self.now_ns, Closed::NoEffect);
            return self.try_next(name);
        }
        let shards = self.options.shards[node];
        let core = match name {
            PROBE_NAMES.. => (name % usize::from(shards)) as u16,
            _ => self.interleaving.range(0, u64::from(shards) - 1) as u16,
        };
        let life = self.nodes[node].life;
        self.asked.get_mut(&name).expect("it was sent").life = Some(life);
        self.unanswered.insert((self.now_ns, name));
        self.deliver(CoreAt { node, life, core }, Input::Ask(ask));
    }

    /// Tries again at the next node: the client has waited long enough, or learns that no answer
    /// will come.
    pub fn try_next(&mut self, name: usize) {
        let asked = self.asked.get_mut(&name).expect("it was sent");
        if asked.is_over {
            return;
        }
        asked.is_over = true;
        let (operation, tried, node) = (asked.operation, asked.tried + 1, asked.node);
        if tried < TRIES_MAX {
            let next = (node + 1) % self.options.all_nodes();
            self.operate(operation, tried, next);
        }
    }

    /// Takes the answer of a core.
    pub fn answered(&mut self, place: CoreAt, reply: &Reply) -> Checked {
        let name = reply.to.request as usize;
        let Some(asked) = self.asked.get_mut(&name) else {
            return broken("R2", format!("an answer to {name}, which was not asked"));
        };
        if std::mem::replace(&mut asked.is_answered, true) {
            return broken("R2", format!("a second answer to {name}"));
        }
        if (asked.node, asked.life) != (place.node, Some(place.life)) {
            return broken("R2", format!("{place:?} answers {name}"));
        }
        let (ask, operation, sent_ns) = (asked.ask, asked.operation, asked.sent_ns);
        let is_lost = operation.loses_reply && asked.tried == 0;
        self.unanswered.retain(|(_, unanswered)| *unanswered != name);
        let numbers = [name as u64, place.node as u64, answer_number(&reply.answer), 0];
        self.trace.add(self.now_ns, "answer", numbers);
        match &reply.answer {
            answer if ask.action.is_some() => {
                if let Answer::Refused(refusal) = answer {
                    *self.refusals.entry(format!("{refusal:?}")).or_insert(0) += 1;
                }
                self.action_answered(name, answer)?;
            }
            Answer::Done { id, factor, filter } => {
                self.is_made(ask, (id.0, *factor, *filter), place)?;
                if !is_lost && ask.id.is_none() {
                    self.created.insert(operation.name, (id.0, *factor, *filter));
                }
            }
            Answer::Identified(made) => {
                self.model.keyed(ask.write, made.version, (sent_ns, self.now_ns))?;
                self.is_made(ask, (made.id.0, made.factor, made.filter), place)?;
            }
            Answer::Found(view) => {
                self.model.versions.read(view.id.0, view.version);
                self.model.read(self.now_ns, sent_ns, ask.id, Some(&view.uri))?
            }
            Answer::NotFound => self.model.read(self.now_ns, sent_ns, ask.id, None)?,
            Answer::Internal(_) => unreachable!("its number was asked for above"),
            Answer::Refused(refusal) => self.is_refused(ask, *refusal)?,
        }
        if !is_lost {
            let is_refused = matches!(reply.answer, Answer::Refused(_));
            let asked = self.asked.get_mut(&name).expect("found above");
            if is_refused && !asked.is_over {
                // After such a 503 the client goes on waiting.
                return Ok(());
            }
            asked.is_over = true;
        }
        Ok(())
    }

    /// Takes an answer that says that a write is made.
    fn is_made(&mut self, ask: Ask, made: (u64, u8, u64), place: CoreAt) -> Checked {
        let (name, (id, ..)) = (ask.write, made);
        if ask.id.is_some_and(|asked| asked != id) || ask.is_read {
            return broken("R2", format!("{name} asked for {ask:?}, answered for {made:?}"));
        }
        self.model.named(name, id)?;
        self.model.closed(name, self.now_ns, Closed::Done);
        match ask.condition {
            Some(Condition::Absent) => self.model.claimed(name, self.now_ns)?,
            Some(Condition::Version(version)) => self.model.matched(name, version, self.now_ns)?,
            _ => {}
        }
        self.schedule(self.now_ns, Event::Acknowledged(name));
        for after_ms in PROBES_MS {
            self.schedule(self.now_ns + after_ms * 1_000_000, Event::Probe(name));
        }
        self.schedule_pop(name, 1);
        self.doom(place.node, Doom::Answer);
        Ok(())
    }

    /// Takes an answer that says why a write is not made.
    fn is_refused(&mut self, ask: Ask, refusal: Refusal) -> Checked {
        *self.refusals.entry(format!("{refusal:?}")).or_insert(0) += 1;
        match refusal {
            Refusal::Unmet if ask.condition == Some(Condition::Absent) => {
                self.model.unclaimed(ask.name)?;
            }
            Refusal::OtherBody => {
                return broken("N4", format!("{}: another body under its key", ask.name));
            }
            _ => {}
        }
        if !leaves_open(refusal) {
            self.had_no_effect(ask);
        }
        Ok(())
    }

    /// Checks R2: no client waits for ever, unless the process that it waits for is dead or frozen.
    pub fn answers_in_time(&mut self) -> Checked {
        let Some(&(asked_ns, name)) = self.unanswered.first() else { return Ok(()) };
        if self.now_ns <= asked_ns + ANSWER_NS {
            return Ok(());
        }
        let asked = &self.asked[&name];
        let node = &self.nodes[asked.node];
        if Some(node.life) != asked.life || !node.is_up() {
            self.unanswered.pop_first();
            return Ok(());
        }
        // A core whose turns are further apart than the time to suspect a peer hears everything
        // that came meanwhile before it suspects a peer. So it suspects none as long as that goes
        // on.
        let suspect_ns = self.options.cluster.suspect_after_ms * 1_000_000;
        let starved = node.starved.filter(|starved| starved.pause_ns >= suspect_ns);
        let away_until_ns = starved.map_or(0, |starved| starved.until_ns).max(node.frozen_until_ns);
        if away_until_ns + ANSWER_NS > self.now_ns {
            return Ok(());
        }
        broken("R2", format!("request {name} is not answered by node {}", asked.node))
    }
}

/// Whether a write that is refused may be in force all the same: some replicas may have it.
pub fn leaves_open(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NoReplica
            | Refusal::NoRoom
            | Refusal::NotTaken
            | Refusal::Unanswered
            | Refusal::Contended
            | Refusal::JournalFull
            | Refusal::JournalStalled
    )
}

fn answer_number(answer: &Answer) -> u64 {
    match answer {
        Answer::Done { .. } => 0,
        Answer::Found(_) => 1,
        Answer::NotFound => 2,
        Answer::Refused(_) => 3,
        Answer::Internal(_) => unreachable!("no client asks for what nodes ask for"),
        Answer::Identified(_) => 4,
    }
}
