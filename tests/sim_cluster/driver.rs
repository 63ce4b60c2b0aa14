//! Drives one production core through its turns, which `chronos::core::turn` orders.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chronos::base::destinations::{DestinationTable, Rule};
use chronos::base::ids::{HostId, PeerIndex, ShardIndex, TimerId};
use chronos::base::time::{Now, Tick};
use chronos::cluster::view::View;
use chronos::core::Core;
use chronos::core::gate::Gate;
use chronos::core::peers::actions::{InboundId, PeerAction};
use chronos::core::peers::hello::{Connected, Hello, HelloRefusal};
use chronos::core::turn::{Driver, turn};
use chronos::shard::effects::{
    Attempt, CallbackOutcome, Condition, Conditional, Dialect, Reply, Request, Requester,
    Target as TimerTarget, Ticket,
};
use chronos::timer::definition::{Definition, encode_with_attributes, with_owner};
use chronos::wire::timer_json::Tag;

use super::model::{Checked, broken};
use super::network::{ConnectionId, CoreAt, End, Packet};
use super::policies::{attributes_of, headers_of};
use super::requests::Ask;
use super::sites::{FROM_SITE, FromSite};
use super::story_plan::Doom;
use super::world::{Event, World};
use kit::simulator::disk::WriteId;
use kit::simulator::store::Made;
use kit::simulator::story::Violation;

/// An event that waits for a core.
pub enum Input {
    Ask(Ask),
    /// A connection that another node dialled was accepted here.
    Dialled(ConnectionId, Hello),
    Connected(ConnectionId, Hello),
    Bytes(ConnectionId, End, Vec<u8>),
    Closed(ConnectionId, End),
    /// A dial was refused, because to the peer the dialler is a stranger or a second process.
    Disowned(ConnectionId),
    Ended(usize),
    View(Arc<View>),
    /// Rules of destinations, and the same by host.
    Rules(Arc<DestinationTable>, Vec<Option<Rule>>),
    Resynchronise,
    StopPopping,
    /// The disk has what was written.
    Written,
    /// What became of a segment.
    Made(Made),
}

/// A callback under way.
#[derive(Clone, Copy)]
pub struct Running {
    pub ticket: Ticket,
    pub name: usize,
    pub outcome: CallbackOutcome,
    /// The index of the callback among the callbacks of its pop.
    pub at: usize,
}

/// One core, and what the kernel would hold for that core.
pub struct CoreDriver {
    pub place: CoreAt,
    pub core: Core,
    pub now: Now,
    /// Which addresses may use the internal API.
    pub gate: Gate,
    /// Connections that other sites dialled.
    pub from_sites: BTreeMap<ConnectionId, FromSite>,
    pub inputs: VecDeque<Input>,
    /// When the next step is scheduled. Only the step with the present generation counts.
    pub step_ns: u64,
    pub generation: u64,
    /// The core gets no turn before this time.
    pub rests_until_ns: u64,
    /// The count of timers moved to other nodes, as of the last look.
    pub moved: u64,
    /// A write under way.
    pub writing: Option<WriteId>,
    dialled: BTreeMap<PeerIndex, ConnectionId>,
    inbounds: BTreeMap<(u32, u32), ConnectionId>,
    /// Callbacks that have ended, and that the core has not been told of.
    ended: VecDeque<usize>,
    replies: Vec<Reply>,
}

impl CoreDriver {
    pub fn new(place: CoreAt, core: Core, now: Now) -> Self {
        Self {
            place,
            core,
            gate: Gate::new(false),
            from_sites: BTreeMap::new(),
            inputs: VecDeque::new(),
            step_ns: u64::MAX,
            generation: 0,
            rests_until_ns: 0,
            moved: 0,
            writing: None,
            now,
            dialled: BTreeMap::new(),
            inbounds: BTreeMap::new(),
            ended: VecDeque::new(),
            replies: Vec::new(),
        }
    }

    /// Runs a whole turn.
    pub fn turn(&mut self, world: &mut World) -> Checked {
        let now = world.nodes[self.place.node].clocks.now(world.now_ns);
        self.now = now;
        let mut around = Turn { driver: self, world, broken: None };
        turn(&mut around, now);
        if let Some(violation) = around.broken {
            return Err(violation);
        }
        self.sleep(world);
        Ok(())
    }

