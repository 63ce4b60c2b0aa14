//! Connections that peers dialled, on one core. Their messages go to the shards that own the
//! timers, here or over the mesh, and the results go back.

// May panic: expectations 7, indices 4.
// Why it does not: encoded 4, cores 2, ordered 5.

use std::collections::BTreeMap;

use crate::base::ids::{PeerIndex, PeerSet, ShardCount, ShardIndex, TimerId};
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::{MonoNs, Now};
use crate::cluster::link::Inbound;
use crate::cluster::view::View;
use crate::shard::effects::{Event, PeerReply, PeerTicket};
use crate::wire::peer_message::{
    PeerMessage, PeerRefusal, PeerResult, decode_message, decode_result,
};

use crate::core::mesh::{MeshPort, PeerBatch};
use crate::core::peers::actions::STALE;
use crate::core::peers::actions::{InboundId, PeerAction, PeerError};
use crate::core::peers::behind::Behind;
use crate::core::peers::counters::PeerCounters;
use crate::core::peers::hello::{Hello, HelloRefusal};
use crate::core::peers::peering::Peering;

/// Most connections on one core: all 256 cores of 16 nodes, if all of them met the same core.
const INBOUNDS_MAX: usize = 4_096;
/// Most connections of one node: 256 cores, and as many connections that are not known to be gone
/// yet.
const INBOUNDS_PER_NODE_MAX: usize = 512;
/// Most bytes of memory that peers may cause on one core: incomplete frames, messages without a
/// result, copies for peers. Each turn brings at most 4 MiB, which are answered within a few turns.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Number of batches kept for reuse.
const SPARE_MAX: usize = 64;

const MALFORMED: PeerResult<'static> = PeerResult::Refused(PeerRefusal::Malformed);

/// One connection.
struct Open {
    inbound: Inbound,
    name: String,
    /// The peer's number in the view. `None`: the peer is a stranger.
    peer: Option<PeerIndex>,
    incarnation: u64,
    heard_at: MonoNs,
    /// [`Inbound::held_bytes`] as last counted.
    held_bytes: usize,
    /// Whether the connection is in `Inbounds::talking`.
    is_talking: bool,
}

/// Messages of a sibling's peer that this shard answers.
struct Borrowed {
    from: ShardIndex,
    results: Box<PeerBatch>,
    /// The number that each message has on the sibling's connection.
    numbers: Vec<u32>,
}

/// The answering side of one core.
pub(crate) struct Inbounds {
    own: ShardIndex,
    shards: ShardCount,
    accepts_strangers: bool,
    opens: Slots<Open>,
    /// The sum over all open connections.
    held_bytes: usize,
    talking: Vec<InboundId>,
    actions: Vec<PeerAction>,
    /// For each sibling the batch that is being filled.
    filling: Vec<Option<Box<PeerBatch>>>,
    /// Batches of siblings that lack some of their results.
    borrowed: Slots<Borrowed>,
    spare: Vec<PeerBatch>,
    /// When to look for silent connections next.
    wake_at: MonoNs,
    /// Silence in ms after which the bytes of a connection are outdated.
    silence_ms_max: u64,
}

impl Inbounds {
    /// An answering side without connections.
    pub fn new(own: ShardIndex, shards: ShardCount, accepts_strangers: bool) -> Self {
        Self {
            own,
            shards,
            accepts_strangers,
            opens: Slots::new(),
            held_bytes: 0,
            talking: Vec::new(),
            actions: Vec::new(),
            filling: (0..shards.get()).map(|_| None).collect(),
            borrowed: Slots::new(),
            spare: Vec::new(),
            wake_at: MonoNs(u64::MAX),
            silence_ms_max: u64::MAX,
        }
    }

