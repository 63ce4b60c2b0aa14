//! What a shard is told and what it asks for.

use std::ops::Range;
use std::sync::Arc;

use crate::base::ids::{HostId, NodeHash, PeerIndex, PeerSet, ShardIndex, Slot, TimerId};
use crate::base::ranked::Replicas;
use crate::base::slots::SlotKey;
use crate::base::time::{Tick, WallMs};
use crate::cluster::detector::Liveness;
use crate::cluster::view::View;
use crate::journal::Position;
use crate::timer::definition::Definition;
use crate::timer::version::Version;
use crate::wire::answer_head::RetryAfter;
use crate::wire::dead_letter::LetterUse;
use crate::wire::jobs::JobReport;
use crate::wire::peer_message::{PeerMessage, PeerResult, TimerCopy};
use crate::wire::resync_json::Reference;
use crate::wire::site_question::{SiteAnswer, SiteQuestion};
use crate::wire::timer_action::TimerAction;
use crate::wire::timer_count::Numbers;
use crate::wire::timer_list::ListedState;

/// Where an answer goes. The shard only carries it.
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

/// What a client asks of the shard that owns the id. A create may go to any shard.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// POST: a new timer under an id minted here.
    Create(Definition<'a>),
    /// PUT: replaces the timer, or creates it under this id.
    Update(Target, Definition<'a>),
    /// DELETE: ends the timer.
    Delete(Target),
    /// GET: reads the timer.
    Read(Target),
    /// A write that is made only if the timer is as its client expects.
    Conditional(Conditional<'a>),
    /// Shows, tries again or deletes a dead letter; with a version, only the one that it made.
    Letter(Target, LetterUse, Option<Version>),
    /// A PUT of the internal HTTP API: a copy from an original node, or, without replicas, from
    /// another site. Its start is in ms of this node's monotonic clock. The answer is `Done` once
    /// the copy is merged, whether it was news or not.
    Merge(TimerCopy<'a>),
    /// Asks for a part of a page of timers that a node is to hold (docs/compat/timer-service.md
    /// §5.2).
    Collect(PageAsk),
    /// Names timers of this shard that a node has taken over: `DELETE /timers/references`.
    Forget(&'a [Reference]),
    /// Asks for a part of a page of `GET /timers`: a question of `wire::timer_list`.
    List(&'a [u8]),
    /// Another site asks how far this one is with a timer.
    Compare(SiteQuestion),
}

/// A dead letter that is about to be tried again or deleted.
#[derive(Clone, PartialEq, Debug)]
pub struct Letter {
    /// The timer that carries it.
    pub id: TimerId,
    /// The state that was found.
    pub version: Version,
    /// Replicas.
    pub factor: u8,
    /// The callback's authority.
    pub authority: Box<str>,
    /// The timer's content.
    pub content: Box<[u8]>,
}

/// A place in the order of pages: when the next pop is due, then the id.
pub type PagePlace = (Tick, TimerId);

/// Which timers a node asks for: those that `node` is to hold under the new cluster, in the order
/// of their next pops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageAsk {
    /// The asking node.
    pub node: NodeHash,
    /// The first place of the page, itself included.
    pub from: PagePlace,
    /// Most timers in the page.
    pub count: u32,
    /// Whether a round begins. Then nothing remembered of an earlier round counts.
    pub is_fresh: bool,
}

/// What must be so for a write to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The timer is not there.
    Absent,
    /// The timer is there.
    Present,
    /// The timer is there, and this write made it.
    Version(Version),
    /// The create of a key was not made before. Otherwise it is answered as the first one was.
    Once,
    /// The timer is a dead letter, and this write made it.
    Letter(Version),
}

/// A PUT, a DELETE or a POST with a condition.
#[derive(Clone, Copy, Debug)]
pub struct Conditional<'a> {
    /// The timer.
    pub target: Target,
    /// What must be so.
    pub condition: Condition,
    /// What the write makes of the timer; `None`: the write ends it.
    pub definition: Option<Definition<'a>>,
    /// What the write does with the timer that is there, without a definition.
    pub action: Option<TimerAction>,
}

/// A timer as a client names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The timer.
    pub id: TimerId,
    /// The factor in the path. It places a timer that is not held here.
    pub factor: Option<u8>,
    /// The filter in the path. It leads to the nodes that held the timer when the id was given out.
    pub filter: Option<u64>,
}

/// A message of a peer, and where its result goes. The shard only carries it.
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

/// What a message is for. The driver gives it back with the peer's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A client's write, by its key among the writes that wait.
    Write(SlotKey),
    /// A client's read, by its key among the reads that wait.
    Read(SlotKey),
    /// A client's write with a condition, by its key among those that wait for a decision.
    Condition(SlotKey),
    /// News of a timer: a pop, or the copy that a peer wanted after it.
    News(TimerId),
    /// An offer of a timer in a walk or a move, or its copy.
    Offer {
        /// The timer.
        id: TimerId,
        /// The move that the offer is a part of, see `src/shard/parts/reconcile.rs`; 0: none.
        round: u8,
    },
    /// Word that a peer lacks something, or has no room. Nothing follows from its result.
    Hint,
    /// A question for a part of a list. The result goes to the requester
    /// [`LISTED`](super::requesters::LISTED) with these
    /// numbers.
    List {
        /// The generation of the requester.
        generation: u32,
        /// The number of its request.
        request: u32,
    },
    /// Asks for a timer that may have ended while this core was away.
    End {
        /// The timer.
        id: TimerId,
        /// Of which life of the core the question is.
        life: u8,
    },
    /// Asks whether peers know more of a timer that is due, or that was held through an absence.
    Question {
        /// The timer.
        id: TimerId,
        /// The number of long absences before the question.
        life: u8,
    },
}