    fn sleep(&mut self, world: &mut World) {
        let may_sleep = self.core.mesh().may_sleep();
        let busy_ns = world.interleaving.range(500, 50_000);
        let until_ns = match self.core.next_wake().map(Tick::begins) {
            _ if !may_sleep || !self.inputs.is_empty() => world.now_ns + busy_ns,
            None => u64::MAX,
            Some(until) => {
                let late_ns = world.interleaving.range(0, 60_000);
                let due_ns = world.nodes[self.place.node].clocks.mono.when(until.0);
                due_ns.max(world.now_ns + busy_ns).saturating_add(late_ns)
            }
        };
        self.step_ns = u64::MAX;
        if until_ns < u64::MAX {
            self.schedule(world, until_ns);
        }
    }

    /// Makes the next step come at `at_ns` at the latest.
    pub fn schedule(&mut self, world: &mut World, at_ns: u64) {
        if at_ns < self.step_ns {
            self.step_ns = at_ns;
            self.generation += 1;
            let (place, generation) = (self.place, self.generation);
            world.schedule(at_ns, Event::Step { place, generation });
        }
    }

    fn take(&mut self, world: &mut World, input: Input) {
        match input {
            Input::Ask(ask) => self.ask(&ask),
            Input::Dialled(id, hello) => self.dialled(world, id, &hello),
            Input::Connected(id, hello) => {
                let peer = world.network.connections[id].peer;
                if self.dialled.get(&peer) == Some(&id) {
                    let connected = match world.network.connections[id].is_to_site {
                        true => Connected { dialect: Dialect::Http, hello: None },
                        false => Connected { dialect: Dialect::Frames, hello: Some(hello) },
                    };
                    self.core.peer_connected(self.now, peer, &connected);
                }
            }
            Input::Bytes(id, end, bytes) => self.bytes(world, id, end, &bytes),
            Input::Closed(id, end) => self.closed(world, id, end),
            Input::Disowned(id) => {
                let peer = world.network.connections[id].peer;
                if self.dialled.get(&peer) == Some(&id) {
                    self.core.peer_disowns(self.now, peer);
                }
                // Nothing is left for the core to lose.
                self.closed(world, id, End::Dialler);
            }
            Input::Ended(attempt) => self.ended.push_back(attempt),
            Input::View(view) => self.core.set_view(self.now, view),
            Input::Rules(table, rules) => {
                self.core.set_flow_rules(self.now, table);
                world.took_rules(self.place, &rules);
            }
            Input::Resynchronise => self.core.resynchronise(self.now),
            Input::StopPopping => {
                self.core.shard_mut().stop_popping();
                self.core.journal().into_iter().for_each(|journal| journal.stop());
            }
            Input::Written | Input::Made(_) => self.disk_tells(&input),
        }
    }

    fn ask(&mut self, ask: &Ask) {
        let (connection, generation, request) = (1, 2, ask.name as u32);
        let from =
            Requester { shard: ShardIndex(self.place.core), connection, generation, request };
        let mut content = Vec::new();
        let target = TimerTarget {
            id: TimerId(ask.id.unwrap_or(0)),
            factor: ask.factor,
            filter: ask.filter,
        };
        if let Some(action) = ask.action {
            let (condition, definition, action) = (Condition::Present, None, Some(action));
            let asked = Conditional { target, condition, definition, action };
            return self.core.request(self.now, from, Request::Conditional(asked));
        }
        let Some(wish) = ask.wish else {
            let request = if ask.is_read { Request::Read(target) } else { Request::Delete(target) };
            return self.core.request(self.now, from, request);
        };
        let tags = tags_of(ask.write as u64);
        let once = ask.has_key().then_some(ask.write as u64 + 1);
        let path = format!("/{}", ask.write);
        let attributes = attributes_of(ask.write, wish.policy, once);
        encode_with_attributes(&path, tags, (&attributes, b"opaque"), &mut content);
        let content = owned(content, ask.write as u64);
        let authority = format!("host-{}:80", wish.host);
        let definition = Definition {
            interval_ms: wish.interval_ms,
            repeat_for_ms: wish.repeat_for_ms,
            factor: Some(wish.factor),
            authority: &authority,
            content: &content,
        };
        let request = match (ask.id, ask.condition) {
            (None, _) => Request::Create(definition),
            (Some(_), Some(condition)) => {
                let definition = Some(definition);
                let action = None;
                Request::Conditional(Conditional { target, condition, definition, action })
            }
            (Some(_), None) => Request::Update(target, definition),
        };
        self.core.request(self.now, from, request);
    }

