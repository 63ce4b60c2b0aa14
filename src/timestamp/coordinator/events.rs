//! What happens to a coordinated server, what it asks of its driver, and the roles that it can
//! have.

use crate::base::time::{MonoNs, WallMs};
use crate::timestamp::Timestamp;
use crate::timestamp::clock::Seen;
#[cfg(doc)]
use crate::timestamp::oracle::Oracle;
use crate::timestamp::oracle::Terms;

/// The settings of a coordinated server.
#[derive(Clone, Debug)]
pub struct CoordinatorSettings {
    /// This server's `host_port`, as written into the nodes.
    pub address: String,
    /// How far ahead of the clock the bound is stored, in milliseconds.
    pub window_ms: u64,
    /// A wall clock that is ahead by more milliseconds is not followed.
    pub clock_jump_max_ms: u64,
}

/// The id of a `ZooKeeper` session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId(pub i64);

/// The bound as the ensemble stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBound {
    /// The bound; 0 if the node is empty.
    pub bound: Timestamp,
    /// Version of the bound's node.
    pub version: i32,
}

/// The master's node as the ensemble has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterNode {
    /// `host_port` of the master.
    pub address: String,
    /// The session that owns the node.
    pub owner: SessionId,
    /// When the node was made, by the clock of `ZooKeeper`.
    pub created: WallMs,
}

/// Which nodes of a cluster exist. A cluster's node and its bound are made together, so a cluster
/// without a bound has lost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// All nodes that a cluster must have.
    Whole,
    /// All nodes but the bound's.
    NoBound,
    /// No node, not even the cluster's own.
    None,
}

/// What the coordinator asks of its driver. The driver answers each [`Ask`] with one [`Answer`],
/// and gets no other [`Ask`] before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Begin a session. The driver tries until it succeeds. Answer: `Session`.
    OpenSession,
    /// Look whether the persistent nodes of the cluster exist. The driver makes the folder of the
    /// backups if nothing else is missing. Answer: `Nodes`.
    FindNodes,
    /// Make the nodes of a new cluster, all or none. Answer: `Done` or `Exists`.
    MakeCluster,
    /// Make the master's node (ephemeral). Answer: `Done` or `Exists`.
    CreateMaster,
    /// Read the master's node and watch it. After this, [`Event::MasterChanged`] is sent once when
    /// the node is made, changed or deleted. Answer: `Master`.
    WatchMaster,
    /// Make this server's node among the backups (ephemeral). Answer: `Done` or `Exists`.
    RegisterBackup,
    /// Delete this server's node among the backups. Answer: `Done`, also if there was no node.
    UnregisterBackup,
    /// Read the bound as the leader of the ensemble knows it (`sync` first). Answer: `Bound` or
    /// `NoBound`.
    ReadBound,
    /// Write the bound in a transaction. The transaction fails if the master's node is gone or the
    /// bound has another version. Answer: `Written` (the version is one higher) or `Conflict`.
    WriteBound {
        /// The bound to write.
        bound: Timestamp,
        /// The version that the bound's node must have.
        version: i32,
    },
    /// Write the bound and delete the master's node in one transaction, which fails if the bound
    /// has another version. Answer: `Done` or `Conflict`.
    Release {
        /// The bound to write: one above the last timestamp handed out.
        bound: Timestamp,
        /// The version that the bound's node must have.
        version: i32,
    },
    /// End the session in order. Answer: `Done`.
    CloseSession,
}

/// How an [`Ask`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The driver did what was asked.
    Done,
    /// A session has begun.
    Session {
        /// The id of the session.
        session: SessionId,
        /// The length of the session that the ensemble granted, in milliseconds.
        timeout_ms: u64,
    },
    /// The node existed before.
    Exists,
    /// The master's node; `None`: there is no master's node.
    Master(Option<MasterNode>),
    /// The stored bound.
    Bound(StoredBound),
    /// The bound's node does not exist.
    NoBound,
    /// The bound is written. `ZooKeeper`'s clock told this time when it wrote.
    Written(WallMs),
    /// Which nodes of the cluster exist.
    Nodes(Nodes),
    /// A transaction was refused: the bound has another version, or the master's node is gone.
    Conflict,
    /// The connection broke. The request may have been done, may be done later, or may never be
    /// done.
    Lost,
    /// The session is over, and the ensemble has deleted the nodes that the session owned.
    Expired,
    /// The request was refused for another reason (rights, layout). The coordinator asks again
    /// after a pause.
    Refused,
}

/// What happens to a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server begins. Sent once, before every other event.
    Start,
    /// The driver's answer to the last [`Ask`]. The driver owes the answer also if the session
    /// ended meanwhile. The driver must read the clock for this event after the answer came,
    /// because an earlier reading would make the lease too long.
    Answered {
        /// When the request was handed to the session. Must not be later than the moment in which
        /// it was sent.
        sent: MonoNs,
        /// How the request ended.
        answer: Answer,
    },
    /// The node that [`Ask::WatchMaster`] watches has changed.
    MasterChanged,
    /// The session is over. If an [`Ask`] is open, [`Answer::Expired`] tells the same.
    SessionExpired,
    /// Time has passed.
    Tick {
        /// The last timestamp handed out.
        last: Timestamp,
    },
    /// The oracle has been revoked, as [`Effect::Revoke`] asked.
    Revoked {
        /// The last timestamp handed out.
        last: Timestamp,
    },
    /// An orderly stop begins.
    Stop,
}

/// What the driver must do. Effects are done in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Do this and answer with [`Event::Answered`].
    Ask(Ask),
    /// Call [`Oracle::begin`].
    Begin(Timestamp, Terms),
    /// Call [`Oracle::publish`].
    Publish(Terms),
    /// Call [`Oracle::revoke`] and send [`Event::Revoked`] at once, before any other event.
    Revoke,
    /// The master's `host_port`, for clients that are refused; `None`: the master is not known.
    MasterIs(Option<String>),
    /// The wall clock is not followed, or was set back: log and count it.
    Clock(Seen),
    /// Tell operators.
    Alarm(Alarm),
    /// Everything after [`Event::Stop`] is done.
    Stopped,
}

/// A condition that operators should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Another program wrote the bound while this server was master. An original server that had
    /// been frozen does this.
    ForeignBound(StoredBound),
    /// The bound was deleted, so nothing tells above which value timestamps could go on. Nothing is
    /// handed out until an operator makes the bound anew. The alarm carries the bound that this
    /// server stored last, if it was master until then. The alarm is repeated at each look.
    BoundLost(Option<Timestamp>),
    /// The master's node was taken from this server while this server's session lives.
    Deposed,
    /// The lease ran out before a write was acknowledged. The server does not answer until a write
    /// is acknowledged.
    LeaseOver,
}

/// The role of a server, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server connects or takes over.
    Starting,
    /// Another server answers.
    Backup,
    /// This server answers.
    Master,
    /// This server is master, but its lease is over: it does not answer.
    Suspended,
    /// The server has stopped.
    Stopped,
}
