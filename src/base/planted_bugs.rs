//! The bugs that a simulator must be able to find (feature `planted`), one name for each bug.

/// A mistake in production code. The feature `planted` compiles it in, and a test switches it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Bug {
    /// The wheel drains one entry fewer per tick than its arithmetic asks for.
    DrainOneTooFew = 1,
    /// A timer is filed two ticks ahead of its due time.
    FileTwoAhead = 2,
    /// The pop at exactly `repeat-for` is forgotten.
    RepeatForOffByOne = 3,
    /// A core that goes to sleep does not see a message that arrived just before.
    LostWakeUp = 4,
    /// A payload is freed while its timer is still alive.
    PayloadFreedEarly = 5,
    /// State of a lower version counts for a newer version: a record, or the result of a callback.
    AcceptLowerVersion = 6,
    /// A sequence number is used twice.
    ReuseSequence = 7,
    /// A deleted timer leaves no tombstone, or a tombstone that ends at once.
    DropTombstone = 8,
    /// A failed callback is neither retried nor counted.
    ForgetFailure = 9,
    /// After an update the old schedule stays armed beside the new schedule.
    KeepOldSchedule = 10,
    /// A finished callback does not give its place at the host back.
    LeakCredit = 11,
    /// A write is sent to all replicas but the last.
    SkipOneReplica = 12,
    /// The other replicas are not told of a successful pop.
    DoNotTellReplicasOfPop = 13,
    /// Tombstones are neither sent in a walk nor taken by a node that holds nothing of the timer.
    DropTombstonesAtRestart = 14,
    /// A node of rank 1 pops at the due time, as if it had rank 0.
    RankOnePopsWithoutDelay = 15,
    /// A node that pops in place of a lower rank sometimes does not count the pop, and uses its
    /// sequence number again.
    ReuseSequenceAfterFailover = 16,
    /// A move deletes the local copy before the new holder has acknowledged the timer.
    DropBeforeNewHolderAcknowledged = 17,
    /// A write is answered before every replica that is believed alive has it.
    WriteAnsweredBeforeReplicas = 18,
    /// Two copies at one key do not unite their masks.
    ActivesNotUnited = 19,
    /// A copy that is older than the held state replaces it.
    StaleCopyResurrects = 20,
    /// Timestamps are handed out above the stored bound.
    ServedBeforeBoundIsStored = 21,
    /// A server that was master before continues above the values that it remembers instead of
    /// above the stored bound.
    OracleKeepsMemory = 22,
    /// The lease counts from the arrival of an acknowledgement, not from the question.
    LeaseFromAcknowledgement = 23,
    /// A timestamp leaves without the second look at the lease.
    NoCheckAfterwards = 24,
    /// The bound is written whatever the stored version is.
    BoundWithoutCompare = 25,
    /// A server that starts does not raise its timestamps above the stored bound.
    FloorForgotten = 26,
    /// The oracle follows the wall clock, however far the clock steps.
    ClockJumpFollowed = 27,
    /// Timestamps are made and sent after the lease has ended.
    LeaseNotChecked = 28,
    /// A node that should not hold a timer any more answers reads from the tombstone that it kept.
    TombstoneOffTheListAnswersReads = 29,
    /// A core that was away pops a timer without asking other nodes for the news that it missed.
    WokenCorePopsUnheard = 30,
    /// A node learns a version, however far ahead the version is.
    LearnFutureVersion = 40,
    /// A tombstone ends although another site of its timer cannot be reached.
    TombstoneNotHeldForSites = 50,
    /// The addresses that a site tells of its members are not believed.
    SiteMembersUnknown = 53,
    /// When a node hears of an overdue pop, it counts the delay of its rank from the due time, so
    /// that all ranks act at once.
    OverdueRanksActAtOnce = 51,
    /// A node that was dead acts again although it has delivered nothing since.
    ReturnedRankActsAtOnce = 52,
    /// The creation time of a master's node in `ZooKeeper` counts as the present, however old it
    /// is.
    OldWitness = 60,
    /// A server makes a bound anew that was deleted.
    LostBoundMadeAnew = 61,
    /// A correction of a wall clock that was set back is not followed.
    CorrectionRefused = 62,
    /// An idle callback host keeps its lane though another host needs it.
    IdleHostKeepsLane = 63,
    /// A replica that refuses a write counts as a replica that has it.
    RefusalCountsAsAnswered = 41,
    /// A node that decides about a condition takes the write whatever it holds.
    ConditionNotJudged = 42,
    /// A journal counts a write as durable when it begins.
    JournalAcknowledgesEarly = 64,
    /// A page of a journal is taken whatever its checksum says.
    JournalWithoutChecksum = 65,
    /// A page from a segment file's former life counts as a page of this one.
    JournalWithoutEpoch = 66,
    /// A journal that cannot be read in its middle is cut there, as if the write had been torn.
    JournalTakesDamageForTail = 67,
    /// What was forgotten is applied after everything else that a journal says.
    JournalForgetsOutOfOrder = 68,
    /// Tombstones are left behind when a segment is emptied.
    JournalDropsTombstones = 69,
    /// A segment is used again although timers stand in it.
    JournalReusesLiveSegment = 70,
    /// Pops that are done are not written to the journal.
    JournalSkipsProgress = 71,
    /// A new segment is used before its name is on the disk.
    JournalDirectoryNotSynced = 72,
    /// Times of an earlier boot are taken for times of this boot.
    JournalKeepsOldBoot = 73,
    /// A node that returns with its journal does not ask whether its timers have ended.
    ReturningNodeKeepsEnded = 74,
    /// A returning node ends a timer although the nodes that do not know it may never have had it.
    EndsWhatPeersMissed = 75,
    /// In mode `interval` a journal is written too rarely.
    JournalWritesRarely = 76,
    /// A rank that says nothing delays each pop of a timer anew.
    SilentRankDelaysEachPop = 77,
    /// A timer that a stand-in gets while it suspects the right node stays there for good.
    StandInOfSuspectStays = 78,
    /// A node to which a timer moves makes a pop that fails elsewhere, and tells only its own list.
    NewHolderTellsNoFormerOnes = 79,
    /// A node that is told of a list and holds a better one does not say so.
    PreferredListNotTold = 80,
    /// The last live holder of a timer waits at each pop for the dead nodes of its list.
    LastHolderStaysBehindTheDead = 81,
    /// A node that hears from another site that a timer has ended tells the holders, and keeps
    /// nothing: they may be dead, and come back with the timer.
    EndOfSiteOnlyPassedOn = 82,
    /// A node that hears of a timer from another site tells the holders, and keeps nothing: they
    /// may be frozen, or die, before they hear of it.
    CopyOfSiteOnlyPassedOn = 83,
    /// A retry policy allows one attempt more than it says.
    OneAttemptTooMany = 84,
    /// A retry policy makes no pauses.
    PolicyWithoutPauses = 85,
    /// A node that retries a pop by a policy tells the others that they may make it.
    PopOfPolicyNotKept = 86,
    /// A timer that follows the calendar uses a sequence number again.
    CalendarRepeatsSequence = 92,
    /// A write on condition of a version is made whatever the version is.
    VersionNotCompared = 98,
    /// A create with a key that was made is made again.
    KeyMadeAgain = 99,
    /// A timer that follows the calendar makes up for all that it missed.
    CalendarMakesUpForAll = 96,
    /// A timer that follows the calendar leaves out what came while it was late.
    CalendarMakesUpForNothing = 97,
    /// Timers that follow the calendar believe each wall clock at once.
    CalendarBelievesEachClock = 180,
    /// A timer that follows the calendar makes up for moments that a clock jumped over.
    CalendarMakesUpForJumps = 181,
    /// A pop of a calendar comes by its window later than the pop before it was over.
    CalendarWindowCountsFromPop = 182,
    /// A core takes a calendar as another one has planned it, by whichever time.
    CalendarTakenAsItComes = 183,
    /// A node beside the list of a timer moves it home, and takes the pop that the holders are
    /// about to make.
    BesideListTakesPop = 185,
    /// A node that is back waits for a rank that keeps a pop for a rule no longer than for one that
    /// says nothing.
    KeptPopWaitedForOnce = 186,
    /// An order about one destination costs each other one the moment that its core had taken.
    OrderCostsMoments = 184,
    /// An attempt does not use up its moment, so that the next one follows at once.
    MomentUsedTwice = 93,
    /// A callback begins at a destination that is paused.
    PauseOverlooked = 94,
    /// Each node of a cluster takes the whole rate of a destination.
    RateNotDivided = 95,
    /// A rank that a pop waits at because of a rule does not tell the others that it keeps it.
    RuledPopNotKept = 87,
    /// A pop that is given up leaves no dead letter.
    GivenUpLeavesNoLetter = 90,
    /// A dead letter that leaves for another one is not counted.
    LetterLeavesUncounted = 100,
    /// Dead letters are kept however many there are.
    LettersWithoutBound = 101,
    /// Where the rule of a destination is taken away, each pop that was missed meanwhile is made.
    RuleGoneKeepsMissed = 114,
    /// No delivered pop is reported.
    SuccessUnreported = 104,
    /// The second holder of a timer does not know that it is paused.
    PausedPopsAfterTakeover = 110,
    /// A timer whose only pop came due while it was paused ends when it is resumed.
    ResumeForgetsMissed = 111,
    /// A site does not take over the pops that another one made before it heard of an action.
    PopsBeforeActionUntold = 112,
    /// A 410 to a callback that was under way as its timer was paused is forgotten.
    GoneBeforeActionUnheeded = 115,
    /// A dead letter goes on with the pops of a timer that a client ran or resumed.
    LetterCountsPopsOfTimer = 113,
    /// Attributes that timers have in common are freed with the last timer but one.
    CommonsLeaveEarly = 126,
    /// A timer that is resumed makes each pop that it missed.
    ResumeMakesMissed = 116,
    /// The times of a timer count anew from the moment at which a client ran it.
    RunMovesSchedule = 117,
    /// A timer that replaces a paused one is paused.
    ReplacementStaysPaused = 118,
    /// A timer whose callback is taken while it is paused goes on with its next pop.
    PopWhilePausedArmsNext = 119,
    /// A pop whose callback runs is made twice when a client runs it.
    RunRepeatsRunning = 120,
    /// A journal does not hear that a timer is paused.
    JournalSkipsPause = 121,
    /// A journal does not hear that a timer is resumed.
    JournalSkipsResume = 122,
    /// A journal does not hear that a pop was given up and is kept as a dead letter.
    JournalSkipsLetter = 123,
    /// A journal does not hear that a dead letter was deleted.
    JournalSkipsDeletedLetter = 124,
    /// A journal does not hear that a dead letter is tried again.
    JournalSkipsReplay = 125,
    /// What this node lacks for an attempt counts as a failure of the host.
    LackCountsAgainstHost = 127,
    /// An attempt that this node could not make counts as one that failed.
    LackCountsAsAttempt = 128,
    /// A pop is given up because this node lacks a lane for its host.
    LackGivesUp = 129,
    /// A host that hangs gets the last place of a core.
    HungHostTakesLastPlace = 130,
    /// A place of a core that gets free is given to nobody who waits for one.
    FreedPlaceWakesNobody = 131,
    /// A node whose disk takes nothing goes on with what a client's write has changed.
    FullDiskDisobeys = 170,
    /// A node that has just started takes a process that says nothing for dead as soon as any other
    /// node does.
    SilenceAtStartIsDeath = 171,
    /// A site that returns with its journals pops without asking the other sites.
    ReturningSiteAsksNoSite = 172,
    /// A peer whose bytes are too old to be obeyed counts as one that was silent.
    StaleBytesAreNoSign = 173,
    /// A node that a client's action takes off the list of a timer forgets the timer while its
    /// callback runs.
    CallbackOfFormerHolderLost = 174,
    /// A site that tells an outdated state of a timer is not told the newer one.
    SiteBehindNotTold = 175,
    /// A write with a condition waits as long as a node is now heard and now not.
    VerdictAwaitedForEver = 176,
    /// A site whose turn to pop has come does not ask the sites before it whether they are at it.
    SiteTakesOverUnasked = 177,
    /// A write that is decided takes the order of sites of what is held as it is made, not that
    /// with which it was decided.
    OrderOfSitesDecidedTwice = 195,
    /// The end of a timer that another site tells is held as if the timer had ended as it started.
    EndOfSiteHeldFromStart = 196,
    /// A write that is made again, above one that it did not know, counts its pops anew.
    WriteMadeAgainRepeatsPops = 197,
    /// A node that has left its cluster takes what another site tells, and says that it is that
    /// site.
    LeftNodeSpeaksForSite = 198,
    /// Another site is not told the digest of the body that came with the key of an ended timer,
    /// and takes what stands in its place for it.
    KeyOfSiteNotTold = 199,
    /// A node that has said that it is full counts as full, although a peer tells that it holds the
    /// timer.
    FullNodeStaysFull = 200,
    /// A node to which a timer is about to move tells those that act for it of no write of its own.
    MovingTimerLeftToActing = 201,
    /// An end whose version lies in the future, by a clock that was wrong, lies above what was
    /// written after it.
    FarEndVoidsLaterWrite = 210,
    /// A question that was open as a pause began stays open until the pause ends.
    PauseLeavesQuestionOpen = 211,
    /// A read asks no node twice, and misses a timer that moves meanwhile.
    ReadLooksOnce = 212,
    /// A node that is back asks the holders and stand-ins alone about a timer of several sites.
    KeeperOfEndNotAsked = 213,
}

