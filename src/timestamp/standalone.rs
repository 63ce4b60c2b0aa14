//! One server, whose bound is kept in a file: stored ahead, always above anything handed out.

use super::Timestamp;
use super::clock::Seen;
use super::oracle::Terms;
use crate::base::time::{MonoNs, Now};

/// Limits of a standalone server.
#[derive(Clone, Copy, Debug)]
pub struct StandaloneSettings {
    /// How far ahead the bound is stored.
    pub window_ms: u64,
    /// A wall clock that steps forward by more is not followed.
    pub clock_jump_max_ms: u64,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// The bound that the file held at the start.
    Loaded(Timestamp),
    /// The last [`FileEffect::Store`] is on the disk.
    Stored,
    /// It is not, or nobody knows.
    StoreFailed,
    /// Time passes; `last` is the last timestamp handed out ([`super::oracle::Oracle::last`]).
    Tick {
        /// The last timestamp handed out.
        last: Timestamp,
    },
    /// An orderly stop.
    Stop,
    /// The oracle has been revoked, as asked for by [`FileEffect::Revoke`].
    Revoked {
        /// The last timestamp handed out.
        last: Timestamp,
    },
}

/// What is to be done, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEffect {
    /// Store this bound so that it survives a loss of power; answer with [`FileEvent::Stored`] or
    /// [`FileEvent::StoreFailed`]. One at a time.
    Store(Timestamp),
    /// [`super::oracle::Oracle::begin`].
    Begin(Timestamp, Terms),
    /// [`super::oracle::Oracle::publish`].
    Publish(Terms),
    /// [`super::oracle::Oracle::revoke`]; answer with [`FileEvent::Revoked`].
    Revoke,
    /// The wall clock is not followed, or was set back: to be logged and counted.
    Clock(Seen),
    /// All is done after [`FileEvent::Stop`].
    Stopped,
}

/// The state machine.
#[derive(Debug)]
pub struct Standalone {}

impl Standalone {
    /// Waits for [`FileEvent::Loaded`].
    pub fn new(_settings: StandaloneSettings) -> Self {
        todo!()
    }

    /// Takes an event; effects are appended.
    pub fn handle(&mut self, _now: Now, _event: FileEvent, _effects: &mut Vec<FileEffect>) {
        todo!()
    }

    /// When [`FileEvent::Tick`] is wanted next.
    pub fn wake_at(&self) -> MonoNs {
        todo!()
    }
}
