//! What happens to a coordinated server, what it asks of its driver, and what it is.

use crate::base::time::{MonoNs, WallMs};
use crate::timestamp::Timestamp;
use crate::timestamp::clock::Seen;
#[cfg(doc)]
use crate::timestamp::oracle::Oracle;
use crate::timestamp::oracle::Terms;

/// Settings of a coordinated server.
#[derive(Clone, Debug)]
pub struct CoordinatorSettings {
    /// `host_port` as written into the nodes.
    pub address: String,
    /// How far ahead the bound is stored.
    pub window_ms: u64,
    /// A wall clock that is further ahead is not followed.
    pub clock_jump_max_ms: u64,
}

/// A `ZooKeeper` session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId(pub i64);

/// The bound as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBound {
    /// 0 if the node is empty.
    pub bound: Timestamp,
    /// Version of the node.
    pub version: i32,
}

/// The master's node as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterNode {
    /// `host_port`.
    pub address: String,
    /// Whose it is.
    pub owner: SessionId,
    /// When it was made, by the clock of `ZooKeeper`.
    pub created: WallMs,
}

/// What there is of a cluster. The bound's node is made with the cluster's, so that a cluster
/// without one has lost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// All that there must be.
    Whole,
    /// All but the bound's.
    NoBound,
    /// Nothing, not even the cluster's own node.
    None,
}

/// What the driver is asked to do. It answers each with one [`Answer`], and is asked nothing more
/// before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Begin a session; tried until it succeeds. Answer: `Session`.
    OpenSession,
    /// Look whether the persistent nodes of the cluster are there. The folder of the backups is
    /// made if only that is missing. `Nodes`.
    FindNodes,
    /// Make the nodes of a cluster that never was, all of them or none. `Done` or `Exists`.
    MakeCluster,
    /// Make the master's node (ephemeral). `Done` or `Exists`.
    CreateMaster,
    /// Read the master's node, and watch it: [`Event::MasterChanged`] is sent once when it is made,
    /// changed or deleted after this. `Master`.
    WatchMaster,
    /// Make this server's node among the backups (ephemeral). `Done` or `Exists`.
    RegisterBackup,
    /// Delete this server's node among the backups. `Done` (also when there is none).
    UnregisterBackup,
    /// Read the bound, as the leader of the ensemble knows it (`sync` first). `Bound` or `NoBound`.
    ReadBound,
    /// In one transaction: the master's node is there, and the bound's version is still the one
    /// given; write the bound. `Written` (the version is one higher) or `Conflict`.
    WriteBound {
        /// To be written.
        bound: Timestamp,
        /// Of the node now.
        version: i32,
    },
    /// In one transaction: write the bound if its version is still the one given, and delete the
    /// master's node. `Done` or `Conflict`.
    Release {
        /// To be written: above the last timestamp handed out.
        bound: Timestamp,
        /// Of the node now.
        version: i32,
    },
    /// End the session in order. `Done`.
    CloseSession,
}

/// How an [`Ask`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// A session has begun.
    Session {
        /// Its id.
        session: SessionId,
        /// Its length as the ensemble granted it.
        timeout_ms: u64,
    },
    /// The node is there already.
    Exists,
    /// The master's node; `None`: there is none.
    Master(Option<MasterNode>),
    /// The bound.
    Bound(StoredBound),
    /// The bound's node is not there.
    NoBound,
    /// The bound is written, at this time by the clock of `ZooKeeper`.
    Written(WallMs),
    /// What there is of a cluster.
    Nodes(Nodes),
    /// A transaction was refused: the version is another, or the master's node is gone.
    Conflict,
    /// The connection broke: it may have been done or not, or may yet be.
    Lost,
    /// The session is over, and the nodes that it owned are deleted.
    Expired,
    /// It is refused for another reason (rights, layout); tried again after a pause.
    Refused,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server begins.
    Start,
    /// The driver's answer to the last [`Ask`]; owed also when the session is over meanwhile. The
    /// clock with which it is handed over is read after it came: a lease would be too long
    /// otherwise.
    Answered {
        /// When the request was handed to the session: not later than it was sent.
        sent: MonoNs,
        /// How it ended.
        answer: Answer,
    },
    /// The node watched by [`Ask::WatchMaster`] changed.
    MasterChanged,
    /// The session is over (also told as [`Answer::Expired`] if something was asked).
    SessionExpired,
    /// Time passes; `last` is the last timestamp handed out.
    Tick {
        /// The last timestamp handed out.
        last: Timestamp,
    },
    /// The oracle has been revoked, as asked for by [`Effect::Revoke`].
    Revoked {
        /// The last timestamp handed out.
        last: Timestamp,
    },
    /// An orderly stop.
    Stop,
}

/// What is to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// For the driver.
    Ask(Ask),
    /// [`Oracle::begin`].
    Begin(Timestamp, Terms),
    /// [`Oracle::publish`].
    Publish(Terms),
    /// [`Oracle::revoke`]; answer with [`Event::Revoked`] at once, before anything
    /// else.
    Revoke,
    /// Who is master, for those who are refused; `None`: nobody knows.
    MasterIs(Option<String>),
    /// The wall clock is not followed, or was set back: to be logged and counted.
    Clock(Seen),
    /// Something that operators should hear of.
    Alarm(Alarm),
    /// All is done after [`Event::Stop`].
    Stopped,
}

/// Something that operators should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Somebody else wrote the bound while this server was master (an original server that had
    /// been frozen does this).
    ForeignBound(StoredBound),
    /// There is no bound above which timestamps could go on: somebody has deleted it. Nothing is
    /// handed out until an operator makes it anew. The bound that this server stored last, if it
    /// has been master until now. Told again with each look.
    BoundLost(Option<Timestamp>),
    /// The master's node was taken from this server while its session lives.
    Deposed,
    /// The lease ran out before a write was acknowledged: no answers until one is.
    LeaseOver,
}

/// What a server is, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Connecting, or taking over.
    Starting,
    /// Another server answers.
    Backup,
    /// This server answers.
    Master,
    /// This server is master, but its lease is over: it does not answer.
    Suspended,
    /// Stopped.
    Stopped,
}