impl Bug {
    /// The bug with this name, for a test that replays a story with the bug. `None`: no bug has the
    /// name.
    pub fn named(name: &str) -> Option<Bug> {
        let all = Self::ONE_NODE.into_iter().chain(Self::CLUSTER).chain(Self::TIMESTAMP);
        all.chain(Self::JOURNAL).chain(Self::RARE).find(|bug| format!("{bug:?}") == name)
    }

    /// The bugs that the simulator of one node must find.
    pub const ONE_NODE: [Bug; 39] = [
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
        Bug::OneAttemptTooMany,
        Bug::PolicyWithoutPauses,
        Bug::MomentUsedTwice,
        Bug::PauseOverlooked,
        Bug::RuleGoneKeepsMissed,
        Bug::GivenUpLeavesNoLetter,
        Bug::LetterLeavesUncounted,
        Bug::LettersWithoutBound,
        Bug::CalendarRepeatsSequence,
        Bug::CalendarMakesUpForAll,
        Bug::CalendarMakesUpForNothing,
        Bug::CalendarBelievesEachClock,
        Bug::CalendarMakesUpForJumps,
        Bug::CalendarWindowCountsFromPop,
        Bug::SuccessUnreported,
        Bug::CommonsLeaveEarly,
        Bug::ResumeForgetsMissed,
        Bug::ResumeMakesMissed,
        Bug::RunMovesSchedule,
        Bug::ReplacementStaysPaused,
        Bug::PopWhilePausedArmsNext,
        Bug::RunRepeatsRunning,
        Bug::LackCountsAgainstHost,
        Bug::LackCountsAsAttempt,
        Bug::LackGivesUp,
        Bug::HungHostTakesLastPlace,
        Bug::FreedPlaceWakesNobody,
    ];