    fn dialled(&mut self, world: &mut World, id: ConnectionId, hello: &Hello) {
        if !world.network.connections[id].is_open[End::Acceptor as usize] {
            return;
        }
        if world.network.connections[id].is_to_site {
            self.from_sites.insert(id, FromSite::default());
            return world.send(id, End::Dialler, Packet::Accepted(self.core.hello()));
        }
        match self.core.inbound_opened(self.now, hello) {
            Ok(inbound) => {
                self.inbounds.insert((inbound.place, inbound.generation), id);
                world.network.connections[id].inbound = Some(inbound);
                let hello = self.core.hello();
                world.send(id, End::Dialler, Packet::Accepted(hello));
            }
            Err(refusal) => {
                world.trace.add(world.now_ns, "refused", [self.place.node as u64, id as u64, 0, 0]);
                world.network.connections[id].is_open[End::Acceptor as usize] = false;
                let packet = match refusal {
                    HelloRefusal::Twins(_) | HelloRefusal::Stranger(..) => Packet::Disowned,
                    _ => Packet::Refused,
                };
                world.send(id, End::Dialler, packet);
            }
        }
    }

    fn bytes(&mut self, world: &mut World, id: ConnectionId, end: End, bytes: &[u8]) {
        let connection = &world.network.connections[id];
        if !connection.is_open[end as usize] {
            return;
        }
        let (peer, inbound) = (connection.peer, connection.inbound);
        if connection.is_to_site && end == End::Acceptor {
            return self.site_bytes(world, id, bytes);
        }
        let is_broken = match (end, inbound) {
            (End::Dialler, _) => self.core.peer_received(self.now, peer, bytes).is_err(),
            (End::Acceptor, Some(inbound)) => {
                self.core.inbound_received(self.now, inbound, bytes).is_err()
            }
            (End::Acceptor, None) => false,
        };
        if is_broken {
            world.trace.add(world.now_ns, "broken", [self.place.node as u64, id as u64, 0, 0]);
            world.close(id, end);
            self.forget(id, end, peer, inbound);
            match (end, inbound) {
                (End::Dialler, _) => self.core.peer_lost(self.now, peer),
                (End::Acceptor, Some(inbound)) => self.core.inbound_closed(inbound),
                (End::Acceptor, None) => {}
            }
        }
    }

    fn closed(&mut self, world: &mut World, id: ConnectionId, end: End) {
        let connection = &mut world.network.connections[id];
        if !std::mem::take(&mut connection.is_open[end as usize]) {
            return;
        }
        let (peer, inbound) = (connection.peer, connection.inbound);
        self.forget(id, end, peer, inbound);
        match (end, inbound) {
            (End::Dialler, _) => self.core.peer_lost(self.now, peer),
            (End::Acceptor, Some(inbound)) => self.core.inbound_closed(inbound),
            (End::Acceptor, None) => {}
        }
    }

    fn forget(&mut self, id: ConnectionId, end: End, peer: PeerIndex, inbound: Option<InboundId>) {
        match (end, inbound) {
            (End::Dialler, _) => {
                if self.dialled.get(&peer) == Some(&id) {
                    self.dialled.remove(&peer);
                }
            }
            (End::Acceptor, Some(inbound)) => {
                self.inbounds.remove(&(inbound.place, inbound.generation));
            }
            (End::Acceptor, None) => drop(self.from_sites.remove(&id)),
        }
    }

    fn act(&mut self, world: &mut World, action: PeerAction) {
        let mut bytes = Vec::new();
        match action {
            PeerAction::Dial(peer) => {
                let hello = self.core.hello();
                let address = self.core.address_of(peer).to_owned();
                let id = world.dial(self.place, (peer, &address), hello);
                let former = self.dialled.insert(peer, id);
                assert!(former.is_none(), "a peer is dialled once at a time");
            }
            PeerAction::Close(peer) => {
                if let Some(id) = self.dialled.remove(&peer) {
                    world.close(id, End::Dialler);
                }
            }
            PeerAction::Send(peer) => {
                self.core.peer_output(self.now, peer, &mut bytes);
                if let Some(&id) = self.dialled.get(&peer)
                    && !bytes.is_empty()
                {
                    world.send(id, End::Acceptor, Packet::Bytes(bytes));
                }
            }
            PeerAction::SendInbound(inbound) => {
                self.core.inbound_output(self.now, inbound, &mut bytes);
                if let Some(&id) = self.inbounds.get(&(inbound.place, inbound.generation))
                    && !bytes.is_empty()
                {
                    world.send(id, End::Dialler, Packet::Bytes(bytes));
                }
            }
            PeerAction::CloseInbound(inbound) => {
                if let Some(id) = self.inbounds.remove(&(inbound.place, inbound.generation)) {
                    world.close(id, End::Acceptor);
                }
            }
        }
    }
}

