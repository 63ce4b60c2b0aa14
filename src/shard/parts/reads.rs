//! Reads of clients that wait for another node.

use crate::base::ids::{PeerIndex, PeerSet, TimerId};
use crate::base::slots::Slots;
use crate::base::time::Tick;
use crate::shard::effects::Requester;
use crate::timer::version::StateKey;
use crate::wire::dead_letter::LetterUse;

/// Reads that wait at a time. A read above it is answered 503.
pub const READS_MAX: usize = 65_536;

/// A read that waits for another node.
#[derive(Debug)]
pub struct Waiting {
    /// The client that waits.
    pub from: Requester,
    pub id: TimerId,
    /// What is done with the timer, which is to be a dead letter; `None`: any timer is shown.
    pub wanted: Option<LetterUse>,
    /// The peer that was asked last.
    pub asked: PeerIndex,
    /// When that peer was asked.
    pub asked_at: Tick,
    /// Peers that are still to be asked.
    pub left: PeerSet,
    /// The right nodes, as far as this node knows.
    pub listed: PeerSet,
    /// Whether a peer that may hold the timer could not be asked.
    pub is_unsure: bool,
    /// The newest state among those that may have missed a write. If that state is live, with the
    /// peer that has it: that peer is asked again if no other knows better.
    pub doubtful: Option<(StateKey, Option<PeerIndex>)>,
    /// Whether a doubtful copy answers, because there is no better one.
    pub takes_doubtful: bool,
}

/// All reads of a shard that wait.
pub type Reads = Slots<Waiting>;