    /// Takes a peer's Upgrade. `Err` is the reason to refuse it.
    pub fn opened(
        &mut self,
        now: MonoNs,
        hello: &Hello,
        peering: &mut Peering,
    ) -> Result<InboundId, HelloRefusal> {
        let refusal = self.refusal(now, hello, peering);
        let counters = &mut peering.counters;
        match refusal {
            Some(HelloRefusal::Stranger(..)) => counters.strangers += 1,
            Some(HelloRefusal::Twins(_)) => counters.twins += 1,
            _ => {}
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let own = peering.hello();
        let (same_instance, other_view) =
            (own.instance == hello.instance, own.view_id != hello.view_id);
        peering.counters.same_instance += u64::from(same_instance);
        peering.counters.other_view += u64::from(other_view);
        let dead_after_ms = peering.limits().dead_after_ms;
        self.silence_ms_max = dead_after_ms;
        self.close_where(|open| open.name == hello.name && open.incarnation != hello.incarnation);
        let mut inbound = Inbound::new();
        inbound.set_view(peering.view().digest());
        let key = self.opens.insert(Open {
            inbound,
            name: hello.name.clone(),
            peer: peering.view().node_named(&hello.name),
            incarnation: hello.incarnation,
            heard_at: now,
            held_bytes: 0,
            is_talking: false,
        });
        self.wake_at = self.wake_at.min(now.plus_ms(dead_after_ms));
        Ok(key.into())
    }

    /// Takes note that a process answered at the address at which its node is dialled. This process
    /// is the node, whichever process dials under the same name. Connections of another process of
    /// that name are closed: otherwise this core would hear one process and tell the other.
    pub fn answered_at_its_address(&mut self, hello: &Hello) {
        self.close_where(|open| open.name == hello.name && open.incarnation != hello.incarnation);
    }

    fn refusal(&self, now: MonoNs, hello: &Hello, peering: &Peering) -> Option<HelloRefusal> {
        let (own, view) = (peering.hello(), peering.view());
        if hello.name == own.name {
            return Some(HelloRefusal::Twins(own.name.clone()));
        }
        if !self.accepts_strangers && !is_member(view, view.connected_nodes(), &hello.name) {
            return Some(HelloRefusal::Stranger(hello.name.clone(), own.name.clone()));
        }
        let suspect_ns = peering.limits().suspect_after_ms * 1_000_000;
        let mut others = self.opens.iter().map(|(_, open)| open);
        let dials_as_another = others.any(|open| {
            open.name == hello.name
                && open.incarnation != hello.incarnation
                && now.since_ns(open.heard_at) < suspect_ns
        });
        if dials_as_another || peering.answers_as_another(now, &hello.name, hello.incarnation) {
            return Some(HelloRefusal::Twins(hello.name.clone()));
        }
        let others = self.opens.iter().map(|(_, open)| open);
        let of_node = others.filter(|open| open.name == hello.name).count();
        (self.opens.len() >= INBOUNDS_MAX || of_node >= INBOUNDS_PER_NODE_MAX)
            .then_some(HelloRefusal::TooMany)
    }

    /// Takes bytes of a connection. On `Err` the connection must be closed.
    pub fn received(
        &mut self,
        id: InboundId,
        bytes: &[u8],
        behind: &mut Behind<'_>,
        mesh: &mut MeshPort,
        counters: &mut PeerCounters,
    ) -> Result<(), PeerError> {
        let now = behind.now.mono;
        let silence_ms_max = self.silence_ms_max;
        // All connections are taken out while messages are served, because serving changes other
        // parts of `self`.
        let mut opens = std::mem::take(&mut self.opens);
        let taken = match opens.get_mut(id.key()) {
            Some(open) if open.heard_at.plus_ms(silence_ms_max) <= now => Err(STALE),
            Some(open) => self.serve(id, open, bytes, behind, mesh, counters),
            None => Ok(()),
        };
        self.opens = opens;
        self.talk(id);
        self.recount(id);
        self.shed(counters);
        taken
    }

    /// Serves the messages of a connection, or hands them to the cores that own their timers.
    fn serve(
        &mut self,
        id: InboundId,
        open: &mut Open,
        bytes: &[u8],
        behind: &mut Behind<'_>,
        mesh: &mut MeshPort,
        counters: &mut PeerCounters,
    ) -> Result<(), PeerError> {
        let now = behind.now.mono;
        counters.bytes_received += bytes.len() as u64;
        open.heard_at = now;
        let (from, known) = (open.peer, open.inbound.clock_offset_ns());
        let mut early = self.take_spare();
        let taken = open.inbound.received(now, bytes, |number, sent_at, message| {
            counters.messages_received += 1;
            let apart = (now.0 as i64).wrapping_sub(sent_at.0 as i64);
            let clock_offset_ns = known.map_or(apart, |known| known.min(apart));
            let Ok(decoded) = decode_message(&mut &message[..]) else {
                counters.messages_malformed += 1;
                return early.push(number, |out| MALFORMED.encode(out));
            };
            let Some(owner) = owner_of(self.shards, &decoded) else {
                return early.push(number, |out| PeerResult::NotFound.encode(out));
            };
            if owner == self.own {
                let connection = id.place;
                let generation = id.generation;
                let ticket = PeerTicket { shard: owner, connection, generation, number };
                let message = decoded;
                behind.tell(Event::PeerMessage { ticket, from, clock_offset_ns, message });
                return;
            }
            let batch = self.filling[usize::from(owner.0)]
                .get_or_insert_with(|| Box::new(self.spare.pop().unwrap_or_default()));
            batch.inbound = id;
            batch.from = from;
            batch.clock_offset_ns = clock_offset_ns;
            batch.push(number, |out| out.extend_from_slice(message));
        });
        self.send_batches(mesh, &mut early, counters);
        for (number, bytes) in early.iter() {
            let result = decode_result(&mut &bytes[..]).expect("encoded a few lines above");
            open.inbound.answer(number, result);
        }
        self.put_spare(early);
        counters.broken += u64::from(taken.is_err());
        taken
    }

    /// Counts what a connection holds now.
    fn recount(&mut self, id: InboundId) {
        let Some(open) = self.opens.get_mut(id.key()) else { return };
        let held_bytes = open.inbound.held_bytes();
        let before_bytes = std::mem::replace(&mut open.held_bytes, held_bytes);
        self.held_bytes = self.held_bytes + held_bytes - before_bytes;
    }

    /// Keeps the sum of held bytes within its limit. It takes the node that holds most, and closes
    /// that node's connection that holds most. So no node suffers from what another node sends.
    fn shed(&mut self, counters: &mut PeerCounters) {
        while self.held_bytes > HELD_BYTES_MAX {
            let mut of_nodes = BTreeMap::<&str, usize>::new();
            let opens = || self.opens.iter();
            opens().for_each(|(_, open)| {
                *of_nodes.entry(&open.name).or_default() += open.held_bytes;
            });
            let most = of_nodes.into_iter().max_by_key(|(_, held_bytes)| *held_bytes);
            let (name, _) = most.expect("a sum above 0 has parts");
            let its = opens().filter(|(_, open)| open.name == name);
            let largest = its.max_by_key(|(_, open)| open.held_bytes);
            let (key, _) = largest.expect("the node holds something");
            self.close(key.into());
            counters.shed += 1;
        }
    }

    /// Sends the batches that were filled. Messages that find no room are answered `Busy` at once.
    fn send_batches(
        &mut self,
        mesh: &mut MeshPort,
        early: &mut PeerBatch,
        counters: &mut PeerCounters,
    ) {
        for sibling in 0..self.shards.get() {
            let Some(batch) = self.filling[usize::from(sibling)].take() else { continue };
            if let Err(refused) = mesh.send_peer_messages(ShardIndex(sibling), batch) {
                for (number, _) in refused.iter() {
                    counters.messages_busy += 1;
                    early.push(number, |out| PeerResult::Busy.encode(out));
                }
                self.put_spare(*refused);
            }
        }
    }

    /// Serves messages of a sibling's peer on this shard.
    pub fn serve_batch(
        &mut self,
        from: ShardIndex,
        batch: PeerBatch,
        behind: &mut Behind<'_>,
        mesh: &mut MeshPort,
        counters: &mut PeerCounters,
    ) {
        let mut results = Box::new(self.take_spare());
        results.inbound = batch.inbound;
        let numbers = batch.entries.iter().map(|&(number, _)| number).collect();
        let key = self.borrowed.insert(Borrowed { from, results, numbers });
        let (connection, generation) = (key.index, key.generation);
        for (index, (_, message)) in (0_u32..).zip(batch.iter()) {
            let ticket = PeerTicket { shard: from, connection, generation, number: index };
            match decode_message(&mut &message[..]) {
                Ok(message) => {
                    let clock_offset_ns = batch.clock_offset_ns;
                    let from = batch.from;
                    behind.tell(Event::PeerMessage { ticket, from, clock_offset_ns, message });
                }
                Err(_) => {
                    counters.messages_malformed += 1;
                    let mut bytes = Vec::new();
                    MALFORMED.encode(&mut bytes);
                    self.give_back(ticket, &bytes, mesh);
                }
            }
        }
        self.put_spare(batch);
    }

    /// Takes results for a connection of this core.
    pub fn take_results(&mut self, results: PeerBatch) {
        let id = results.inbound;
        if let Some(open) = self.opens.get_mut(id.key()) {
            for (number, bytes) in results.iter() {
                let result = decode_result(&mut &bytes[..]).expect("encoded by a sibling");
                open.inbound.answer(number, result);
            }
            self.talk(id);
            self.recount(id);
        }
        self.put_spare(results);
    }

    /// Gives the shard's results to the connections and siblings that wait for them.
    pub fn answer(&mut self, replies: &mut Vec<PeerReply>, bytes: &[u8], mesh: &mut MeshPort) {
        for PeerReply { ticket, bytes: range, .. } in replies.drain(..) {
            let bytes = &bytes[range];
            if ticket.shard != self.own {
                self.give_back(ticket, bytes, mesh);
                continue;
            }
            let id = InboundId { place: ticket.connection, generation: ticket.generation };
            if let Some(open) = self.opens.get_mut(id.key()) {
                let result = decode_result(&mut &bytes[..]).expect("encoded by the shard");
                open.inbound.answer(ticket.number, result);
                self.talk(id);
                self.recount(id);
            }
        }
    }

    /// Adds one result to a sibling's batch. The last result sends the batch back.
    fn give_back(&mut self, ticket: PeerTicket, bytes: &[u8], mesh: &mut MeshPort) {
        let key = SlotKey { index: ticket.connection, generation: ticket.generation };
        let borrowed = self.borrowed.get_mut(key);
        let borrowed = borrowed.expect("a batch is answered as often as it has entries");
        let number = borrowed.numbers[ticket.number as usize];
        borrowed.results.push(number, |out| out.extend_from_slice(bytes));
        if borrowed.results.entries.len() == borrowed.numbers.len() {
            let borrowed = self.borrowed.remove(key).expect("it was there a moment ago");
            let Borrowed { from, results, .. } = borrowed;
            mesh.send_peer_results(from, results);
        }
    }

    /// Appends the bytes to send over a connection.
    pub fn output(
        &mut self,
        now: Now,
        id: InboundId,
        out: &mut Vec<u8>,
        counters: &mut PeerCounters,
    ) {
        if let Some(open) = self.opens.get_mut(id.key()) {
            let begins = out.len();
            open.inbound.write(now, out);
            counters.bytes_sent += (out.len() - begins) as u64;
            self.recount(id);
        }
    }

    /// Tells that a connection is gone.
    pub fn closed(&mut self, id: InboundId) {
        if let Some(open) = self.opens.remove(id.key()) {
            self.held_bytes -= open.held_bytes;
        }
    }

    fn close(&mut self, id: InboundId) {
        self.closed(id);
        self.actions.push(PeerAction::CloseInbound(id));
    }

    /// Takes a new view, and closes connections of nodes that are no longer members.
    pub fn set_view(&mut self, view: &View) {
        for (_, open) in self.opens.iter_mut() {
            open.inbound.set_view(view.digest());
        }
        if !self.accepts_strangers {
            let members = view.connected_nodes();
            self.close_where(|open| !is_member(view, members, &open.name));
        }
    }

    /// Returns whether no connection is open and the driver has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.opens.is_empty() && self.actions.is_empty()
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.opens.len()
    }

