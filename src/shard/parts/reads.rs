//! Reads of clients that wait for another node.

use crate::base::ids::{PeerIndex, PeerSet, Slot, TimerId};
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::Tick;
use crate::shard::effects::{Refusal, Requester};
use crate::timer::version::{StateKey, Version};
use crate::wire::dead_letter::LetterUse;
use crate::wire::peer_message::TimerCopy;
use crate::wire::site_question::SiteQuestion;

use super::conditions::Seen;

/// Reads that wait at a time. A read above it is answered 503.
pub const READS_MAX: usize = 65_536;

/// What a client wants done with a dead letter, and the version of the one that it means; `None`:
/// whichever there is.
pub type LetterAsk = (LetterUse, Option<Version>);

/// Who reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// A client.
    Client(Requester),
    /// A client, and what it wants done with the timer, which is to be a dead letter.
    Letter(Requester, LetterAsk),
    /// A write with a condition, by its key among those that wait for a decision.
    Condition(SlotKey),
    /// Another site, and what it holds.
    Site(Requester, SiteQuestion),
    /// Another site, which holds the latest state, and asks who makes the pop. The other ranks are
    /// asked.
    Ranks(Requester, SiteQuestion),
}

/// What a read has found.
pub enum Latest<'a> {
    /// What is held here is the latest.
    Held(Slot),
    /// A copy that another node has told. Its start is an age.
    Told(&'a TimerCopy<'a>),
    /// The timer has ended, as a node told that may have missed a write. Only a condition asks.
    Ended(Box<Seen>),
    /// No node knows of the timer.
    Nothing,
    /// A node that may know more could not be asked.
    Unsure(Refusal),
}

/// A read that waits for another node.
#[derive(Debug)]
pub struct Waiting {
    /// Who waits.
    pub from: Reader,
    pub id: TimerId,
    /// The peer that was asked last.
    pub asked: PeerIndex,
    /// When that peer was asked, and when the first one was.
    pub asked_at: Tick,
    pub since: Tick,
    /// Peers that are still to be asked.
    pub left: PeerSet,
    /// The right nodes, as far as this node knows.
    pub listed: PeerSet,
    /// Whether a peer that may hold the timer could not be asked.
    pub is_unsure: bool,
    /// The newest state among those that may have missed a write. If that state is live, with the
    /// peer that has it: that peer is asked again if no other knows better.
    pub doubtful: Option<(StateKey, Option<PeerIndex>)>,
    /// The newest end of the timer among those that may have missed a write, for a condition.
    pub ended: Option<Box<Seen>>,
    /// Whether the right nodes are asked again.
    pub is_again: bool,
    /// Whether a doubtful copy answers, because there is no better one.
    pub takes_doubtful: bool,
}

/// All reads of a shard that wait.
pub type Reads = Slots<Waiting>;
