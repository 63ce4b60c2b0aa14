//! What a shard is told and what it asks for.

use std::ops::Range;
use std::sync::Arc;

use crate::base::ids::{HostId, NodeHash, PeerIndex, PeerSet, ShardIndex, Slot, TimerId};
use crate::base::ranked::Replicas;
use crate::base::slots::SlotKey;
use crate::base::time::Tick;
use crate::cluster::detector::Liveness;
use crate::cluster::view::View;
use crate::timer::definition::Definition;
use crate::timer::version::Version;
use crate::wire::peer_message::{PeerMessage, PeerResult, TimerCopy};
use crate::wire::resync_json::Reference;

/// Who waits for an answer. The shard only carries it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Requester {
    /// The core that holds the client's connection.
    pub shard: ShardIndex,
    /// The connection's place on that core.
    pub connection: u32,
    /// The connection's life: places are reused.
    pub generation: u32,
    /// Number of the request on its connection, counted from 0, wrapping.
    pub request: u32,
}

/// What a client asks of the shard that owns the id (a create: of any shard).
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// POST: a new timer under an id minted here.
    Create(Definition<'a>),
    /// PUT: replaces the timer, or creates it under this id.
    Update(Target, Definition<'a>),
    /// DELETE.
    Delete(Target),
    /// GET.
    Read(Target),
    /// A PUT of the internal HTTP API: a copy from an original node, or (without replicas) from
    /// another site. Its start is in ms of this node's monotonic clock. Answered `Done` when it is
    /// merged, whether it was news or not.
    Merge(TimerCopy<'a>),
    /// A part of a page of timers that a node is to hold (docs/compat/timer-service.md §5.2).
    Collect(PageAsk),
    /// Timers that a node has taken over, `DELETE /timers/references`; of this shard alone.
    Forget(&'a [Reference]),
}

/// A place in the order of pages: when the next pop is due, then the id.
pub type PagePlace = (Tick, TimerId);

/// Which timers are asked for: those that `node` is to hold under the new cluster, in the order of
/// their next pops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageAsk {
    /// The asking node.
    pub node: NodeHash,
    /// Those from this place on, itself included.
    pub from: PagePlace,
    /// How many at most.
    pub count: u32,
    /// Whether a round begins, so that nothing remembered of a former one counts.
    pub is_fresh: bool,
}

/// A timer as a client names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The timer.
    pub id: TimerId,
    /// The factor in the path: places the timer when it is not held here.
    pub factor: Option<u8>,
    /// The filter in the path: leads to those that held it when the id was given out.
    pub filter: Option<u64>,
}

/// A message of a peer, and who waits for its result. The shard only carries it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerTicket {
    /// The core that holds the peer's connection.
    pub shard: ShardIndex,
    /// The connection's place on that core.
    pub connection: u32,
    /// The connection's life: places are reused.
    pub generation: u32,
    /// Number of the message on its connection.
    pub number: u32,
}

/// What the sender of a peer message wants back with its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A client's write: its key among the writes that wait.
    Write(SlotKey),
    /// A client's read: its key among the reads that wait.
    Read(SlotKey),
    /// News of a timer: a pop, or the copy that was wanted after it.
    News(TimerId),
    /// A timer offered, or its copy: resynchronisation.
    Offer(TimerId),
    /// Word that others could not be told something: nothing follows from its result.
    Hint,
    /// Whether others know more of a timer that is due, or that was held through an absence.
    Question {
        /// The timer.
        id: TimerId,
        /// Counts long absences.
        life: u8,
    },
}

/// How a peer is talked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// Frames: a node of ours.
    Frames,
    /// The internal HTTP API: an original node, or another site. It is told whole copies only.
    Http,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A request; answered by exactly one [`Reply`].
    Request {
        /// Who waits.
        from: Requester,
        /// What is asked.
        request: Request<'a>,
    },
    /// An [`Attempt`] ended, however.
    CallbackFinished {
        /// From the attempt.
        ticket: Ticket,
        /// How.
        outcome: CallbackOutcome,
    },
    /// A new configuration.
    View(Arc<View>),
    /// What is believed of a peer changed.
    Peer {
        /// Whom.
        peer: PeerIndex,
        /// What is believed now.
        liveness: Liveness,
        /// How it is talked to.
        dialect: Dialect,
        /// Whether it may lack what it was told before: it is another process than the one heard
        /// last, or messages to it were dropped. It is then offered everything that it is to hold.
        has_gaps: bool,
    },
    /// Which peers see other members than this node does; known from their frames.
    OtherViews(PeerSet),
    /// A peer tells something; answered by exactly one [`PeerReply`].
    PeerMessage {
        /// Who waits for the result.
        ticket: PeerTicket,
        /// Who tells it; `None`: nobody that the view knows.
        from: Option<PeerIndex>,
        /// Own monotonic clock minus the sender's, in ns.
        clock_offset_ns: i64,
        /// What.
        message: PeerMessage<'a>,
    },
    /// The result of a message that this shard sent.
    PeerResult {
        /// Who answered.
        peer: PeerIndex,
        /// From the message.
        purpose: Purpose,
        /// What.
        result: PeerResult<'a>,
    },
    /// A message that this shard sent will have no result: it was dropped, or never taken.
    PeerUnheard {
        /// Who did not get it.
        peer: PeerIndex,
        /// From the message.
        purpose: Purpose,
    },
    /// Compare everything held with everybody who is to hold it (SIGUSR1).
    Resynchronise,
}

