//! Requests of clients: how they reach a core, and which answers they may get.

use chronos::base::ids::{ShardCount, ShardIndex, TimerId};
use chronos::base::time::Now;
use chronos::core::Core;
use chronos::shard::effects::{self, Answer, Refusal, Reply, Request, Requester, TimerView};
use chronos::timer::definition::{Content, Definition, encode_with_attributes, with_owner};
use chronos::wire::attributes::Attributes;

use super::driver::Input;
use super::held;
use super::model::{Checked, Moment, broken};
use super::story::{Kind, Operation, Target, Wish};
use super::world::World;

/// A request, and what became of it.
pub struct Asked {
    pub operation: Operation,
    pub id: Option<u64>,
    pub asked: Moment,
    pub asked_ns: u64,
    pub life: u64,
    pub is_answered: bool,
}

/// Returns the owner of a write's timer. Some have none.
fn owner(name: usize) -> Option<&'static str> {
    name.is_multiple_of(3).then_some(["a", "b"][name % 2])
}

/// Returns the encoded attributes of a write's timer: headers that others have as well, or none.
fn attributes(name: usize) -> Vec<u8> {
    let headers = match name % 4 {
        0 => "X-Tenant: the-first-of-the-tenants\r\n",
        1 => "X-Tenant: the-second-one\r\nAuthorization: of-the-second-one\r\n",
        _ => "",
    };
    let mut encoded = Vec::new();
    Attributes { headers, ..Attributes::default() }.write(&mut encoded);
    encoded
}

/// Returns the content of a callback. It is made from the name of the write, so that any mix-up
/// shows.
fn opaque(name: usize, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + ((name as u32).wrapping_mul(31) + at) as u8 % 26).collect()
}

/// Returns the write that a path names.
pub fn name_of(target: &[u8]) -> Option<usize> {
    std::str::from_utf8(target).ok()?.strip_prefix('/')?.parse().ok()
}

fn authority(host: u32) -> String {
    format!("host{host}:80")
}

fn wish_of(kind: Kind) -> Option<Wish> {
    match kind {
        Kind::Create(wish) | Kind::Update(_, wish) => Some(wish),
        Kind::Delete(_) | Kind::Read(_) | Kind::Hold(..) => None,
    }
}

impl World {
    /// Sends a client's request. A node that is down gets none.
    pub fn operate(&mut self, operation: Operation) {
        if !self.is_up {
            return;
        }
        let id = match operation.kind {
            Kind::Create(_) => None,
            Kind::Update(target, _)
            | Kind::Delete(target)
            | Kind::Read(target)
            | Kind::Hold(target, _) => {
                let id = match target {
                    Target::Chosen(id) => Some(id),
                    Target::CreatedBy(name) => self.asked.get(&name).and_then(|asked| asked.id),
                };
                if id.is_none() {
                    return;
                }
                id
            }
        };
        if id.is_some_and(|id| self.holds.is_busy(id)) {
            return;
        }
        let name = operation.name;
        let core = operation.core % self.cores.len() as u16;
        let (asked, asked_ns) = (self.model.next_moment(), self.now_ns);
        self.trace.add(self.now_ns, "ask", [u64::from(core), name as u64, id.unwrap_or(0), 0]);
        match (operation.kind, id) {
            (Kind::Read(_), _) => {}
            (Kind::Hold(_, doing), Some(id)) => self.holds.asked(id, name, doing, asked_ns),
            (kind, id) => self.model.asked(id, name, wish_of(kind), (asked, asked_ns)),
        }
        self.unanswered.insert((asked_ns, name));
        let life = self.life;
        let entry = Asked { operation, id, asked, asked_ns, life, is_answered: false };
        self.asked.insert(name, entry);
        self.deliver(core, Input::Request(name));
    }

    /// Gives a request to its core.
    pub fn hand_over(&mut self, core: &mut Core, own: u16, now: Now, name: usize) {
        let asked = &self.asked[&name];
        let id = TimerId(asked.id.unwrap_or(0));
        let request = name as u32;
        let from = Requester { shard: ShardIndex(own), connection: 1, generation: 2, request };
        let target = effects::Target { id, factor: None, filter: None };
        let mut content = Vec::new();
        match asked.operation.kind {
            Kind::Create(wish) | Kind::Update(_, wish) => {
                let host = authority(wish.host);
                let opaque = opaque(name, wish.opaque_bytes);
                let (path, attributes) = (format!("/{name}"), attributes(name));
                encode_with_attributes(&path, &[], (&attributes, &opaque), &mut content);
                if let Some(owner) = owner(name) {
                    let plain = std::mem::take(&mut content);
                    with_owner(&plain, owner, &mut content);
                }
                let Wish { interval_ms, repeat_for_ms, .. } = wish;
                let (factor, authority, content) = (None, &host[..], &content[..]);
                let definition =
                    Definition { interval_ms, repeat_for_ms, factor, authority, content };
                let request = match asked.operation.kind {
                    Kind::Create(_) => Request::Create(definition),
                    _ => Request::Update(target, definition),
                };
                core.request(now, from, request);
            }
            Kind::Delete(_) => core.request(now, from, Request::Delete(target)),
            Kind::Read(_) => core.request(now, from, Request::Read(target)),
            Kind::Hold(_, doing) => held::hand_over(core, (now, from), target, (name, doing)),
        }
    }

