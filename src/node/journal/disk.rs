//! A core's journal under io_uring: pieces go to the ring, orders to the thread that makes
//! segments.

// Reads the wall clock: reboot 3.

use crate::base::time::{MonoNs, Now};
use crate::core::journal::CoreJournal;
use crate::journal::SegmentNumber;
use crate::node::journal::segments::{Made, Segments};
use crate::ring::{Errno, Ring, RingError};

/// Places of the ring for segments: the one that is filled, those made ahead, and one more.
pub const PLACES: u32 = 4;

/// The disk of one core.
pub struct Disk {
    segments: Segments,
    wall: WallFloor,
    /// When the piece that is under way was given to the ring.
    began: MonoNs,
}

/// A wall clock that showed less than the newest page of the journal counts as showing at least
/// that page's time, and what has passed since the start. One that was not behind may be set back
/// later, as in a node without a journal.
#[derive(Clone, Copy, Debug)]
pub struct WallFloor {
    /// When the journal was opened, and the time of that page; 0: the clock was not behind.
    pub began: Now,
}

impl WallFloor {
    /// The time, with a wall clock that is not behind.
    pub fn raise(&self, now: Now) -> Now {
        Now { wall: now.wall.max(self.began.not_before(now.mono).wall), ..now }
    }
}

impl Disk {
    /// A disk that makes segments with `segments`. The ring is prepared for it.
    pub fn new(segments: Segments, wall: WallFloor) -> Self {
        Self { segments, wall, began: MonoNs(0) }
    }

    /// The time, with a wall clock that is not behind the journal.
    pub fn now(&self, now: Now) -> Now {
        self.wall.raise(now)
    }

    /// Takes the segments that were made.
    pub fn take_made(&mut self, now: Now, ring: &mut Ring, journal: &mut CoreJournal) {
        while let Some(made) = self.segments.next() {
            match made {
                Made::Segment(segment, file) => {
                    ring.keep_file(place_of(segment), file);
                    journal.prepared(segment);
                }
                Made::None(why) => journal.not_prepared(now, why),
                Made::Away(is_away) => journal.set_away(is_away),
            }
        }
    }

    /// Does what the journal asks for.
    pub fn obey(&mut self, now: Now, ring: &mut Ring, journal: &mut CoreJournal) {
        while let Some(order) = journal.next_order() {
            self.segments.order(order);
        }
        if let Some(piece) = journal.next_piece() {
            self.began = now.mono;
            ring.write_durably(place_of(piece.segment), piece.offset, piece.bytes);
        }
    }

    /// The ring has written a piece. Returns how long that took, in us. `Err`: it could not, and
    /// nothing can be promised any more.
    pub fn written(
        &mut self,
        now: Now,
        result: Result<(), Errno>,
        journal: &mut CoreJournal,
    ) -> Result<u64, RingError> {
        match result {
            Ok(()) => {
                journal.written();
                Ok(now.mono.since_ns(self.began) / 1_000)
            }
            Err(errno) => Err(RingError::Kernel {
                what: "writing the journal",
                source: std::io::Error::from_raw_os_error(errno.0),
                remedy: "What the disk has taken of this write is not known, so the node stops \
                         and promises nothing more. Look at the disk (dmesg), mend or replace it, \
                         and start the node again: it reads its journal, and the other replicas \
                         have what it lacks"
                    .to_owned(),
            }),
        }
    }
}

fn place_of(segment: SegmentNumber) -> u32 {
    (segment.0 % u64::from(PLACES)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::WallMs;

    #[test]
    fn a_wall_clock_that_is_behind_goes_on_from_the_newest_page() {
        let at = |mono_ms: u64, wall_ms: u64| Now {
            mono: MonoNs(mono_ms * 1_000_000),
            wall: WallMs(wall_ms),
        };
        let floor = WallFloor { began: at(1_000, 90_000) };
        assert_eq!(floor.raise(at(1_500, 20_500)), at(1_500, 90_500));
        assert_eq!(floor.raise(at(2_000, 95_000)), at(2_000, 95_000), "it was set right");
        let none = WallFloor { began: at(1_000, 0) };
        assert_eq!(none.raise(at(1_500, 20_500)), at(1_500, 20_500));
    }
}