/// How a peer is talked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// Frames: the peer is a node of ours.
    Frames,
    /// The internal HTTP API: the peer is an original node or another site. It is told whole copies
    /// only.
    Http,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A request. The shard answers it with exactly one [`Reply`].
    Request {
        /// Where the answer goes.
        from: Requester,
        /// What is asked.
        request: Request<'a>,
    },
    /// An [`Attempt`] ended.
    CallbackFinished {
        /// The ticket of the attempt.
        ticket: Ticket,
        /// How the attempt ended.
        outcome: CallbackOutcome,
    },
    /// The configuration names other members.
    View(Arc<View>),
    /// The core believes something else of a peer.
    Peer {
        /// The peer.
        peer: PeerIndex,
        /// Whether the peer is alive, suspected or dead.
        liveness: Liveness,
        /// How the peer is talked to.
        dialect: Dialect,
        /// Whether the peer may lack what it was told before: it is another process than the one
        /// heard last, or messages to it were dropped. The peer is then offered everything that it
        /// is to hold.
        has_gaps: bool,
    },
    /// A peer told since when, by its wall clock, it holds everything that it acknowledged and that
    /// has not ended.
    PeerComplete {
        /// The peer.
        peer: PeerIndex,
        /// `None`: it did not tell.
        since: Option<WallMs>,
    },
    /// The peers that see other members than this node does, as their frames tell.
    OtherViews(PeerSet),
    /// A peer's message. The shard answers it with exactly one [`PeerReply`].
    PeerMessage {
        /// Where the result goes.
        ticket: PeerTicket,
        /// The peer; `None`: the sender is not in the view.
        from: Option<PeerIndex>,
        /// Own monotonic clock minus the sender's, in ns.
        clock_offset_ns: i64,
        /// What the peer tells.
        message: PeerMessage<'a>,
    },
    /// The result of a message that this shard sent.
    PeerResult {
        /// The peer that answered.
        peer: PeerIndex,
        /// The purpose of the message.
        purpose: Purpose,
        /// What the peer answered.
        result: PeerResult<'a>,
    },
    /// A message that this shard sent will have no result: it was dropped, or never taken.
    PeerUnheard {
        /// The peer that did not get the message.
        peer: PeerIndex,
        /// The purpose of the message.
        purpose: Purpose,
    },
    /// Compare everything held with all nodes that are to hold it (SIGUSR1).
    Resynchronise,
}

