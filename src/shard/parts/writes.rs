//! Writes of clients: a new one, the nodes that it concerns, and the table of those that wait for
//! replicas.

use crate::base::ids::{PeerIndex, PeerSet, Slot, TimerId};
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::Tick;
use crate::journal::Position;
use crate::shard::effects::{Refusal, Requester};
use crate::shard::records::{Outline, Placement};
use crate::timer::definition::Content;
use crate::timer::naming::may_be_made;
use crate::timer::version::StateKey;
use crate::wire::peer_message::{Standing, TimerCopy};

/// Bodies whose memory is kept for later writes.
const POOL_MAX: usize = 1_024;
/// Bytes of an authority or a content above which its memory is not kept.
const POOLED_BYTES_MAX: usize = 4_096;

/// A write that other nodes are to be told of.
pub struct NewWrite<'a> {
    /// The client that waits for the answer; `None`: the answer was given already.
    pub from: Option<Requester>,
    /// When the client asked.
    pub asked_at: Tick,
    pub id: TimerId,
    /// Where the timer is held already.
    pub slot: Option<Slot>,
    pub key: StateKey,
    pub start: Tick,
    pub interval_ms: u64,
    pub repeat_for_ms: u64,
    /// Authority and content; `None`: a tombstone.
    pub body: Option<(&'a str, &'a [u8])>,
    /// How often the write has been made, this time included.
    pub tries: u8,
    /// Peers that have refused the write.
    pub refused: PeerSet,
    /// Whether the write depended on a condition and was found to meet it. What supersedes it came
    /// later.
    pub is_decided: bool,
    /// Whether the write gives way to a newer state, of which its maker did not know. All writes of
    /// the shard itself do; those of clients are made again above that state.
    pub gives_way: bool,
    /// Whether the write is an action, whose answer tells the version.
    pub is_action: bool,
}

impl NewWrite<'_> {
    /// What the write makes of the timer, except for its body.
    pub fn outline(&self, placement: Placement) -> Outline {
        Outline {
            id: self.id,
            key: self.key,
            start: self.start,
            interval_ms: self.interval_ms,
            repeat_for_ms: self.repeat_for_ms,
            placement,
        }
    }

    /// Whether the answer tells the version: a name or a key made the id of the timer that the
    /// write makes, or the write is an action.
    #[inline]
    pub fn is_identified(&self) -> bool {
        self.is_action
            || may_be_made(self.id)
                && self.body.is_some_and(|(_, content)| {
                    let attributes = Content::decode(content).attributes();
                    attributes.name.is_some() || attributes.once.is_some()
                })
    }
}

/// A copy that ends a timer. Of a write that ends none: all of its copy but the body.
pub fn bare_copy(outline: &Outline) -> TimerCopy<'static> {
    let Outline { id, key, start, interval_ms, repeat_for_ms, placement } = outline;
    TimerCopy {
        standing: Standing {
            id: *id,
            version: key.version.0,
            sequence: key.sequence,
            actives: placement.actives,
            list_digest: 0,
        },
        is_write: false,
        replicas: placement.replicas,
        factor: placement.factor,
        sites: placement.sites,
        start_ms: start.0,
        interval_ms: *interval_ms,
        repeat_for_ms: *repeat_for_ms,
        body: None,
    }
}

/// The nodes that a write concerns.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The nodes that are to hold the timer.
    pub placement: Placement,
    /// Other nodes that may hold the timer from before. This node is not among them.
    pub extras: PeerSet,
    /// Whether the id was minted for this write, so that no node can hold the timer.
    pub is_create: bool,
}

/// A write that waits for replicas.
#[derive(Debug)]
pub struct Waiting {
    /// The client that waits. `None` once the first replica has the write, where that is enough to
    /// answer.
    pub from: Option<Requester>,
    /// When the client asked.
    pub asked_at: Tick,
    /// What was written, and the nodes that are to hold it.
    pub outline: Outline,
    /// What the write gives the timer; `None`: the write ends a timer.
    pub body: Option<Body>,
    /// Peers whose answer decides.
    pub waiting: PeerSet,
    /// All peers that were told.
    pub asked: PeerSet,
    /// Nodes that have the write.
    pub held: PeerSet,
    /// Peers that refuse the write: others are to stand in.
    pub refused: PeerSet,
    /// What the client is told if no other node can stand in.
    pub reason: Refusal,
    /// Whether the id was minted for this write.
    pub is_create: bool,
    /// Whether the write gives way to a newer state.
    pub gives_way: bool,
    /// How often the write has been made.
    pub tries: u8,
    /// See [`NewWrite::is_decided`].
    pub is_decided: bool,
    /// Whether a name or a key made the id.
    pub is_identified: bool,
    /// The journal has the write on the disk at this position.
    pub position: Position,
}

/// What a write gives a timer, kept to make the write again.
#[derive(Debug, Default)]
pub struct Body {
    pub authority: String,
    pub content: Vec<u8>,
}

impl Body {
    /// Authority and content.
    pub fn parts(&self) -> (&str, &[u8]) {
        (&self.authority, &self.content)
    }
}

/// All writes of a shard that wait.
#[derive(Debug, Default)]
pub struct Writes {
    /// [`Writes::end`] takes a write out.
    pub waiting: Slots<Waiting>,
    /// Bodies of earlier writes, kept for their memory.
    pool: Vec<Body>,
}

impl Writes {
    /// How many writes wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Lets a write wait no longer for a peer.
    pub fn forget(&mut self, key: SlotKey, peer: PeerIndex) {
        if let Some(write) = self.waiting.get_mut(key) {
            write.waiting = write.waiting.without(peer);
        }
    }

    /// Copies what a write gives a timer into the memory of an earlier body.
    pub fn keep(&mut self, (authority, content): (&str, &[u8])) -> Body {
        let mut body = self.pool.pop().unwrap_or_default();
        body.authority.clear();
        body.authority.push_str(authority);
        body.content.clear();
        body.content.extend_from_slice(content);
        body
    }

    /// Takes the memory of a body back, except for parts that are large.
    pub fn recycle(&mut self, body: Option<Body>) {
        let Some(mut body) = body.filter(|_| self.pool.len() < POOL_MAX) else { return };
        if body.authority.capacity() > POOLED_BYTES_MAX {
            body.authority = String::new();
        }
        if body.content.capacity() > POOLED_BYTES_MAX {
            body.content = Vec::new();
        }
        self.pool.push(body);
    }

    /// Takes a write out that ends. The memory of its body goes back to the pool.
    pub fn end(&mut self, key: SlotKey) -> Option<Waiting> {
        let mut write = self.waiting.remove(key)?;
        self.recycle(write.body.take());
        Some(write)
    }
}