/// A core in its turn, and the world around it.
struct Turn<'a> {
    driver: &'a mut CoreDriver,
    world: &'a mut World,
    /// The first violation. Nothing is checked after it.
    broken: Option<Violation>,
}

impl Turn<'_> {
    fn note(&mut self, checked: Checked) {
        if let Err(violation) = checked {
            self.broken.get_or_insert(violation);
        }
    }

    /// Begins a callback: the model checks it, and its host decides how it ends.
    fn begin(&mut self, attempt: &Attempt) -> Checked {
        let content = self.driver.core.shard().content(attempt);
        let name = std::str::from_utf8(content.target)
            .ok()
            .and_then(|path| path.strip_prefix('/'))
            .and_then(|name| name.parse::<usize>().ok());
        let attributes = content.attributes();
        let is_same =
            |name: &usize| attributes.headers == headers_of(*name, attributes.retry.as_ref());
        let Some(name) = name.filter(is_same).filter(|_| content.opaque == b"opaque") else {
            return broken("T7", format!("{:?} carries what nobody asked for", attempt.ticket));
        };
        self.world.attempt(self.driver.place, attempt.ticket, name)
    }
}

impl Driver for Turn<'_> {
    fn core(&mut self) -> &mut Core {
        &mut self.driver.core
    }

    fn arrivals(&mut self, _now: Now) {
        for _ in 0..self.driver.inputs.len() {
            let input = self.driver.inputs.pop_front().expect("counted before");
            self.driver.take(self.world, input);
        }
    }

    fn next_ended(&mut self) -> Option<(Ticket, CallbackOutcome)> {
        let attempt = self.driver.ended.pop_front()?;
        let (world, node) = (&mut *self.world, self.driver.place.node);
        let Running { ticket, name, outcome, at, .. } = world.running[attempt];
        let numbers = [name as u64, ticket.sequence, outcome.number(), node as u64];
        world.trace.add(world.now_ns, "told", numbers);
        world.model.told(name, ticket.sequence, at, world.now_ns, outcome);
        match outcome {
            CallbackOutcome::Delivered => world.doom(node, Doom::Delivered),
            CallbackOutcome::Gone => world.wants_no_more(ticket.id.0),
            _ => {}
        }
        Some((ticket, outcome))
    }

    fn present(&self, began: Now) -> Now {
        // No time passes in a turn.
        began
    }

    fn call(&mut self, _now: Now, attempt: &Attempt) {
        if self.broken.is_none() {
            let begun = self.begin(attempt);
            self.note(begun);
        }
    }

    fn release(&mut self, _host: HostId) {
        // Hosts have no connections here.
    }

    fn expire(&mut self, _now: Now) {
        // The world ends callbacks by itself.
    }

    fn act(&mut self, _now: Now, action: PeerAction) {
        self.driver.act(self.world, action);
    }

    fn store(&mut self, _now: Now) {
        let place = self.driver.place;
        let writing = self.world.store(place, &mut self.driver.core);
        self.driver.writing = writing.or(self.driver.writing);
    }

    fn answer(&mut self, _now: Now) {
        let mut replies = std::mem::take(&mut self.driver.replies);
        self.driver.core.replies(&mut replies);
        for reply in replies.drain(..) {
            match reply.to.connection {
                FROM_SITE => self.driver.site_reply(self.world, &reply),
                _ => {
                    let answered = self.world.answered(self.driver.place, &reply);
                    self.note(answered);
                }
            }
        }
        self.driver.replies = replies;
    }

    fn wake(&mut self, sibling: ShardIndex) {
        self.world.wake(CoreAt { core: sibling.0, ..self.driver.place });
    }
}

/// Returns the content with an owner, for some timers.
fn owned(content: Vec<u8>, number: u64) -> Vec<u8> {
    if !number.is_multiple_of(3) {
        return content;
    }
    let mut owned = Vec::new();
    with_owner(&content, ["a", "b"][(number % 2) as usize], &mut owned);
    owned
}

/// Returns the statistics tags of a request's timer: more names than a shard has places for, and
/// for some timers none.
fn tags_of(number: u64) -> &'static [Tag<'static>] {
    const TAGS: [Tag<'static>; 5] = [
        Tag { kind: "CALL", count: 1 },
        Tag { kind: "REG", count: 2 },
        Tag { kind: "a", count: 3 },
        Tag { kind: "b", count: 4 },
        Tag { kind: "CALL", count: 5 },
    ];
    let first = (number % 6) as usize;
    &TAGS[first.min(5)..(first + 2).min(5)]
}