/// How a callback attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallbackOutcome {
    /// Answered 2xx.
    Delivered,
    /// Answered, but not 2xx: the host is well and does not want this pop.
    Rejected,
    /// Answered 410: there will be nothing at this URI any more. A timer with a retry policy ends.
    Gone,
    /// Answered 429 or 503 with `Retry-After`, which a timer with a retry policy follows.
    Later(RetryAfter),
    /// No name, no connection, a connection broken off, or an answer that is no HTTP.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// No callback may go to the host, which was not called. The pop is given up.
    Denied,
    /// The host had closed a kept-alive connection: no failure. The attempt is made again at once.
    Stale,
    /// This node lacked something for the attempt. Nothing is counted against anybody.
    Lacking,
}

impl CallbackOutcome {
    /// A number for the traces of tests, another one for each kind of outcome.
    pub fn number(self) -> u64 {
        match self {
            Self::Delivered => 0,
            Self::Rejected => 1,
            Self::Unreachable => 2,
            Self::TimedOut => 3,
            Self::Denied => 4,
            Self::Stale => 5,
            Self::Gone => 6,
            Self::Lacking => 9,
            Self::Later(RetryAfter::Seconds(seconds)) => 7 + (u64::from(seconds) << 4),
            Self::Later(RetryAfter::At(unix_s)) => 8 + (u64::from(unix_s) << 4),
        }
    }
}

/// The pop that an attempt is for. A result whose ticket no longer fits is only counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The slot of the record.
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

/// A callback to make now. The driver copies its content, [`super::Shard::content`], before the
/// next event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Given back when the attempt ends.
    pub ticket: Ticket,
    /// When the pop was due.
    pub due: Tick,
    /// Which attempt of this node at this pop it is, from 1.
    pub number: u16,
}