    /// The bugs that need a second node. The simulator of a cluster must find each.
    pub const CLUSTER: [Bug; 26] = [
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
        Bug::PopOfPolicyNotKept,
        Bug::RateNotDivided,
        Bug::RuledPopNotKept,
        Bug::SiteTakesOverUnasked,
        Bug::ConditionNotJudged,
        Bug::GivenUpLeavesNoLetter,
        Bug::VersionNotCompared,
        Bug::KeyMadeAgain,
        Bug::PausedPopsAfterTakeover,
        Bug::ResumeForgetsMissed,
        Bug::GoneBeforeActionUnheeded,
    ];

    /// The bugs of the journal. The simulators with a disk must find each.
    pub const JOURNAL: [Bug; 19] = [
        Bug::JournalAcknowledgesEarly,
        Bug::JournalWithoutChecksum,
        Bug::JournalWithoutEpoch,
        Bug::JournalTakesDamageForTail,
        Bug::JournalForgetsOutOfOrder,
        Bug::JournalDropsTombstones,
        Bug::JournalReusesLiveSegment,
        Bug::JournalSkipsProgress,
        Bug::JournalDirectoryNotSynced,
        Bug::JournalKeepsOldBoot,
        Bug::ReturningNodeKeepsEnded,
        Bug::EndsWhatPeersMissed,
        Bug::JournalWritesRarely,
        Bug::JournalSkipsPause,
        Bug::JournalSkipsResume,
        Bug::JournalSkipsLetter,
        Bug::JournalSkipsDeletedLetter,
        Bug::JournalSkipsReplay,
        Bug::FullDiskDisobeys,
    ];

