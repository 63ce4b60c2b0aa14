//! One core without its ring: shard, mesh and the routing between them. The engine drives it under
//! io_uring, the simulator in virtual time.

use std::sync::Arc;

use crate::base::ids::{PeerIndex, ShardCount, ShardIndex};
use crate::base::time::{Now, Tick};
use crate::cluster::view::View;
use crate::shard::effects::{
    Answer, Attempt, CallbackOutcome, Event, Outbox, Refusal, Reply, Request, Requester, Ticket,
};
use crate::shard::{Shard, ShardConfig};

use super::mesh::{MeshPort, Message, Remote};
use super::peering::{Connected, Hello, HelloRefusal, InboundId, PeerAction, PeerError};

/// Messages served from siblings in one turn; the rest wait for the next.
pub const INBOX_PER_TURN_MAX: usize = 1_024;

/// A shard and its end of the mesh.
pub struct Core {
    own: ShardIndex,
    shards: ShardCount,
    shard: Shard,
    mesh: MeshPort,
    outbox: Outbox,
}

impl Core {
    /// A core with an empty shard.
    pub fn new(config: ShardConfig, mesh: MeshPort, now: Now) -> Self {
        let (own, shards) = (config.own, config.shards);
        Self { own, shards, shard: Shard::new(config, now), mesh, outbox: Outbox::default() }
    }

    /// Serves a client's request here, or sends it to the core that owns the timer. Answered
    /// through [`Core::replies`], at once or in a later turn.
    pub fn request(&mut self, now: Now, from: Requester, request: Request<'_>) {
        let owner = match request {
            Request::Create(_) => self.own,
            Request::Update(target, _) | Request::Delete(target) | Request::Read(target) => {
                self.shards.owner(target.id)
            }
        };
        if owner == self.own {
            return self.serve(now, from, request);
        }
        let sent = self.mesh.send_request(now.mono, owner, from, Remote::copy(&request));
        if sent.is_err() {
            let answer = Answer::Refused(Refusal::CoreBusy);
            self.outbox.replies.push(Reply { to: from, answer });
        }
    }

    /// Takes what siblings sent. Returns whether more may be waiting.
    pub fn inbox(&mut self, now: Now) -> bool {
        for _ in 0..INBOX_PER_TURN_MAX {
            match self.mesh.receive() {
                Some(Message::Request(from, request, sent)) => {
                    let served = Now { mono: now.mono.max(sent), ..now };
                    self.serve(served, from, request.borrow());
                }
                Some(Message::Reply(reply)) => self.outbox.replies.push(reply),
                None => return false,
            }
        }
        true
    }

    /// Turns the wheel. The attempts that follow must be taken before anything else happens here.
    pub fn tick(&mut self, now: Now) {
        self.shard.tick(now, &mut self.outbox);
    }

    /// A callback ended. The attempts that follow must be taken before anything else happens here.
    pub fn callback_finished(&mut self, now: Now, ticket: Ticket, outcome: CallbackOutcome) {
        self.shard.handle(now, Event::CallbackFinished { ticket, outcome }, &mut self.outbox);
    }

    /// Moves the callbacks to make into `attempts` (empty); copy their contents
    /// ([`Shard::content`]) before the next call that changes the shard.
    pub fn attempts(&mut self, attempts: &mut Vec<Attempt>) {
        assert!(attempts.is_empty(), "attempts are made as soon as they are taken");
        std::mem::swap(attempts, &mut self.outbox.attempts);
    }

    /// Moves the answers for clients of this core into `replies`, and sends the others over the
    /// mesh.
    pub fn replies(&mut self, replies: &mut Vec<Reply>) {
        for reply in self.outbox.replies.drain(..) {
            if reply.to.shard == self.own {
                replies.push(reply);
            } else {
                self.mesh.send_reply(reply);
            }
        }
    }

    /// The outbox, for what is drained rarely (hosts released).
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// When [`Core::tick`] should next be called.
    pub fn next_wake(&self) -> Option<Tick> {
        self.shard.next_wake()
    }

    /// The shard.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The shard, to be told to stop.
    pub fn shard_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }

    /// The mesh port: sleeping, waking, counters.
    pub fn mesh(&mut self) -> &mut MeshPort {
        &mut self.mesh
    }

    /// Takes a new configuration: peers that are new are dialled, those that are gone are closed.
    pub fn set_view(&mut self, now: Now, view: Arc<View>) {
        let _ = (now, view);
        todo!()
    }

    /// Compares everything with everybody.
    pub fn resynchronise(&mut self, now: Now) {
        let _ = now;
        todo!()
    }

    /// A dialled connection is upgraded, or answered as by an original node.
    pub fn peer_connected(&mut self, now: Now, peer: PeerIndex, connected: &Connected) {
        let _ = (now, peer, connected);
        todo!()
    }

    /// A dial failed, or the connection that was dialled is gone.
    pub fn peer_lost(&mut self, now: Now, peer: PeerIndex) {
        let _ = (now, peer);
        todo!()
    }

    /// Bytes over the connection that was dialled. `Err`: close it and call
    /// [`Core::peer_lost`].
    pub fn peer_received(
        &mut self,
        now: Now,
        peer: PeerIndex,
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let _ = (now, peer, bytes);
        todo!()
    }

    /// Appends what is to be sent over the connection that was dialled.
    pub fn peer_output(&mut self, now: Now, peer: PeerIndex, out: &mut Vec<u8>) {
        let _ = (now, peer, out);
        todo!()
    }

    /// A peer asks for an Upgrade.
    pub fn inbound_opened(&mut self, now: Now, hello: &Hello) -> Result<InboundId, HelloRefusal> {
        let _ = (now, hello);
        todo!()
    }

    /// Bytes over a connection that a peer dialled. `Err`: close it and call
    /// [`Core::inbound_closed`].
    pub fn inbound_received(
        &mut self,
        now: Now,
        inbound: InboundId,
        bytes: &[u8],
    ) -> Result<(), PeerError> {
        let _ = (now, inbound, bytes);
        todo!()
    }

    /// Appends what is to be sent over a connection that a peer dialled.
    pub fn inbound_output(&mut self, now: Now, inbound: InboundId, out: &mut Vec<u8>) {
        let _ = (now, inbound, out);
        todo!()
    }

    /// A connection that a peer dialled is gone.
    pub fn inbound_closed(&mut self, inbound: InboundId) {
        let _ = inbound;
        todo!()
    }

    /// What this core says of itself when it dials or is dialled.
    pub fn hello(&self) -> Hello {
        todo!()
    }

    /// Heartbeats, suspicion, dialling, background work of the shard within a budget, messages and
    /// results of this turn handed to links: once per turn, after everything else. The actions that
    /// follow are appended.
    pub fn peers(&mut self, now: Now, actions: &mut Vec<PeerAction>) {
        let _ = (now, actions);
        todo!()
    }

    fn serve(&mut self, now: Now, from: Requester, request: Request<'_>) {
        assert!(self.outbox.attempts.is_empty(), "attempts are taken before the shard changes");
        self.shard.handle(now, Event::Request { from, request }, &mut self.outbox);
    }
}