/// Why a request is answered 503, or 429 for [`Refusal::TokenFull`]. The text is the header
/// `Reason` and the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// As many timers are held as `limits.timers_max` allows.
    #[error(
        "the node holds as many timers as limits.timers_max allows; retry later or on another node"
    )]
    TimersFull,
    /// As many bytes are held as `limits.store_bytes_max` allows.
    #[error("timer memory is full (limits.store_bytes_max); retry later or on another node")]
    BytesFull,
    /// As many timers of the request's token are held as its name may have. The core that has the
    /// connection knows the name and says more.
    #[error(
        "the token has as many timers as its name may have on a node (timers= in \
         auth.tokens_file); delete some, or wait until some have popped"
    )]
    TokenFull,
    /// As many pops wait for the host as `callbacks.queue_per_host_max` allows.
    #[error(
        "too many pops wait for this callback host (callbacks.queue_per_host_max); retry later"
    )]
    HostQueueFull,
    /// The 4096 ids of a millisecond are used up.
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
    /// The timer has attributes, and an original node is a member. Answered 409.
    #[error(
        "a node of the original service is a member of this cluster and cannot hold such a timer: \
         leave out what the original does not have (docs/api.md), or retry when it has left"
    )]
    Original,
    /// The timer is not as the client's condition expects it. Answered 412.
    #[error(
        "If-Match, If-None-Match: expected the timer as these headers say, got another: read it \
         and decide anew"
    )]
    Unmet,
    /// The key came with another body. Answered 422.
    #[error("Idempotency-Key: expected the body that came with this key before, got another one")]
    OtherBody,
    /// Another name has the same id. Answered 409.
    #[error("name: a timer of another name has the id that this name makes; take another name")]
    OtherName,
    /// There is no such timer to do something with. Answered 404.
    #[error("no timer with this id")]
    NoTimer,
    /// The timer is paused, so that no pop can be made. Answered 409.
    #[error("the timer is paused: resume it first")]
    Paused,
    /// The timer has as many attributes as it may have. Answered 409.
    #[error(
        "the timer has no room for the note that it was paused, resumed or run: replace it by one \
         with fewer or shorter headers and URIs"
    )]
    NoteTooLong,
    /// Others wrote the timer at the same time, again and again.
    #[error("too many writes of this timer at the same time; retry in a moment")]
    Contended,
    /// A version that no clock gives out, from a node that is none of ours.
    #[error("the version lies too far in the future; set the clock of the node that sent it")]
    FutureVersion,
    /// The wall clock differs from most others by more than `cluster.clock_skew_max_ms`.
    #[error(
        "this node's wall clock differs from that of most other nodes by more than \
         cluster.clock_skew_max_ms; set it, and retry on another node meanwhile"
    )]
    Clock,
    /// As many writes wait as `cluster.writes_waiting_max` allows.
    #[error("too many writes wait for replicas (cluster.writes_waiting_max); retry in a moment")]
    WritesFull,
    /// No peer that can be reached takes this process for this node.
    #[error(
        "the other nodes do not take this process for this node: another process says that it is, \
         this one calls from another address than [cluster] has, or their lists do not name it"
    )]
    Twin,
    /// The node's lists name no member any more.
    #[error(
        "this node was taken out of its cluster: stop it, or restart it as a cluster of its own; \
         send requests to a member"
    )]
    HasLeft,
    /// The node is being added to its cluster.
    #[error(
        "this node is being added to its cluster, and not all members know it yet; retry in a \
         moment, or on another node"
    )]
    Joining,
    /// The journal has no segment to write to.
    #[error(
        "the journal of this node cannot grow: free room on the disk of its data directory, or see \
         the node's log for another cause; retry on another node meanwhile"
    )]
    JournalFull,
    /// The disk has not taken the journal's last write for too long.
    #[error(
        "the disk of this node's data directory does not answer; retry in a moment, or on another \
         node"
    )]
    JournalStalled,
    /// As many pages of lists are put together as one core may.
    #[error("too many lists are under way on this core; retry in a moment, or on another node")]
    ListsFull,
    /// As many pages of lists are put together for one name as one core may.
    #[error(
        "too many lists of this token are under way on this core; ask for the next page when one \
         has come"
    )]
    ListsOfNameFull,
    /// As many jobs run as a node may have.
    #[error(
        "16 jobs run on this node, as many as may; wait until one has ended (GET /jobs), stop \
         one, or use another node"
    )]
    JobsFull,
    /// As many jobs of one name run as a node may have.
    #[error(
        "4 jobs of this token run on this node, as many as may; wait until one has ended \
         (GET /jobs), or stop one"
    )]
    JobsOfNameFull,
    /// The queue to the core that owns the timer is full.
    #[error(
        "the core that owns this timer is overloaded (limits.mesh_queue_max); retry in a moment"
    )]
    CoreBusy,
}

impl Refusal {
    /// The refusal of a write that other nodes may have: this node has no room to stand in.
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
    /// The replication factor that the client asked for.
    pub factor: u8,
    /// The filter of the replicas.
    pub filter: u64,
    /// Milliseconds between pops.
    pub interval_ms: u64,
    /// Milliseconds of recurrence.
    pub repeat_for_ms: u64,
    /// Milliseconds since the start.
    pub age_ms: u64,
    /// Pops done.
    pub sequence: u64,
    /// The write that made the timer what it is.
    pub version: Version,
    /// Callback URI.
    pub uri: String,
    /// The opaque bytes. They are text, unless the attributes say that they are bytes.
    pub opaque: Box<[u8]>,
    /// Encoded attributes (`wire::attributes`); empty if the timer has none.
    pub attributes: Box<[u8]>,
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
        /// The factor, for the id.
        factor: u8,
        /// The filter of the replicas, for the id.
        filter: u64,
    },
    /// The same, for a timer whose id a name or a key made.
    Identified(Box<Identified>),
    /// 200, with the timer.
    Found(Box<TimerView>),
    /// 404: no such timer.
    NotFound,
    /// 503, with the reason.
    Refused(Refusal),
    /// An answer to another node, over the internal HTTP API.
    Internal(Box<Internal>),
}