    /// The bugs that few seeds find. The simulator of a cluster is given a seed for each.
    pub const RARE: [Bug; 26] = [
        Bug::SilentRankDelaysEachPop,
        Bug::StandInOfSuspectStays,
        Bug::NewHolderTellsNoFormerOnes,
        Bug::PopsBeforeActionUntold,
        Bug::LetterCountsPopsOfTimer,
        Bug::SilenceAtStartIsDeath,
        Bug::StaleBytesAreNoSign,
        Bug::CallbackOfFormerHolderLost,
        Bug::SiteBehindNotTold,
        Bug::VerdictAwaitedForEver,
        Bug::ReturningSiteAsksNoSite,
        Bug::CalendarTakenAsItComes,
        Bug::OrderCostsMoments,
        Bug::BesideListTakesPop,
        Bug::KeptPopWaitedForOnce,
        Bug::OrderOfSitesDecidedTwice,
        Bug::EndOfSiteHeldFromStart,
        Bug::WriteMadeAgainRepeatsPops,
        Bug::LeftNodeSpeaksForSite,
        Bug::KeyOfSiteNotTold,
        Bug::FullNodeStaysFull,
        Bug::MovingTimerLeftToActing,
        Bug::FarEndVoidsLaterWrite,
        Bug::PauseLeavesQuestionOpen,
        Bug::ReadLooksOnce,
        Bug::KeeperOfEndNotAsked,
    ];

    /// The bugs of the timestamp service. The simulator of that service must find each.
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