/// How a callback attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallbackOutcome {
    /// Answered 2xx.
    Delivered,
    /// Answered, but not 2xx: the host lives, this timer is not wanted now.
    Rejected,
    /// No name, no connection, broken off, or no HTTP.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// A kept-alive connection turned out to be closed by the host before any byte of an answer:
    /// not the host's failure. The attempt is made again at once, on another connection.
    Stale,
}

/// Which pop of which state of which timer an attempt is for. A result whose ticket no longer fits
/// is only counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// Place of the record.
    pub slot: Slot,
    /// The callback host; its place is given back when the attempt ends.
    pub host: HostId,
    /// The timer.
    pub id: TimerId,
    /// The state that popped.
    pub version: Version,
    /// The pop, from 1: `X-Sequence-Number`.
    pub sequence: u64,
}

/// A callback to make now. Its content is [`super::Shard::content`], to be copied before the next
/// event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// To be given back when it ended.
    pub ticket: Ticket,
    /// When the pop was due.
    pub due: Tick,
    /// Whether this is the first attempt at this pop.
    pub is_first: bool,
}

/// Why a request is answered 503. The text is `Reason` and body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// limits.timers_max.
    #[error(
        "the node holds as many timers as limits.timers_max allows; retry later or on another node"
    )]
    TimersFull,
    /// limits.store_bytes_max.
    #[error("timer memory is full (limits.store_bytes_max); retry later or on another node")]
    BytesFull,
    /// callbacks.queue_per_host_max.
    #[error(
        "too many pops wait for this callback host (callbacks.queue_per_host_max); retry later"
    )]
    HostQueueFull,
    /// The node mints 4096 ids per millisecond.
    #[error("more timers are created than the node can give ids to; retry in a moment")]
    IdsExhausted,
    /// No replica has the write.
    #[error("no node that is to hold this timer could be reached; retry in a moment")]
    NoReplica,
    /// A replica is full, and no other member is left.
    #[error(
        "a node that is to hold this timer has no room for it (limits.timers_max, \
         limits.store_bytes_max), and no other can stand in; retry later"
    )]
    NoRoom,
    /// A replica refuses for a reason of its own.
    #[error("a node that is to hold this timer does not take it, and no other can stand in")]
    NotTaken,
    /// A replica is not believed dead and has not answered.
    #[error("a node that is to hold this timer has not answered in time; retry in a moment")]
    Unanswered,
    /// Others wrote the timer at the same time, again and again.
    #[error("too many writes of this timer at the same time; retry in a moment")]
    Contended,
    /// A version that no clock gives out, of a node that is none of ours.
    #[error("the version lies too far in the future; set the clock of the node that sent it")]
    FutureVersion,
    /// cluster.clock_skew_max_ms.
    #[error(
        "this node's wall clock differs from that of most other nodes by more than \
         cluster.clock_skew_max_ms; set it, and retry on another node meanwhile"
    )]
    Clock,
    /// cluster.writes_waiting_max.
    #[error("too many writes wait for replicas (cluster.writes_waiting_max); retry in a moment")]
    WritesFull,
    /// No peer that can be reached takes this process for this node.
    #[error(
        "the other nodes do not take this process for this node: another process says that it is, \
         this one calls from another address than [cluster] has, or their lists do not name it"
    )]
    Twin,
    /// Its lists name no member any more.
    #[error(
        "this node was taken out of its cluster: stop it, or restart it as a cluster of its own; \
         send requests to a member"
    )]
    HasLeft,
    /// It is being added.
    #[error(
        "this node is being added to its cluster, and not all members know it yet; retry in a \
         moment, or on another node"
    )]
    Joining,
    /// The queue to the core that owns the timer is full.
    #[error(
        "the core that owns this timer is overloaded (limits.mesh_queue_max); retry in a moment"
    )]
    CoreBusy,
}

impl Refusal {
    /// The same, of a write that others may have: this node has no room to stand in.
    pub(super) fn after_others(self) -> Self {
        match self {
            Self::TimersFull | Self::BytesFull | Self::HostQueueFull => Self::NoRoom,
            other => other,
        }
    }
}