/// What is answered to the write of a timer whose id a name or a key made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identified {
    /// The timer.
    pub id: TimerId,
    /// The factor, for the id.
    pub factor: u8,
    /// The filter of the replicas, for the id. 0 where a key made the id, so that each answer names
    /// the timer in the same way.
    pub filter: u64,
    /// The write that made the timer what it is.
    pub version: Version,
}

/// Answers to other nodes, and answers of many timers.
#[derive(Clone, PartialEq, Debug)]
pub enum Internal {
    /// A dead letter, which the shard itself uses.
    Letter(Letter),
    /// What one shard adds to a page.
    Part(PagePart),
    /// A page of timers: 200, or 206 when there are more.
    Page {
        /// The JSON document.
        body: Vec<u8>,
        /// Timers in the document.
        count: u64,
        /// Whether more timers follow.
        has_more: bool,
    },
    /// References are noted: 202.
    Accepted,
    /// What one shard adds to a page of a list, as `wire::timer_list` has it; `None`: the shard was
    /// not reached, or does not answer such questions.
    ListPart(Option<Box<[u8]>>),
    /// What another site is answered about a timer: 200.
    Compared(SiteAnswer),
    /// A page of a list: 200.
    List(ListPage),
    /// Numbers of timers: 200.
    Count(ListCount),
    /// A job has begun: 202.
    JobBegun(JobReport),
    /// Jobs: 200.
    Jobs(JobList),
}

/// The answer to `GET /jobs` and to requests for one job.
#[derive(Clone, PartialEq, Debug)]
pub struct JobList {
    /// The jobs, those that began first before others.
    pub jobs: Vec<JobReport>,
    /// Whether one job was asked for.
    pub is_of_one: bool,
    /// What may lack, a sentence for each node.
    pub incomplete: Vec<String>,
}

/// The answer to `GET /timers/count`.
#[derive(Clone, PartialEq, Debug)]
pub struct ListCount {
    /// The numbers of all nodes.
    pub numbers: Numbers,
    /// Whether it was asked when timers are due.
    pub has_spans: bool,
    /// What the numbers may lack, a sentence for each node.
    pub incomplete: Vec<String>,
    /// When the last number came.
    pub at: WallMs,
}

/// A page of `GET /timers`.
#[derive(Clone, PartialEq, Debug)]
pub struct ListPage {
    /// The timers, in the order of lists.
    pub timers: Vec<ListedTimer>,
    /// The cursor of the next page; `None`: this is the last.
    pub cursor: Option<String>,
    /// What the page may lack, a sentence for each node.
    pub incomplete: Vec<String>,
    /// When the page was put together.
    pub at: WallMs,
    /// Bytes of the timers.
    pub bytes: usize,
    /// What is done with dead letters, if the list is one of those.
    pub letters: Option<LetterUse>,
    /// Letters of the page with which it was done.
    pub used: usize,
    /// Letters of the page with which it could not be done now.
    pub refused: usize,
}

/// One timer of a list.
#[derive(Clone, PartialEq, Debug)]
pub struct ListedTimer {
    /// The timer as GET shows it.
    pub view: TimerView,
    /// What it does.
    pub state: ListedState,
    /// When its next pop is due, in ms from now.
    pub due_in_ms: i64,
}

/// What one shard adds to a page: its first timers, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PagePart {
    /// The timers in order. None is left out before the last.
    pub timers: Vec<CollectedTimer>,
    /// Whether more timers of this shard follow.
    pub has_more: bool,
}