    /// Checks J4 and J5: the content of a callback is what was asked for. Returns its host.
    pub fn same_content(
        &self,
        name: usize,
        content: &Content<'_>,
        host: &str,
    ) -> Result<u32, kit::simulator::story::Violation> {
        let wish = wish_of(self.asked[&name].operation.kind);
        let is_same = wish.is_some_and(|wish| {
            content.opaque == opaque(name, wish.opaque_bytes)
                && *content.encoded_attributes() == attributes(name)
                && content.owner() == owner(name)
                && host == authority(wish.host)
        });
        match wish.filter(|_| is_same) {
            Some(wish) => Ok(wish.host),
            None => Err(kit::simulator::story::Violation {
                invariant: "J5",
                what: format!("write {name} carries other bytes than were asked for"),
            }),
        }
    }

    /// Notes the id of a create, from its answer or from its first pop.
    pub fn created(&mut self, name: usize, id: u64) -> Checked {
        let asked = self.asked.get_mut(&name).expect("asked before");
        if !matches!(asked.operation.kind, Kind::Create(_)) {
            return Ok(());
        }
        if asked.id.is_some_and(|known| known != id) {
            return broken("R2", format!("create {name} made {:x?} and {id:x}", asked.id));
        }
        asked.id = Some(id);
        self.model.named(name, id)
    }

    /// Checks an answer that reaches its client.
    pub fn answered(&mut self, own: u16, reply: &Reply) -> Checked {
        let name = reply.to.request as usize;
        let asked = self.asked.get_mut(&name);
        let life = self.life;
        let Some(asked) = asked.filter(|asked| !asked.is_answered && asked.life == life) else {
            return broken("R2", format!("a second answer, or one to no request: {reply:?}"));
        };
        asked.is_answered = true;
        let (since, kind) = (asked.asked, asked.operation.kind);
        let (id, asked_ns) = (asked.id, asked.asked_ns);
        self.unanswered.remove(&(asked_ns, name));
        let text = match &reply.answer {
            Answer::Done { .. } => 1,
            Answer::Found(view) => 1_000 + view.sequence,
            Answer::NotFound => 2,
            Answer::Refused(refusal) => 10 + *refusal as u64,
            Answer::Internal(_) => unreachable!("no client asks for what nodes ask for"),
            Answer::Identified(_) => 3,
        };
        self.trace.add(self.now_ns, "answer", [name as u64, text, id.unwrap_or(0), own.into()]);
        let shards = ShardCount::new(self.cores.len() as u16);
        if let (Kind::Hold(..), Some(id)) = (kind, id) {
            if let Answer::Refused(refusal) = reply.answer
                && !matches!(refusal, Refusal::NoTimer | Refusal::Paused)
            {
                self.is_refused_rightly(name, asked_ns, refusal)?;
            }
            return self.holds.answered(id, &reply.answer, self.now_ns);
        }
        match (kind, &reply.answer) {
            (_, Answer::Refused(refusal)) => self.refused(name, id, asked_ns, *refusal),
            (Kind::Read(_), Answer::Found(view)) => {
                let found = self.shown(view)?;
                self.model.read(id.expect("named"), since, Some(found))
            }
            (Kind::Read(_), Answer::NotFound) => self.model.read(id.expect("named"), since, None),
            (
                Kind::Create(_) | Kind::Update(..) | Kind::Delete(_),
                Answer::Done { id: done, .. },
            ) => {
                if id.is_some_and(|id| id != done.0) {
                    return broken("R2", format!("{kind:?} of {id:x?} answered {reply:?}"));
                }
                self.created(name, done.0)?;
                let owner = shards.owner(*done).0;
                self.model.answered(done.0, name, owner, self.now_ns, true);
                Ok(())
            }
            (kind, answer) => broken("R2", format!("{kind:?} answered {answer:?}")),
        }
    }

    fn shown(&self, view: &TimerView) -> Result<usize, kit::simulator::story::Violation> {
        let name = view.uri.find("80/").and_then(|at| name_of(&view.uri.as_bytes()[at + 2..]));
        let name = name.filter(|name| self.asked.contains_key(name));
        let is_same = name.is_some_and(|name| {
            let wish = wish_of(self.asked[&name].operation.kind);
            let has_bytes = |wish: Wish| *view.opaque == opaque(name, wish.opaque_bytes);
            wish.is_some_and(has_bytes) && *view.attributes == attributes(name)
        });
        name.filter(|_| is_same).ok_or_else(|| kit::simulator::story::Violation {
            invariant: "J5",
            what: format!("a read shows {view:?}"),
        })
    }

    fn refused(
        &mut self,
        name: usize,
        id: Option<u64>,
        asked_ns: u64,
        refusal: Refusal,
    ) -> Checked {
        self.is_refused_rightly(name, asked_ns, refusal)?;
        match (refusal, id) {
            (Refusal::CoreBusy, id) => self.model.refused(id, name),
            // It was refused at once, or the disk has not told whether it has it.
            (_, Some(id)) => self.model.answered(id, name, 0, self.now_ns, false),
            (_, None) => {}
        }
        Ok(())
    }

    /// Checks R1 for a refusal.
    fn is_refused_rightly(&mut self, name: usize, asked_ns: u64, refusal: Refusal) -> Checked {
        *self.refusals.entry(format!("{refusal:?}")).or_default() += 1;
        match refusal {
            Refusal::JournalFull | Refusal::JournalStalled
                if self.troubled_ns + 3_000_000_000 < asked_ns =>
            {
                broken("R1", format!("{refusal:?} though the disk is well"))
            }
            Refusal::JournalFull | Refusal::JournalStalled | Refusal::CoreBusy => Ok(()),
            other => broken("R1", format!("request {name} refused: {other:?}")),
        }
    }
}