    /// Bytes of memory that peers have caused.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// When [`Inbounds::tick`] is due next.
    pub fn wake_at(&self) -> MonoNs {
        if self.is_idle() { MonoNs(u64::MAX) } else { self.wake_at }
    }

    /// Closes connections that have been silent for so long that their node counts as dead.
    pub fn tick(&mut self, now: MonoNs, dead_after_ms: u64) {
        if now < self.wake_at {
            return;
        }
        self.close_where(|open| open.heard_at.plus_ms(dead_after_ms) <= now);
        let heard = self.opens.iter().map(|(_, open)| open.heard_at);
        self.wake_at = heard.min().map_or(MonoNs(u64::MAX), |at| at.plus_ms(dead_after_ms));
    }

    /// Appends what the driver is to do.
    pub fn take_actions(&mut self, actions: &mut Vec<PeerAction>) {
        actions.append(&mut self.actions);
        for id in std::mem::take(&mut self.talking) {
            if let Some(open) = self.opens.get_mut(id.key()) {
                open.is_talking = false;
                actions.push(PeerAction::SendInbound(id));
            }
        }
    }

    fn close_where(&mut self, is_over: impl Fn(&Open) -> bool) {
        for place in 0..self.opens.places() {
            let open = self.opens.at(place).filter(|open| is_over(open));
            if let Some(key) = open.and_then(|_| self.opens.key_at(place)) {
                self.close(key.into());
            }
        }
    }