/// One timer of a page.
#[derive(Clone, PartialEq, Debug)]
pub struct CollectedTimer {
    /// The timer's place in the order of pages.
    pub place: PagePlace,
    /// The nodes that hold the timer.
    pub former: Replicas,
    /// The timer as a message. It names the replicas of the new cluster already.
    pub copy: Box<[u8]>,
}

/// An answer and where it goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// Where the answer goes.
    pub to: Requester,
    /// The answer itself.
    pub answer: Answer,
    /// The answer may leave when the journal has all changes up to here on the disk.
    pub after: Position,
}

impl Reply {
    /// An answer that waits for no disk.
    pub fn at_once(to: Requester, answer: Answer) -> Self {
        Self { to, answer, after: Position::default() }
    }
}

/// A message to a peer. Its bytes are in [`Outbox::peer_bytes`], where several messages may share
/// them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToPeer {
    /// The peer.
    pub peer: PeerIndex,
    /// Given back with the result.
    pub purpose: Purpose,
    /// The encoded message.
    pub bytes: Range<usize>,
}

/// The result of a peer's message. Its bytes are in [`Outbox::peer_bytes`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerReply {
    /// Where the result goes.
    pub ticket: PeerTicket,
    /// The encoded result.
    pub bytes: Range<usize>,
    /// The result may leave when the journal has all changes up to here on the disk.
    pub after: Position,
}

/// How a callback host is on one core.
#[derive(Clone, Debug)]
pub struct HostState {
    /// The authority, as written.
    pub authority: Box<str>,
    /// Pops that wait.
    pub waiting: u32,
    /// Callbacks that run.
    pub in_flight: u32,
    /// Failures since the last answer.
    pub failures: u32,
    /// Attempts in the last whole second.
    pub attempts_per_second: u32,
    /// While the host is in trouble: milliseconds until the next probe may begin.
    pub next_probe_ms: Option<u64>,
}

/// What a shard asks its driver to do. The driver drains it every turn; its memory is kept.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Answers to clients, of this core or others.
    pub replies: Vec<Reply>,
    /// Callbacks to make. The driver copies the content of each before it gives the shard another
    /// event.
    pub attempts: Vec<Attempt>,
    /// Hosts that lost their lanes, so that their connections can be closed. The driver takes them
    /// before the attempts: the number of a host may have been given to another host, and attempts
    /// go to that one.
    pub released: Vec<HostId>,
    /// Messages to peers, in order.
    pub to_peers: Vec<ToPeer>,
    /// Results for peers.
    pub peer_replies: Vec<PeerReply>,
    /// Lines of orders that peers told, for the control thread. No line: that peer has told all.
    pub orders: Vec<(PeerIndex, Box<[u8]>)>,
    /// The bytes of `to_peers` and `peer_replies`. The driver clears them when both are drained.
    pub peer_bytes: Vec<u8>,
}

impl Outbox {
    /// Encodes a message once, to be told to any number of peers.
    pub fn encode(&mut self, message: &PeerMessage<'_>) -> Range<usize> {
        let begins = self.peer_bytes.len();
        message.encode(&mut self.peer_bytes);
        begins..self.peer_bytes.len()
    }

    /// Sends an encoded message to a peer.
    pub fn tell(&mut self, peer: PeerIndex, purpose: Purpose, bytes: Range<usize>) {
        self.to_peers.push(ToPeer { peer, purpose, bytes });
    }

    /// Answers a request at once.
    pub fn reply(&mut self, to: Requester, answer: Answer) {
        self.replies.push(Reply::at_once(to, answer));
    }

    /// Answers a peer's message when the journal has all changes up to `after` on the disk.
    pub fn answer(&mut self, ticket: PeerTicket, result: &PeerResult<'_>, after: Position) {
        let begins = self.peer_bytes.len();
        result.encode(&mut self.peer_bytes);
        let bytes = begins..self.peer_bytes.len();
        self.peer_replies.push(PeerReply { ticket, bytes, after });
    }
}
