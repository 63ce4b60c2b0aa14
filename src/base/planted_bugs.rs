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
}

impl Bug {
    /// Every bug, for a test that plants them one after the other.
    pub const ALL: [Bug; 11] = [
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
    ];

    /// Those that a simulation of one node must find; the others need a second node.
    pub const ONE_NODE: [Bug; 11] = Bug::ALL;
}