    fn talk(&mut self, id: InboundId) {
        if let Some(open) = self.opens.get_mut(id.key())
            && !open.is_talking
        {
            open.is_talking = true;
            self.talking.push(id);
        }
    }

    fn take_spare(&mut self) -> PeerBatch {
        self.spare.pop().unwrap_or_default()
    }

    fn put_spare(&mut self, mut batch: PeerBatch) {
        if self.spare.len() < SPARE_MAX {
            batch.clear();
            self.spare.push(batch);
        }
    }
}

/// Returns the shard that a message is for: the owner of the timer that it is about, or the shard
/// that it names. `None`: it names a shard that this node does not have.
fn owner_of(shards: ShardCount, message: &PeerMessage<'_>) -> Option<ShardIndex> {
    let id = match message {
        PeerMessage::Standing(standing) | PeerMessage::Trying(standing) => standing.id,
        PeerMessage::Copy(copy) | PeerMessage::Conditional { copy, .. } => copy.standing.id,
        PeerMessage::Compare(asked) => asked.id,
        PeerMessage::Fetch(id)
        | PeerMessage::Missed { id, .. }
        | PeerMessage::NoRoom { id, .. } => *id,
        // Any core can pass them on.
        PeerMessage::Orders(_) => TimerId(0),
        PeerMessage::List { shard, .. } => {
            return (*shard < shards.get()).then_some(ShardIndex(*shard));
        }
    };
    Some(shards.owner(id))
}

fn is_member(view: &View, members: PeerSet, name: &str) -> bool {
    members.iter().any(|peer| view.name_of(peer) == name)
}