/// A timer as GET shows it.
#[derive(Clone, PartialEq, Debug)]
pub struct TimerView {
    /// The timer.
    pub id: TimerId,
    /// Its replication factor, as asked.
    pub factor: u8,
    /// Bloom filter of its replicas.
    pub filter: u64,
    /// Milliseconds between pops.
    pub interval_ms: u64,
    /// Milliseconds of recurrence.
    pub repeat_for_ms: u64,
    /// Milliseconds from start to now.
    pub age_ms: u64,
    /// Pops done.
    pub sequence: u64,
    /// Callback URI.
    pub uri: String,
    /// Opaque bytes (text, since it came from JSON).
    pub opaque: String,
    /// Statistics tags.
    pub tags: Vec<(String, u32)>,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// Stored, updated or deleted: 200 with the id.
    Done {
        /// The timer.
        id: TimerId,
        /// Its factor, for the id.
        factor: u8,
        /// Bloom filter of its replicas, for the id.
        filter: u64,
    },
    /// 200 with the timer.
    Found(Box<TimerView>),
    /// 404.
    NotFound,
    /// 503.
    Refused(Refusal),
    /// To another node, over the internal HTTP API.
    Internal(Box<Internal>),
}

impl Answer {
    /// Bytes that it holds beyond itself: content of timers.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Answer::Found(view) => view.uri.len() + view.opaque.len(),
            Answer::Internal(internal) => match &**internal {
                Internal::Part(part) => part.timers.iter().map(|timer| timer.copy.len()).sum(),
                Internal::Page { body, .. } => body.len(),
                Internal::Accepted => 0,
            },
            Answer::Done { .. } | Answer::NotFound | Answer::Refused(_) => 0,
        }
    }
}

/// Answers to other nodes.
#[derive(Clone, PartialEq, Debug)]
pub enum Internal {
    /// What one shard adds to a page.
    Part(PagePart),
    /// A page of timers: 200, or 206 when there are more.
    Page {
        /// The document.
        body: Vec<u8>,
        /// Timers in it.
        count: u64,
        /// Whether there are more.
        has_more: bool,
    },
    /// References are noted: 202.
    Accepted,
}

/// What one shard adds to a page: its first timers, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PagePart {
    /// None is left out before the last.
    pub timers: Vec<CollectedTimer>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// One timer of a page.
#[derive(Clone, PartialEq, Debug)]
pub struct CollectedTimer {
    /// Its place in the order.
    pub place: PagePlace,
    /// The nodes that hold it.
    pub former: Replicas,
    /// The timer as a message, its replicas those of the new cluster already.
    pub copy: Box<[u8]>,
}

/// An answer and who waits for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// Who.
    pub to: Requester,
    /// What.
    pub answer: Answer,
}

/// A message to a peer: its bytes are in [`Outbox::peer_bytes`], where several may share them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToPeer {
    /// To whom.
    pub peer: PeerIndex,
    /// What to give back with the result.
    pub purpose: Purpose,
    /// The encoded message.
    pub bytes: Range<usize>,
}

/// The result of a peer's message; `bytes` are in [`Outbox::peer_bytes`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerReply {
    /// Who waits.
    pub ticket: PeerTicket,
    /// The encoded result.
    pub bytes: Range<usize>,
}

/// What a shard asks its driver to do. Drained by the driver every turn; its memory is kept.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Answers to clients, of this core or others.
    pub replies: Vec<Reply>,
    /// Callbacks to make; each needs its content copied before the shard sees another event.
    pub attempts: Vec<Attempt>,
    /// Hosts that lost their lanes: their connections can be closed. Taken before the attempts: the
    /// number may have been given to another host, to which they go.
    pub released: Vec<HostId>,
    /// Messages to peers, in order.
    pub to_peers: Vec<ToPeer>,
    /// Results for peers.
    pub peer_replies: Vec<PeerReply>,
    /// What these two point into; cleared by the driver when both are drained.
    pub peer_bytes: Vec<u8>,
}

impl Outbox {
    /// Encodes a message, to be told to any number of peers.
    pub fn encode(&mut self, message: &PeerMessage<'_>) -> Range<usize> {
        let begins = self.peer_bytes.len();
        message.encode(&mut self.peer_bytes);
        begins..self.peer_bytes.len()
    }

    /// Sends an encoded message to a peer.
    pub fn tell(&mut self, peer: PeerIndex, purpose: Purpose, bytes: Range<usize>) {
        self.to_peers.push(ToPeer { peer, purpose, bytes });
    }

    /// Answers a peer's message.
    pub fn answer(&mut self, ticket: PeerTicket, result: &PeerResult<'_>) {
        let begins = self.peer_bytes.len();
        result.encode(&mut self.peer_bytes);
        self.peer_replies.push(PeerReply { ticket, bytes: begins..self.peer_bytes.len() });
    }
}
