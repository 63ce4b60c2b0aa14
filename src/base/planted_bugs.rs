//! The bugs that the simulator must be able to find (feature `planted`), one name each.

/// A mistake compiled into production code behind the `planted` feature, off unless a test switches
/// it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Bug {
    /// The wheel drains one entry fewer per tick than the arithmetic asks for.
    DrainOneTooFew = 1,
    /// A timer is filed two ticks ahead of its due time.
    FileTwoAhead = 2,
    /// The pop at exactly `repeat-for` is forgotten.
    RepeatForOffByOne = 3,
    /// A core that goes to sleep does not see the message that arrived meanwhile.
    LostWakeUp = 4,
    /// A payload is freed while its timer is still alive.
    PayloadFreedEarly = 5,
    /// What belongs to a lower version counts for a newer one: its record, or the result of its
    /// callback.
    AcceptLowerVersion = 6,
    /// A sequence number is used twice.
    ReuseSequence = 7,
    /// A deleted timer leaves no tombstone, or none that stays.
    DropTombstone = 8,
    /// A failed callback is neither retried nor counted.
    ForgetFailure = 9,
    /// The old schedule stays armed beside the new one after an update.
    KeepOldSchedule = 10,
    /// A finished callback does not give its place at the host back.
    LeakCredit = 11,
    /// A write is sent to all backups but the last.
    SkipOneReplica = 12,
    /// A successful pop is not told to the other replicas.
    DoNotTellReplicasOfPop = 13,
    /// A resync does not carry tombstones.
    DropTombstonesAtRestart = 14,
    /// A backup arms itself at the due time itself, as if it had rank 0.
    RankOnePopsWithoutDelay = 15,
    /// After the death of a holder of a lower rank its successor counts one sequence too few.
    ReuseSequenceAfterFailover = 16,
    /// A rebalance deletes its own copy before the new holder has acknowledged.
    DropBeforeNewHolderAcknowledged = 17,
    /// A write is answered before a replica that is alive has it.
    WriteAnsweredBeforeReplicas = 18,
    /// A pop told by a replica does not unite the actives of both.
    ActivesNotUnited = 19,
    /// A copy that is older than what is held replaces it.
    StaleCopyResurrects = 20,
    /// Timestamps are handed out below a bound that is not stored yet.
    ServedBeforeBoundIsStored = 21,
    /// A server that was master before goes on above what it remembers, not above what is stored.
    OracleKeepsMemory = 22,
    /// The lease counts from when an acknowledgement came.
    LeaseFromAcknowledgement = 23,
    /// A timestamp leaves without a second look at the clock.
    NoCheckAfterwards = 24,
    /// The bound is written whatever its version is.
    BoundWithoutCompare = 25,
    /// A server that starts does not raise its timestamps above the stored bound.
    FloorForgotten = 26,
    /// The wall clock is followed, however far it steps.
    ClockJumpFollowed = 27,
    /// Timestamps are made and sent after the lease is over.
    LeaseNotChecked = 28,
    /// A node that is not to hold a timer any more answers reads by the tombstone that it has left.
    TombstoneOffTheListAnswersReads = 29,
    /// A core that was away pops what it held, without asking others for what it missed.
    WokenCorePopsUnheard = 30,
    /// A version is learnt however far ahead it is.
    LearnFutureVersion = 40,
    /// Tombstones end although another site of their timer cannot be reached.
    TombstoneNotHeldForSites = 50,
    /// What a site tells of its members is not believed.
    SiteMembersUnknown = 53,
    /// Of a pop that is overdue when they hear of it, all ranks count their delays from its due
    /// time.
    OverdueRanksActAtOnce = 51,
    /// A node that was dead acts again although it has delivered nothing since.
    ReturnedRankActsAtOnce = 52,
    /// The time at which a master's node was made is taken for the present, however old it is.
    OldWitness = 60,
    /// A bound that was deleted is made anew by a server.
    LostBoundMadeAnew = 61,
    /// A wall clock that was set back is not followed when that is corrected.
    CorrectionRefused = 62,
    /// A callback host that is idle keeps its lane though another needs it.
    IdleHostKeepsLane = 63,
    /// A replica that refuses a write counts as one that has it.
    RefusalCountsAsAnswered = 41,
}

impl Bug {
    /// The bug with this name, for a test that replays a story with it.
    pub fn named(name: &str) -> Option<Bug> {
        let all = Self::ONE_NODE.into_iter().chain(Self::CLUSTER).chain(Self::TIMESTAMP);
        all.into_iter().find(|bug| format!("{bug:?}") == name)
    }

    /// Those that a simulation of one node must find.
    pub const ONE_NODE: [Bug; 12] = [
        Bug::DrainOneTooFew,
        Bug::FileTwoAhead,
        Bug::RepeatForOffByOne,
        Bug::LostWakeUp,
        Bug::PayloadFreedEarly,
        Bug::AcceptLowerVersion,
        Bug::ReuseSequence,
        Bug::DropTombstone,
        Bug::ForgetFailure,
        Bug::KeepOldSchedule,
        Bug::LeakCredit,
        Bug::IdleHostKeepsLane,
    ];

    /// Those that need a second node: a simulation of a cluster must find each.
    pub const CLUSTER: [Bug; 15] = [
        Bug::SkipOneReplica,
        Bug::DoNotTellReplicasOfPop,
        Bug::DropTombstonesAtRestart,
        Bug::RankOnePopsWithoutDelay,
        Bug::ReuseSequenceAfterFailover,
        Bug::DropBeforeNewHolderAcknowledged,
        Bug::WriteAnsweredBeforeReplicas,
        Bug::ActivesNotUnited,
        Bug::StaleCopyResurrects,
        Bug::TombstoneOffTheListAnswersReads,
        Bug::TombstoneNotHeldForSites,
        Bug::SiteMembersUnknown,
        Bug::WokenCorePopsUnheard,
        Bug::LearnFutureVersion,
        Bug::RefusalCountsAsAnswered,
    ];

    /// Those of the timestamp service: its own simulation must find each.
    pub const TIMESTAMP: [Bug; 11] = [
        Bug::ServedBeforeBoundIsStored,
        Bug::OracleKeepsMemory,
        Bug::LeaseFromAcknowledgement,
        Bug::NoCheckAfterwards,
        Bug::BoundWithoutCompare,
        Bug::FloorForgotten,
        Bug::ClockJumpFollowed,
        Bug::LeaseNotChecked,
        Bug::OldWitness,
        Bug::LostBoundMadeAnew,
        Bug::CorrectionRefused,
    ];
}
